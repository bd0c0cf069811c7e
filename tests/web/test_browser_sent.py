"""Data, Project, OOM, Check, Runs and Accuracy in a real browser."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page

from web.browsing import LANGUAGES, NARROW, WIDE, Journeys, browser, drawn, served
from web.test_browser_axe import AXE, serious

pytestmark = pytest.mark.browser

EXAMPLES = Path(__file__).parents[2] / "examples"
JOB = "model=Qwen/Qwen2.5-0.5B&method=lora&gpu=NVIDIA+L4&count=1&samples=1000&mean_tokens=500"
CONFIGURATION = """\
model_name_or_path: Qwen/Qwen2.5-0.5B
stage: sft
do_train: true
finetuning_type: lora
dataset: our_chats
template: qwen
cutoff_len: 2048
per_device_train_batch_size: 2
bf16: true
warmup_stepz: 3
"""
LOG = """\
{'loss': 1.9, 'grad_norm': 0.5, 'epoch': 0.01}
  File "torch/nn/functional.py", line 3053, in cross_entropy
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.32 GiB. GPU 0 has a total \
capacity of 22.03 GiB of which 1.10 GiB is free. Of the allocated memory 19.80 GiB is allocated \
by PyTorch, and 512.00 MiB is reserved by PyTorch but unallocated.
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("allowed")


@pytest.fixture(scope="module")
def journey(folder: Path) -> Iterator[Journeys]:
    store = str(folder / "store.sqlite3")
    with served(folder, EXAMPLES, store=store) as origin, browser() as started:
        yield Journeys(browser=started, origin=origin)


def sent(page: Page, text: str) -> None:
    """Paste a text and ask."""
    page.locator("#text").fill(text)
    page.locator("#form button.ask").click()
    page.locator("#summary").wait_for()
    drawn(page)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_a_pasted_configuration_is_checked(
    journey: Journeys, language: str, theme: str, width: int
) -> None:
    with journey("/check?gpu=NVIDIA+L4", language=language, theme=theme, width=width) as page:
        sent(page, CONFIGURATION)
        assert page.locator("html").get_attribute("lang") == language
        assert page.locator("#keys table").count() >= 2
        assert "warmup_stepz" in page.locator("#keys").inner_text()
        assert page.locator("#summary p.fits").is_visible()
        assert "config=" in page.url  # the address is the state
        page.reload()
        drawn(page)
        assert page.locator("#text").input_value().replace("\r", "") == CONFIGURATION


@pytest.mark.parametrize("view", ["check", "oom"])
def test_the_button_stands_under_the_box_and_in_sight(journey: Journeys, view: str) -> None:
    with journey(f"/{view}") as page:
        button = page.locator("#form button.ask")
        assert button.count() == 1
        box, text = button.bounding_box(), page.locator("#text").bounding_box()
        assert box is not None
        assert text is not None
        assert text["y"] + text["height"] < box["y"] < 900 - box["height"]


def test_a_text_that_is_pasted_into_the_empty_box_is_sent(journey: Journeys) -> None:
    with journey("/check?gpu=NVIDIA+L4") as page:
        page.locator("#text").focus()
        page.evaluate(
            """text => {
              const box = document.querySelector("#text");
              box.dispatchEvent(new ClipboardEvent("paste", { bubbles: true }));
              box.value = text;
            }""",
            CONFIGURATION,
        )
        page.locator("#summary").wait_for()
        drawn(page)
        assert "warmup_stepz" in page.locator("#keys").inner_text()


def test_a_file_that_is_chosen_is_sent(journey: Journeys) -> None:
    chosen = {"name": "a.yaml", "mimeType": "text/yaml", "buffer": CONFIGURATION.encode()}
    with journey("/check?gpu=NVIDIA+L4") as page:
        page.locator("#file").set_input_files([chosen])
        page.locator("#summary").wait_for()
        drawn(page)
        assert "warmup_stepz" in page.locator("#keys").inner_text()


def test_a_checked_job_opens_in_fit(journey: Journeys) -> None:
    with journey("/check?gpu=NVIDIA+L4") as page:
        sent(page, CONFIGURATION)
        page.locator("#on a").first.click()
        page.wait_for_url("**/fit?**")
        drawn(page)
        assert page.locator("#model").input_value() == "Qwen/Qwen2.5-0.5B"
        assert page.locator("#max_length").input_value() == "2048"


def test_the_log_of_a_failed_run_is_told(journey: Journeys) -> None:
    with journey("/oom") as page:
        sent(page, LOG)
        assert page.locator("figure[data-chart=card] .drawing svg").is_visible()
        assert page.locator("#fixes tbody tr").count() > 3
        assert "2.32 GiB" in page.locator("#summary").inner_text()


def test_a_log_with_its_job_is_told_on_a_telephone(journey: Journeys) -> None:
    address = f"/oom?{JOB}&max_length=4096"
    with journey(address, language="zh-CN", theme="dark", width=NARROW) as page:
        sent(page, LOG)
        assert page.locator("figure[data-chart=savings] .drawing svg").is_visible()


