"""The answer of ``explain``: how one figure of the estimate comes about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final

from tuneplan.contract.answers import (
    ExplainAnswer,
    ExplainedFigure,
    ExplainedNode,
    header,
)
from tuneplan.errors import InputError, UnknownName
from tuneplan.language import Message, message, sentence
from tuneplan.planner.estimate import JobEstimate
from tuneplan.planner.sources import Sources
from tuneplan.report.figures.disks import DISK_FIGURES
from tuneplan.report.figures.memory import MEMORY_FIGURES, term_node
from tuneplan.report.figures.other import OTHER_FIGURES
from tuneplan.report.figures.time import TIME_FIGURES, time_term_node
from tuneplan.report.figures.tree import Context, Explain, unit_of
from tuneplan.report.labels import whole_name_of_term

FIGURES: Final[Mapping[str, Explain]] = {
    **MEMORY_FIGURES,
    **TIME_FIGURES,
    **OTHER_FIGURES,
    **DISK_FIGURES,
}
_TERMS: Final = ("memory.terms.", "time.terms.")


def explain_answer(
    estimate: JobEstimate, figure: str, *, as_of: str, sources: Sources | None = None
) -> ExplainAnswer:
    """Explain one figure of an estimate.

    Args:
        estimate: The estimate whose figure it is.
        figure: One of ``FIGURES``, or ``memory.terms.KIND`` or ``time.terms.KIND``, or
            the ``KIND`` alone.
        as_of: The day of the answer, ``2026-11-30``.
        sources: What it was made with: offers, and the rates they were compared with.

    Raises:
        UnknownName: No such figure; the nearest ones are in ``near``.
        InputError: The figure is unknown for this job; says what is missing.
    """
    figure = check_figure(figure)
    context = Context(estimate, sources)
    node = _node(context, figure)
    return ExplainAnswer(
        **header("explain", as_of=as_of),
        figure=figure,
        value=node.value,
        unit=node.unit,
        tree=[node],
        figures=list(_known_figures(context)),
        assumptions=context.body.assumptions,
    )


def _known_figures(context: Context) -> Iterator[ExplainedFigure]:
    """Figures of the answer that have a value, in the order of the answer."""
    for name in FIGURES:
        value = context.value(name)
        if value is not None and not isinstance(value, list):
            yield ExplainedFigure(name=name, value=value, unit=unit_of(name))


def check_figure(figure: str) -> str:
    """The figure's whole name; refuses what is no figure before anything is computed.

    Raises:
        UnknownName: With the nearest figures.
    """
    found = whole_name(figure)
    if found is None:
        raise _unknown(figure, FIGURES)
    return found


def whole_name(figure: str) -> str | None:
    """The name under which a figure can be explained; None for what is no figure."""
    if figure in FIGURES or figure.startswith(_TERMS):
        return figure
    return whole_name_of_term(figure)


def _node(context: Context, figure: str) -> ExplainedNode:
    if figure in FIGURES:
        node = FIGURES[figure](context)
        if node is None:
            raise InputError(_not_computed(context, figure))
        return node
    known: dict[str, ExplainedNode] = {}
    if figure.startswith("memory."):
        for term in context.body.memory.terms:
            name = f"memory.terms.{term.kind}"
            known[name] = term_node(context, term, name=name)
    elif context.body.time is not None:
        for time_term in context.body.time.terms:
            name = f"time.terms.{time_term.kind}"
            known[name] = time_term_node(time_term, name=name)
    if figure not in known:
        raise _unknown(figure, {**known, **FIGURES})
    return known[figure]


def _unknown(figure: str, valid: Mapping[str, Any]) -> UnknownName:
    by_leaf: dict[str, list[str]] = {}
    for name in valid:
        by_leaf.setdefault(name.rpartition(".")[2], []).append(name)
    leaf = figure.rpartition(".")[2]
    near = get_close_matches(figure, list(valid), n=3, cutoff=0.6)
    near += [name for close in get_close_matches(leaf, by_leaf, n=3) for name in by_leaf[close]]
    near += [name for name in valid if leaf and leaf in name.rpartition(".")[2].split("_")]
    return UnknownName(
        message(
            "unknown_figure",
            "no figure of the estimate is called {figure!r}; there are: {figures}",
            figure=figure,
            figures=", ".join(valid),
        ),
        name=figure,
        near=tuple(dict.fromkeys(near))[:5],
    )


def _not_computed(context: Context, figure: str) -> Message:
    """What is missing for a figure that this job's estimate leaves open."""
    resolved = context.estimate.resolved
    if resolved.cluster is None and not figure.startswith("data."):
        template = sentence("{figure} is unknown here: name an accelerator with --accelerator")
        return message("figure_needs_accelerator", template, figure=figure)
    if resolved.dataset.statistics is None and context.estimate.time is not None:
        template = sentence(
            "{figure} is unknown here: say what the data is, with --data FILE or data.num_samples "
            "and data.mean_tokens"
        )
        return message("figure_needs_data", template, figure=figure)
    template = sentence("{figure} is unknown here; the warnings of `tuneplan estimate` say why")
    return message("figure_not_computed", template, figure=figure)
