"""What people call a model, and what they are told when it is not one."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneplan.catalog.bare_size import parse_bare_size, typical_config
from tuneplan.catalog.model_entries import bundled_entries
from tuneplan.catalog.models import ModelCatalog, load_models
from tuneplan.errors import InvalidRequest, UnknownName, UnreadableFile

CATALOG = load_models()


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("Qwen/Qwen2.5-7B", "Qwen2.5-7B"),
        ("qwen2.5-7b", "Qwen2.5-7B"),
        ("Llama 3.2 3B", "Llama-3.2-3B"),
        ("tiny-llama", "TinyLlama-1.1B"),
        ("meta-llama/Meta-Llama-3.1-8B", "Llama-3.1-8B"),
        ("mistral-7b", "Mistral-7B-v0.1"),
        ("santacoder", "gpt_bigcode-santacoder"),
        ("MPT-125m", "MPT-125m-learned"),
    ],
)
def test_a_model_is_found_under_its_name_hub_id_or_alias(written: str, name: str) -> None:
    resolved = CATALOG.resolve(written)
    assert resolved.architecture.name == name
    assert not [note for note in resolved.notes if note.code == "model_variant"]


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", "Qwen2.5-7B"),
        ("unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit", "Llama-3.1-8B"),
        ("TheBloke/Mistral-7B-v0.1-GPTQ", "Mistral-7B-v0.1"),
        ("meta-llama/Llama-2-13b-chat-hf", "Llama-2-13b"),
        ("Qwen/Qwen3-4B-Instruct-2507", "Qwen3-4B"),
        ("baichuan2-13b-chat", "Baichuan2-13B"),
        ("qwen1half-7b-chat", "Qwen1.5-7B"),
        ("google/gemma-2-9b-it", "gemma-2-9b"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "Mistral-7B-v0.3"),
    ],
)
def test_a_variant_takes_the_dimensions_of_its_base_and_says_so(written: str, name: str) -> None:
    resolved = CATALOG.resolve(written)
    assert resolved.architecture.name == name
    assert [one.value for one in resolved.assumptions if one.name == "model"] == [name]


def test_a_quantised_variant_is_said_to_be_one() -> None:
    codes = [note.code for note in CATALOG.resolve("TheBloke/Mistral-7B-v0.1-GPTQ").notes]
    assert "model_published_quantized" in codes


def test_uncertain_dimensions_are_said_to_be_so() -> None:
    codes = [note.code for note in CATALOG.resolve("ibm/PowerLM-3b").notes]
    assert "model_dimensions_uncertain" in codes


def test_an_unknown_name_comes_with_near_ones() -> None:
    with pytest.raises(UnknownName) as raised:
        CATALOG.resolve("Qwen2.5-8B")
    assert "Qwen2.5-7B" in raised.value.near


def test_a_name_like_no_other_has_no_near_ones() -> None:
    with pytest.raises(UnknownName) as raised:
        CATALOG.resolve("zzzzzzzzzz")
    assert raised.value.near == ()


@pytest.mark.parametrize("blank", ["", "   "])
def test_a_blank_model_is_a_mistake(blank: str) -> None:
    with pytest.raises(InvalidRequest):
        CATALOG.resolve(blank)


def test_the_order_of_entries_changes_no_answer() -> None:
    entries = list(bundled_entries())
    Random(7).shuffle(entries)  # noqa: S311  a test's shuffle
    shuffled = ModelCatalog(entries)
    assert shuffled.names() == CATALOG.names()
    for entry in entries:
        for name in entry.all_names:
            assert shuffled.entry(name) == CATALOG.entry(name)


def test_no_two_entries_share_a_name() -> None:
    names = [entry.name.casefold() for entry in bundled_entries()]
    assert len(names) == len(set(names))


def test_no_alias_is_the_name_of_another_entry() -> None:
    owners = {entry.name.casefold(): entry.name for entry in bundled_entries()}
    for entry in bundled_entries():
        for alias in entry.aliases:
            assert owners.get(alias.casefold(), entry.name) == entry.name, alias


@pytest.mark.parametrize("size", ["7B", "13B", "0.5B", "70B", "350M", "1.5 B", "405b"])
def test_a_bare_size_is_met_within_one_percent_and_all_of_it_assumed(size: str) -> None:
    stated = parse_bare_size(size)
    assert stated is not None
    resolved = CATALOG.resolve(size)
    assert resolved.architecture.total_parameters == pytest.approx(stated, rel=0.01)
    assert {"hidden_size", "num_hidden_layers", "vocab_size"} <= set(
        resolved.architecture.assumed_fields
    )
    assert {f"model.{name}" for name in resolved.architecture.assumed_fields} <= {
        assumption.name for assumption in resolved.assumptions
    }


@given(st.floats(min_value=50e6, max_value=2e12))
def test_every_size_in_range_has_a_typical_shape_of_about_that_size(size: float) -> None:
    config = typical_config(size)
    hidden = config["hidden_size"]
    heads = config["num_attention_heads"]
    attention = 2 * hidden**2 + 2 * hidden * config["num_key_value_heads"] * config["head_dim"]
    layer = attention + 3 * hidden * config["intermediate_size"]
    embeddings = config["vocab_size"] * hidden * (1 if config["tie_word_embeddings"] else 2)
    assert embeddings + config["num_hidden_layers"] * layer == pytest.approx(size, rel=0.02)
    assert heads * config["head_dim"] == hidden
    assert heads % config["num_key_value_heads"] == 0


@pytest.mark.parametrize("size", ["0B", "1M", "9000B"])
def test_a_size_that_no_model_has_is_a_mistake(size: str) -> None:
    with pytest.raises(InvalidRequest):
        CATALOG.resolve(size)


def test_without_leave_the_network_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(UnknownName):
        CATALOG.resolve("someone/some-model")


def test_with_leave_but_offline_the_answer_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody listens on the discard port
    with pytest.raises(UnreadableFile, match=r"config\.json"):
        CATALOG.resolve("someone/some-model", allow_network=True)


MY_MODELS = """\
models:
  - name: Qwen2.5-7B
    source: our own pruning run
    config:
      model_type: qwen2
      hidden_size: 3584
      num_hidden_layers: 24
      num_attention_heads: 28
      num_key_value_heads: 4
      intermediate_size: 18944
      vocab_size: 152064
      max_position_embeddings: 32768
      tie_word_embeddings: false
