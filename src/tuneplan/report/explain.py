"""The answer of ``explain`` as text: a tree of formulas with their inputs."""

from __future__ import annotations

from collections.abc import Iterator

from tuneplan.contract.answers import ExplainAnswer, ExplainedInput, ExplainedNode
from tuneplan.language import say
from tuneplan.report.page import Page
from tuneplan.report.tables import heading, paragraph, render, value_text


def explain_text(answer: ExplainAnswer, page: Page) -> str:
    """The figure, and under it what it is computed from, indented."""
    value = f"{value_text(answer.value)} {answer.unit or ''}".rstrip()
    head = say("{figure} = {value}", figure=answer.figure, value=value)
    lines = [line for node in answer.tree for line in _node(node, 0)]
    return render([heading(head), paragraph("\n".join(lines))], page)


def _node(node: ExplainedNode, depth: int) -> Iterator[str]:
    indent = "  " * depth
    value = (
        f" = {value_text(node.value)} {node.unit or ''}".rstrip() if node.value is not None else ""
    )
    basis = f" [{node.basis}]" if node.basis else ""
    yield f"{indent}{node.name}{value}{basis}"
    yield f"{indent}  = {node.formula}"
    if node.source:
        yield f"{indent}  " + say("source: {source}", source=node.source)
    for one in node.inputs:
        yield f"{indent}    {_input(one)}"
    for child in node.children:
        yield from _node(child, depth + 1)


def _input(one: ExplainedInput) -> str:
    value = f"{value_text(one.value)} {one.unit or ''}".rstrip()
    text = f"{one.name} = {value} [{one.basis}]"
    if one.source:
        text += f", {one.source}"
    return text + (", " + say("set with {how}", how=one.how_to_set) if one.how_to_set else "")
