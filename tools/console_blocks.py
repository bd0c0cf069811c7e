"""The output of ``$ tuneplan ...`` in the pages, made by running the command.

A fenced block of the language ``console`` holds commands, each on a line that starts with ``$``,
and under each what it prints. ``| head -N``, ``| tail -N`` and ``| sed -n A,Bp`` are understood;
then lines of three dots stand for the rest. A command that fails is an error unless ``$ echo $?``
follows it. Commands run in the repository's root, 80 columns wide, on a fixed day.
"""

from __future__ import annotations

import io
import os
import re
import shlex
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

from tuneplan.cli.main import run

BLOCK = re.compile(r"(?m)^```console\n(.*?)^```$", re.DOTALL)
SAY_STATUS = "$ echo $?"
CUT = re.compile(r" \| (?:(head|tail) -(\d+)|sed -n (\d+),(\d+)p)$")
# The day of every shown answer: 2026-11-30.
SETTING = {
    "COLUMNS": "80",
    "NO_COLOR": "1",
    "SOURCE_DATE_EPOCH": "1796040000",
    "LC_ALL": "C.UTF-8",
    "XDG_CACHE_HOME": "/nonexistent",  # traces that were made before are not shown
}
# What differs from run to run, and what stands for it.
VOLATILE = (
    (re.compile(r"(Counted at +)[\d,]+( tokens/s)"), r"\g<1>1,000,000\2"),
    (re.compile(r"\b(in|took) [\d.,]+ (ms|s)\b"), r"\1 1.0 s"),
)


def pages_with_blocks(root: Path) -> Iterator[Path]:
    """README in each language and the pages of ``docs`` that show commands."""
    for path in (*sorted(root.glob("README*.md")), *sorted((root / "docs").rglob("*.md"))):
        if BLOCK.search(path.read_text(encoding="utf-8")):
            yield path


def with_answers(text: str, root: Path) -> str:
    """A page with every block answered anew; what only differs in times stays as it was."""
    return BLOCK.sub(lambda found: _answered(found, root), text)


def _answered(found: re.Match[str], root: Path) -> str:
    commands = [line for line in found[1].splitlines() if line.startswith("$ ")]
    parts, status = [], 0
    for line in commands:
        if line == SAY_STATUS:
            parts.append(f"{line}\n{status}")
            continue
        printed, status = _run(line.removeprefix("$ "), root)
        parts.append(f"{line}\n{printed}")
        if status and SAY_STATUS not in commands:
            msg = f"{line} failed, and the page does not expect it:\n{printed}"
            raise ValueError(msg)
    made = "```console\n" + "\n".join(parts) + "\n```"
    return found[0] if _steady(made) == _steady(found[0]) else made


def _run(line: str, root: Path) -> tuple[str, int]:
    """What a command prints, and its exit status."""
    cut = CUT.search(line)
    words = shlex.split(line[: cut.start()] if cut else line)
    if words[0] != "tuneplan":
        msg = f"only tuneplan runs in a console block, not {words[0]}"
        raise ValueError(msg)
    printed = io.StringIO()
    with (
        chdir(root),
        patch.dict(os.environ, SETTING),
        redirect_stdout(printed),
        redirect_stderr(printed),
    ):
        status = run(words[1:])
    lines = [each.rstrip() for each in printed.getvalue().strip("\n").splitlines()]
    return "\n".join(_part(lines, cut) if cut else lines), status


def _part(lines: list[str], cut: re.Match[str]) -> list[str]:
    if cut[1] == "head":
        return [*lines[: int(cut[2])], "..."]
    if cut[1] == "tail":
        return ["...", *lines[-int(cut[2]) :]]
    return ["...", *lines[int(cut[3]) - 1 : int(cut[4])], "..."]


def _steady(text: str) -> str:
    for pattern, stand_in in VOLATILE:
        text = pattern.sub(stand_in, text)
    return text