"""


def test_a_users_model_wins_over_the_bundled_one_and_the_answer_says_so(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(MY_MODELS)
    catalog = load_models([file])
    resolved = catalog.resolve("qwen2.5-7b")
    assert resolved.architecture.num_layers == 24
    assert [note.code for note in resolved.notes] == ["model_overridden"]
    assert catalog.overridden("Qwen2.5-7B") == CATALOG.entry("Qwen2.5-7B")
    assert catalog.resolve("Qwen2.5-7B-Instruct").architecture.num_layers == 24


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        ("models: [", 1),
        ("models:\n  - name: x\n   bad: y\n", 3),
        ("accelerators: []", None),
    ],
)
def test_a_broken_model_file_is_located(tmp_path: Path, text: str, line: int | None) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(UnreadableFile) as raised:
        load_models([file])
    assert raised.value.path == str(file)
    assert raised.value.line == line


def test_all_mistakes_of_a_model_file_come_at_once_with_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "models:\n"
        "  - {name: a, confg: {model_type: llama}}\n"
        "  - {config: {model_type: llama}, total_parameters: -3}\n"
        "  - 7\n"
    )
    with pytest.raises(InvalidRequest) as raised:
        load_models([file])
    found = {(mistake.path, mistake.line) for mistake in raised.value.mistakes}
    assert found == {
        ("models[0].confg", 2),
        ("models[0].config", 2),
        ("models[1].name", 3),
        ("models[1].total_parameters", 3),
        ("models[2]", 4),
    }
    assert raised.value.mistakes[0].near[0] == "config"


def test_the_example_of_the_manual_is_a_valid_model_file(tmp_path: Path) -> None:
    manual = Path(__file__).parents[2] / "docs" / "reference" / "models.md"
    example = manual.read_text().split("```yaml\n", 1)[1].split("```", 1)[0]
    file = tmp_path / "example.yaml"
    file.write_text(example)
    catalog = load_models([file])
    entry = catalog.entry("our-7b")
    assert catalog.architecture("our-7b").total_parameters == entry.total_parameters
