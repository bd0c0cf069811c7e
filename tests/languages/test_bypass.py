"""No text reaches people around the catalogues: what is shown is a marked literal."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from languages.reading import SOURCE, tool

FILES = sorted(SOURCE.rglob("*.py"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}
SHOWING = [path for path in FILES if path.relative_to(SOURCE).parts[0] in ("cli", "report", "web")]
TEMPLATES = sorted(SOURCE.rglob("templates/*.html"))
# Functions that hand a template on: the marked literal stands where they are called, or where the
# table that they read is written.
HANDED_ON = {
    "language.py",
    "cli/commands.py",  # the help of a command, which is extracted where it is written
    "cli/click_texts.py",
    "runs/skips.py",
    "planner/resolving.py",
    "diagnosis/oom_cause.py",
    "tokens/saving.py",  # a message that was saved with its template
    "tokens/shard_manifest.py",
    "tracing/child.py",  # what another process has refused
    "report/catalog.py",
    "report/explain.py",
    "report/labels.py",
    "report/sections/ledger.py",
    "report/sections/memory.py",
    "report/sections/time.py",
    "report/tensor_labels.py",
    "report/sections/why.py",
    "report/validation.py",
    "report/validation_html.py",
}
WORDS = re.compile(r"[A-Za-z]{2,} [a-z]{2,}|^[A-Z][a-z]{2,}$")
SHOWN_FIRST = {
    "heading", "paragraph", "words", "echo", "UsageError", "BadParameter", "ClickException",
    "add_column",
}  # fmt: skip
SHOWN_BY_NAME = {
    "Paragraph": ("text",), "Points": ("title", "items"), "Facts": ("title",),
    "Fact": ("name", "remark"), "Column": ("name",), "Table": ("title", "note"),
    "Chart": ("title", "caption"), "Section": ("title",), "Document": ("title", "subtitle"),
    "Cell": ("text",), "Link": ("text",), "Node": ("title",), "table": ("title",),
    "facts": ("title",), "View": ("title", "purpose"), "Field": ("label", "hint"),
}  # fmt: skip
SPOKEN = {"say": 0, "message": 1, "Message": 1, "translate": 0, "skip": 1}


def calls(path: Path) -> Iterator[ast.Call]:
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.Call):
            yield node


def name_of(call: ast.Call) -> str:
    return str(tool("catalogue_extraction").name_of(call))


def bare_words(shown: ast.expr) -> Iterator[str]:
    """Literals with words in an expression, outside of every call."""
    if isinstance(shown, ast.Constant) and isinstance(shown.value, str):
        if WORDS.search(shown.value):
            yield shown.value
    elif not isinstance(shown, ast.Call):
        for child in ast.iter_child_nodes(shown):
            if isinstance(child, ast.expr):
                yield from bare_words(child)


def shown_by(call: ast.Call) -> Iterator[ast.expr]:
    name = name_of(call)
    if name in SHOWN_FIRST and call.args:
        yield call.args[0]
    for word in call.keywords:
        if word.arg in SHOWN_BY_NAME.get(name, ()):
            yield word.value


def test_nothing_is_shown_that_does_not_go_through_the_catalogues() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{call.lineno}: {text}"
        for path in SHOWING
        for call in calls(path)
        for shown in shown_by(call)
        for text in bare_words(shown)
    ]
    assert found == []


def test_a_template_is_a_literal_or_a_marked_one() -> None:
    extraction = tool("catalogue_extraction")
    found = []
    for path in FILES:
        if str(path.relative_to(SOURCE)) in HANDED_ON:
            continue
        tree = TREES[path]
        marked = set(marked_names(tree))
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            position = SPOKEN.get(name_of(call))
            if position is None or not isinstance(call.func, ast.Name):
                continue  # a method of the same name
            template = extraction.template_of(call, position)
            if isinstance(template, ast.Name) and template.id in marked:
                continue
            if not list(extraction.literals(template)):
                found.append(f"{path.relative_to(SOURCE)}:{call.lineno}")
    assert found == []


def marked_names(tree: ast.Module) -> Iterator[str]:
    """Names that are given marked sentences, and nothing else that is written out."""
    given: dict[str, list[bool]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            if isinstance(target, ast.Name):
                call = node.value
                marks = isinstance(call, ast.Call) and name_of(call) == "sentence"
                given.setdefault(target.id, []).append(marks)
    yield from (name for name, marks in given.items() if any(marks))


def test_a_sentence_is_never_put_together_from_parts() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{call.lineno}"
        for path in FILES
        for call in calls(path)
        if name_of(call) in SPOKEN and isinstance(call.func, ast.Name)
        for template in [tool("catalogue_extraction").template_of(call, SPOKEN[name_of(call)])]
        if isinstance(template, ast.JoinedStr | ast.BinOp)
    ]
    assert found == []


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_page_template_has_no_words_of_its_own(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"\{\{.*?\}\}", "\0", text, flags=re.DOTALL)
    text = re.sub(r"\{%.*?%\}|\{#.*?#\}", "", text, flags=re.DOTALL)
    text = re.sub(r"<(style|script).*?</\1>", "", text, flags=re.DOTALL)
    spoken = re.findall(r'\b(?:aria-label|title|alt|placeholder)="([^"\0]*)"', text)
    tag = re.compile(r"""<(?:[^<>"']|"[^"]*"|'[^']*')*>""")
    text = re.sub(tag, "\n", text.replace("\0", ""))
    read = re.sub(r"""[\w-]+="[^"]*\"""", "", text).split("\n")  # what macros give a tag
    words = [part.strip() for part in [*spoken, *read] if re.search(r"[A-Za-z]{3,}", part)]
    names = {"tuneplan", "OpenAPI", "training.loss=chunked"}
    unknown = [
        part
        for part in words
        if not set(re.findall(r"[\w.=]+", part)) <= names and " " in part.strip(" ·")
    ]
    assert unknown == []
