"""Warnings and assumptions, as every report ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from tuneplan.contract.parts import Assumption, Notice
from tuneplan.language import say
from tuneplan.report.labels import group_label, source_text
from tuneplan.report.page import Page
from tuneplan.report.tables import Column, heading, paragraph, points, table, value_text

if TYPE_CHECKING:
    from rich.console import RenderableType

# What moves memory, time or cost most, and what a reader would want to state first.
_IMPORTANT: Final = (
    "hardware.accelerator",
    "hardware.kernels",  # kernel timings borrowed from another chip
    "hardware.accelerators_per_node",
    "parallelism.strategy",
    "method",
    "framework",
    "training.dtype",
    "training.precision",
    "training.max_length",
    "training.per_device_train_batch_size",
    "training.gradient_accumulation_steps",
    "training.packing",
    "training.gradient_checkpointing",
    "training.attn_implementation",
    "training.loss",
    "training.optim",
    "training.num_train_epochs",
    "adapter.r",
    "adapter.target_modules",
    "quantization.type",
    "data.mean_tokens",
    "data.quantiles",
    "tokenizer",
    "project.num_experiments",
    "project.data_iterations",
    "project.retry_factor",
    "project.failure_fraction",
    "project.idle_fraction",
    "project.main_time",
)
_FEW: Final = 6  # so many are all shown
_LEAD: Final = ("model.",)  # dimensions that were filled in for a bare size


def ledger(
    assumptions: Sequence[Assumption],
    warnings: Sequence[Notice],
    page: Page,
    *,
    full: bool = False,
) -> Iterator[RenderableType]:
    """Warnings, then what was assumed: the important ones, or all of them by group."""
    if warnings:
        yield heading(say("Warnings"))
        yield points([warning.message for warning in warnings], mark="!")
    if not assumptions:
        return
    if full:
        yield heading(say("Assumptions ({count})", count=len(assumptions)))
        groups: dict[str, list[Assumption]] = {}
        for assumption in assumptions:
            groups.setdefault(group_label(assumption.name), []).append(assumption)
        for name, group in groups.items():
            yield _table(group, page, title=name, full=True)
        return
    few = len(assumptions) <= _FEW
    shown = [one for one in assumptions if few or _is_important(one)]
    if shown:
        title = say("Assumed where nothing was said")
        yield _table(shown, page, title=title, full=False)
    yield paragraph(_rest(len(assumptions), len(assumptions) - len(shown)))


def _is_important(assumption: Assumption) -> bool:
    return assumption.name in _IMPORTANT or assumption.name.startswith(_LEAD)


def _rest(count: int, hidden: int) -> str:
    if not hidden:
        return say("Change one with --set KEY=VALUE; --json tells the source of each.")
    return say(
        "{hidden} of {count} assumptions are not shown: --all lists them, --json tells the source "
        "of each; --set KEY=VALUE changes one.",
        hidden=hidden,
        count=count,
    )


def _table(
    assumptions: Sequence[Assumption], page: Page, *, title: str, full: bool
) -> RenderableType:
    widest = max(len(f"{one.name} = {value_text(one.value)}") for one in assumptions)
    apart = full and page.width >= 110
    columns = [
        Column(name=say("Key and value"), width=min(widest, 42)),
        Column(name=say("Why, and from where") if full and not apart else say("Why")),
    ]
    if apart:
        columns.append(Column(name=say("Source")))
    rows = []
    for one in assumptions:
        cells = [f"{one.name} = {value_text(one.value)}", one.reason]
        if full and not apart:
            cells[1] += f"\n{source_text(one.source)}"
        rows.append([*cells, source_text(one.source)] if apart else cells)
    return table(columns, rows, title=title)
