import pytest
from packaging.version import Version

from frameworks.sample_models import A100, model, stated
from tuneplan.frameworks import resolve_recipe
from tuneplan.frameworks.versions import (
    model_published,
    newest_release,
    read_date,
    read_software,
    read_version,
    release_date,
    releases,
)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("2.4.1", "2.4.1"),
        ("2.1.0+cu121", "2.1.0"),
        ("v0.4 era (table added 2024-11-18)", "0.4"),
        ("5.0.0.dev0", "5.0.0"),
        ("0.41.3.post2", "0.41.3"),
        ("v1.0.0rc1", "1.0.0"),
    ],
)
def test_a_messy_version_reads_as_its_numbers(text, version):
    assert read_version(text) == Version(version)


@pytest.mark.parametrize("text", ["litgpt 5895df10", "see page", "", None, "HEAD"])
def test_what_has_no_numbers_has_no_version(text):
    assert read_version(text) is None


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("2024-03-18", "2024-03-18"),
        ("2024-03", "2024-03-28"),
        ("Feb-Mar 2024", "2024-03-28"),
        ("table added 2024-11-18", "2024-11-18"),
        ("26.06 NeMo Container", None),
    ],
)
def test_a_date_is_found_in_words(text, day):
    assert read_date(text) == day


def test_a_list_of_libraries_reads_as_versions_under_their_usual_names():
    text = "torch 2.4.1; transformers 4.45.2; trl 0.11.4; bnb 0.43.3; lit-gpt 8641822"
    assert dict(read_software(text)) == {
        "torch": "2.4.1",
        "transformers": "4.45.2",
        "trl": "0.11.4",
        "bitsandbytes": "0.43.3",
        "litgpt": "8641822",
    }


def test_a_version_between_two_releases_has_the_day_of_the_one_below():
    # 4.45.2 is not in the table, 4.45.0 of 2024-09-25 is
    assert release_date("transformers", "4.45.2") == "2024-09-25"


def test_a_commit_that_a_published_run_names_has_its_day():
    assert release_date("litgpt", "lit-gpt 8641822") == "2023-10-16"
    assert release_date("litgpt", "0123abc") is None


def test_a_calendar_version_names_its_month():
    assert release_date("unsloth", "2025.8.4") == "2025-08-28"


def test_the_newest_release_on_a_day_is_not_one_of_the_next_day():
    assert newest_release("trl", on="2024-12-14").version == "0.12.2"
    assert newest_release("trl", on="2024-12-15").version == "0.13.0"


def test_before_the_first_release_the_oldest_known_is_taken():
    assert newest_release("axolotl", on="2020-01-01").version == "0.1.0"


@pytest.mark.parametrize("library", sorted(releases()))
def test_releases_stand_in_the_order_of_their_days_and_say_where_they_come_from(library):
    rows = releases()[library]
    assert [row.date for row in rows] == sorted(row.date for row in rows)
    assert all(row.source for row in rows)
    assert len({row.version for row in rows}) == len(rows)


def test_a_model_type_dates_its_first_model_and_a_vocabulary_its_generation():
    assert model_published("llama", 32000) == "2023-02-24"
    assert model_published("llama", 128256) == "2024-04-18"
    assert model_published("a type of tomorrow", 32000) is None


@pytest.mark.parametrize(
    ("vocabulary", "transformers"),
    # torch 2.0 is of 2023-03-15. LLaMA was public by then; Llama 3 came on 2024-04-18, the day of
    # transformers 4.40.0.
    [(32000, "4.20.0"), (128256, "4.40.0")],
)
def test_libraries_nobody_states_are_not_older_than_the_model(vocabulary, transformers):
    recipe = stated("transformers", "lora", software={"torch": "2.0"})
    found = resolve_recipe(recipe, model(vocabulary=vocabulary), A100, world_size=1)
    assert found.software["transformers"] == transformers


def test_a_stated_date_stands_whatever_the_model_is():
    recipe = stated("transformers", "lora", software={"torch": "2.0"}, date="2023-12-01")
    found = resolve_recipe(recipe, model(), A100, world_size=1)
    assert found.software["transformers"] == "4.35.0"
