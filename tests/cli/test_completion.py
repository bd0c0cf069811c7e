"""What a tab completes, in bash itself and by what the scripts of the other shells ask."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tuneplan.catalog.accelerators import load_accelerators
from tuneplan.cli.completing import accelerator_words
from tuneplan.cli.main import run
from tuneplan.contract.job import keys

SOURCE = Path(__file__).parents[2] / "src"
LINES = [
    ("tuneplan est", ["estimate"]),
    ("tuneplan estimate --acc", ["--accelerator"]),
    ("tuneplan estimate --lang zh-T", ["zh-TW"]),
    ("tuneplan estimate --model qwen3-235", ["Qwen3-235B-A22B"]),
    ("tuneplan plan --accelerator h100-s", ["H100-SXM"]),
    ("tuneplan check --gpu rtx-509", ["RTX-5090"]),
    ("tuneplan plan --method gptq", ["gptq-lora"]),
    ("tuneplan plan --framework axo", ["axolotl"]),
    ("tuneplan plan --set training.gradient_a", ["training.gradient_accumulation_steps="]),
    ("tuneplan check x.yml --set limits.budg", ["limits.budget="]),
    ("tuneplan data prof", ["profile"]),
    ("tuneplan catalog accelerators rtx-309", ["RTX-3090", "RTX-3090-Ti"]),
    ("tuneplan completion z", ["zsh"]),
]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A machine whose command ``tuneplan`` is this source tree."""
    command = tmp_path / "tuneplan"
    python = shlex.quote(sys.executable)
    command.write_text(f'#!/bin/sh\nexec {python} -m tuneplan "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(SOURCE)}


def asked(line: str, shell: str, environment: dict[str, str]) -> list[str]:
    """What the command answers to a shell that asks it."""
    words = line.split(" ")
    position = words[-1] if shell == "fish" else str(len(words) - 1)
    asking = {"_TUNEPLAN_COMPLETE": f"{shell}_complete", "COMP_WORDS": line, "COMP_CWORD": position}
    answered = subprocess.run(
        ["tuneplan"], env={**environment, **asking}, capture_output=True, text=True, check=True
    )
    return answered.stdout.splitlines()


def test_bash_completes_commands_options_names_and_keys(environment: dict[str, str]) -> None:
    script = ['compopt() { :; }; eval "$(tuneplan completion bash)"']
    for line, _ in LINES:
        words = " ".join(map(shlex.quote, line.split(" ")))
        script += [
            f"COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMPREPLY=()",
            '_tuneplan_completion tuneplan; (IFS="|"; echo "${COMPREPLY[*]}")',
        ]
    answered = subprocess.run(
        ["bash", "--norc", "-c", "\n".join(script)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert answered.stderr == ""
    completed = [line.split("|") for line in answered.stdout.splitlines()]
    assert completed == [expected for _, expected in LINES]


@pytest.mark.parametrize(("shell", "names"), [("zsh", slice(1, None, 3)), ("fish", slice(None))])
def test_the_scripts_of_other_shells_are_answered_alike(
    shell: str, names: slice, environment: dict[str, str]
) -> None:
    for line, expected in LINES[4:6]:
        told = [one.removeprefix("plain,") for one in asked(line, shell, environment)]
        assert told[names] == expected


@pytest.mark.parametrize(
    "line", ["tuneplan plan jo", "tuneplan check tr", "tuneplan plan --data d"]
)
def test_where_a_file_belongs_the_shell_completes_its_own(
    line: str, environment: dict[str, str]
) -> None:
    assert asked(line, "bash", environment) == [f"file,{line.split(' ')[-1]}"]


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_no_blank_follows_a_key_that_goes_on(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert {"bash": "compopt -o nospace", "zsh": "compadd -U -S '' -V"}[shell] in script


def test_every_accelerator_is_offered_under_a_name_that_finds_it_again() -> None:
    catalog = load_accelerators()
    words = accelerator_words()
    assert len(words) == len(set(words)) == len(catalog.entries)
    for entry, word in zip(catalog.entries, words, strict=True):
        assert " " not in word
        found = catalog.resolve(word)
        assert found.accelerator.name == entry.accelerator.name


def test_keys_are_those_of_the_job_file(environment: dict[str, str]) -> None:
    told = asked("tuneplan plan --set training.", "bash", environment)
    assert told == [f"plain,{key}=" for key in keys() if key.startswith("training.")]
