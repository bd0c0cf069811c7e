"""What commands and pages show in a language whose every sentence is in wide letters.

A sentence that reaches people around the catalogues is still in ASCII there.
"""

from __future__ import annotations

import gettext
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from languages.pseudo import PseudoLanguage, english
from tuneplan import language
from tuneplan.cli.commands import COMMANDS
from tuneplan.cli.main import run
from tuneplan.report import tensor_labels
from tuneplan.web.views import views
from web.asking import JOB, client

ROOT = Path(__file__).parents[2]
COMMAND_LINES = (
    "estimate --model 7B --accelerator A100 --set data.num_samples=9 --set data.mean_tokens=40",
    "estimate --model Qwen2.5-7B --method full --accelerator H100 --count 8",
    "plan examples/support_chat.yaml --accelerator H100 --accelerator 'RTX 4090' --count 1",
    "check examples/axolotl_chat.yml --gpu H100:1 --data examples/support_chat.jsonl",
    "import examples/axolotl_chat.yml",
    "oom examples/out_of_memory.yaml --log examples/out_of_memory.log",
    "budget examples/chat_project.yaml",
    "rules --model Qwen2.5-7B --method lora --accelerator A100",
    "catalog accelerators",
    "catalog prices",
    "data profile examples/support_chat.jsonl --tokenizer approximate --max-length 512",
    "learn examples/small_run",
    "estimate --model Nope --set trainin.max_length=3 --set limits.budget=5",
    "estimate --model Qwen2.5-7B --set training.max_length=abc --set training.packing=7",
    "estimate --nope",
    "estimate a b",
    "plan --count",
    "estimat",
    "data profile",
    "data profile x --max-length 0",
)
# Names of programs, of algorithms and of shares of a run, quoted lines of a log, usage of click.
NO_SENTENCES = re.compile(
    r"best fit|first fit|of which|is free|total capacity|tuneplan [a-z -]+( \[|:)|tuneplan .*--"
    # Citations.
    r"|\w\.(py|cpp|yaml|md)\b|transformers (models|integrations)|Uptime Institute|\[\d+\] |"
    r"under accelerators|median of|CUDA out of memory"
)


@pytest.fixture(autouse=True)
def wide_letters(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    pseudo = PseudoLanguage()
    monkeypatch.setitem(language._translations, "zh-TW", pseudo)
    # click asks the standard library, by a domain of the process.
    monkeypatch.setattr(
        gettext,
        "dgettext",
        lambda domain, text: pseudo.gettext(text) if domain == "tuneplan" else text,
    )
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "160")
    tensor_labels._label.cache_clear()  # of a language that is another one here
    yield
    tensor_labels._label.cache_clear()


def bypasses(text: str) -> list[str]:
    return [line for line in english(text) if not NO_SENTENCES.search(line)]


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_a_command_says_nothing_around_the_catalogues(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["--lang", "zh-TW", *shlex.split(line)])
    said = capsys.readouterr()
    assert re.search("[\uff21-\uff5a]", said.out + said.err)
    assert bypasses(said.out) == []
    assert bypasses(said.err) == []


@pytest.mark.parametrize("name", [*COMMANDS, "data profile", "prices break-even", "store list"])
def test_the_help_of_a_command_goes_through_the_catalogues(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["--lang", "zh-TW", *name.split(), "--help"])
    assert bypasses(capsys.readouterr().out) == []


@pytest.mark.parametrize("view", [view.name for view in views()])
def test_a_page_says_nothing_around_the_catalogues(view: str) -> None:
    page = client().get(f"/{view}?{JOB}&lang=zh-TW")
    assert page.status_code == 200
    text = re.sub(r"<(script|style).*?</\1>", "", page.text, flags=re.DOTALL)
    spoken = re.findall(r'(?:aria-label|title|alt|placeholder|summary)="([^"]*)"', text)
    read = re.sub(r"""<(?:[^<>"']|"[^"]*"|'[^']*')*>""", "\n", text)
    assert bypasses("\n".join([read, *spoken])) == []


def test_a_sentence_around_the_catalogues_is_seen() -> None:
    assert english("the weights alone take 5 GiB") == ["the weights alone take 5 GiB"]
    assert english(language.say("hours of one run")) == ["hours of one run"]
    with language.speaking("zh-TW"):
        assert english(language.say("hours of one run")) == []