def test_a_dropped_file_is_profiled_and_the_line_is_dragged(journey: Journeys) -> None:
    with journey("/data?tokenizer=approximate") as page:
        page.locator("#dropped").set_input_files(EXAMPLES / "support_chat.jsonl")
        page.locator(".drop button").click()
        page.locator("#lengths").wait_for()
        drawn(page)
        assert "profile=" in page.url
        chart = page.locator("figure[data-chart=lengths] .drawing svg")
        box = chart.bounding_box()
        assert box is not None
        x, y = box["x"], box["y"] + box["height"] / 3
        page.mouse.move(x + box["width"] * 0.8, y)
        page.mouse.down()
        for share in (0.75, 0.7, 0.6):
            page.mouse.move(x + box["width"] * share, y)
        page.mouse.up()
        page.wait_for_function("() => document.querySelector('#max_length').value !== ''")
        length = int(page.locator("#max_length").input_value())
        told = page.locator("#lengths p.loud")
        page.wait_for_function(
            "(text) => document.querySelector('#lengths p.loud').textContent.includes(text)",
            arg=f"max_length {length:,} ",
        )
        assert 128 < length < 512, told.inner_text()
        slider = page.locator("input[data-slides=max_length]")
        slider.focus()
        slider.press("End")
        page.wait_for_function(
            "() => document.querySelector('#lengths p.loud').textContent.includes('131,072')"
        )
        drawn(page)


def test_the_budget_follows_its_sliders(journey: Journeys) -> None:
    with journey(f"/project?{JOB}&experiments=5&start=2027-01-04&duration=4+week") as page:
        for name in ("distribution", "tornado", "weeks"):
            assert page.locator(f"figure[data-chart={name}] .drawing svg").is_visible(), name
        before = page.locator("#summary .tiles").inner_text()
        slider = page.locator("input[data-slides=experiments]")
        slider.focus()
        slider.press("End")
        page.wait_for_function(
            "(text) => document.querySelector('#summary .tiles').innerText !== text", arg=before
        )
        drawn(page)
        assert "experiments=100" in page.url


def test_a_live_run_is_followed_though_its_folder_vanishes(journey: Journeys, folder: Path) -> None:
    def line(step: int) -> str:
        return f"Step {step} | loss:{step}.5 lr:0.1 tokens_per_second_per_gpu:900\n"

    run, away = folder / "run", folder / "away"
    run.mkdir()
    (run / "log_1.txt").write_text("".join(map(line, range(1, 11))))
    with journey("/runs?run=run") as page:
        page.clock.install()
        live = page.locator("#live")
        assert "10" in live.locator(".tiles").inner_text()
        run.rename(away)
        page.clock.run_for(6_000)
        live.locator("p.tight").wait_for()
        away.rename(run)
        with (run / "log_1.txt").open("a") as file:
            file.write(line(11) + line(12))
        page.clock.run_for(6_000)
        page.wait_for_function(
            "() => document.querySelector('#live .tiles').innerText.includes('12')"
        )
        assert live.locator("p.tight").count() == 0


def test_our_evidence_is_drawn(journey: Journeys) -> None:
    with journey("/accuracy") as page:
        assert page.locator("figure[data-chart] .drawing svg").count() == 5
        assert page.locator("#targets tbody tr").count() > 20


def test_a_job_is_taken_along(journey: Journeys) -> None:
    with journey(f"/fit?{JOB}") as page:
        for name in ("job.yaml", "report.md"):
            address = page.locator(f"#take a[href*='{name}']").get_attribute("href")
            taken = page.request.get(f"{journey.origin}{address}")
            assert taken.status == 200
            named = taken.headers["content-disposition"]
            assert named.startswith('attachment; filename="tuneplan-')
        page.locator("#take-to").select_option("axolotl")
        query = page.locator("#take form").evaluate(
            "form => new URLSearchParams(new FormData(form)).toString()"
        )
        taken = page.request.get(f"{journey.origin}/export/framework.zip?{query}")
        assert taken.status == 200
        assert "tuneplan-Qwen2.5-0.5B-lora-axolotl.zip" in taken.headers["content-disposition"]


def test_without_scripts_texts_and_files_are_sent_all_the_same(journey: Journeys) -> None:
    with journey("/check?gpu=NVIDIA+L4", scripts=False) as page:
        page.locator("#text").fill(CONFIGURATION)
        page.locator("#form button.ask").click()
        page.locator("#keys").wait_for()
    with journey("/data?tokenizer=approximate", scripts=False) as page:
        page.locator("#dropped").set_input_files(EXAMPLES / "support_chat.jsonl")
        page.locator(".drop button").click()
        page.locator("#lengths").wait_for()
        page.locator("#max_length").fill("300")
        page.locator("#form button.ask").click()
        assert "max_length 300 cuts" in page.locator("#lengths").inner_text()


def test_answers_to_what_was_sent_can_be_read_by_all(journey: Journeys) -> None:
    with journey("/check?gpu=NVIDIA+L4") as page:
        sent(page, CONFIGURATION)
        page.evaluate(AXE)
        assert serious(page) == []
    with journey("/oom") as page:
        sent(page, LOG)
        page.evaluate(AXE)
        assert serious(page) == []
    with journey(f"/data?data={EXAMPLES}/support_chat.jsonl&tokenizer=approximate") as page:
        page.evaluate(AXE)
        assert serious(page) == []
