"""Sentences for people: a word that hangs on a number, and no "(s)" anywhere."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import tuneplan
from tuneplan.language import message, say

SOURCES = sorted(Path(tuneplan.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0 plans are"), (1, "1 plan is"), (1200, "1,200 plans are")]
)
def test_a_word_follows_its_number(count: int, said: str) -> None:
    template = "{count:,} {count:~plan is/plans are}"
    assert str(message("plans", template, count=count)) == said
    assert say(template, count=count) == said


def test_other_formats_are_those_of_python() -> None:
    template = "{share:.0%} of {count} {count:~card/cards}, {name!r}"
    assert say(template, share=0.5, count=2, name="T4") == "50% of 2 cards, 'T4'"


def test_no_sentence_leaves_the_plural_to_the_reader() -> None:
    found = [
        f"{path.name}:{node.lineno}: {node.value}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and any(mark in node.value for mark in ("(s) ", "(s),", "(s).", "(es) "))
        and "{" in node.value
    ]
    assert not found
