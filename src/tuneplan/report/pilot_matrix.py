"""The answer of ``pilot --matrix``: made from the core's, and as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tuneplan.contract.answers import header
from tuneplan.contract.parts import range_model
from tuneplan.contract.piloted import PilotCase, PilotMatrixAnswer
from tuneplan.language import say
from tuneplan.planner.pilot_matrix import CaseDone
from tuneplan.report.learned import range_text
from tuneplan.report.page import Page
from tuneplan.report.tables import Column, heading, paragraph, points, render, table
from tuneplan.units import format_duration, format_gib

if TYPE_CHECKING:
    from rich.console import RenderableType


def matrix_answer(
    name: str, cases: Sequence[CaseDone], *, rows: str, store: str | None, as_of: str
) -> PilotMatrixAnswer:
    """The answer of ``pilot --matrix``."""
    return PilotMatrixAnswer(
        **header("pilot matrix", as_of=as_of),
        matrix=name,
        rows=rows,
        store=store,
        cases=[_case(one) for one in cases],
    )


def _case(done: CaseDone) -> PilotCase:
    name, reason = done.case.name, None if done.reason is None else str(done.reason)
    if done.pilot is None:
        return PilotCase(name=name, status="kept" if done.before else "not_run", reason=reason)
    pilot, measured = done.pilot, done.pilot.measurement
    time, peak = pilot.now.time, measured.peak
    return PilotCase(
        name=name,
        status=measured.status.value,
        stage=pilot.stage,
        reason=reason,
        steps=measured.num_steps,
        step_s=measured.step_s,
        tokens_per_s_per_accelerator=measured.tokens_per_s_per_accelerator,
        peak_bytes=peak.allocated_bytes or peak.reserved_bytes,
        predicted_peak_bytes=range_model(
            pilot.now.memory.ranges.peak_bytes
            if peak.allocated_bytes
            else pilot.now.memory.ranges.peak_reserved_bytes
        ),
        predicted_step_s=None if time is None else range_model(time.step.step_s),
        measurement_id=pilot.id,
    )


def matrix_text(answer: PilotMatrixAnswer, page: Page) -> str:
    """A line a case; what was not run, with why."""
    return render(list(_blocks(answer)), page)


def _blocks(answer: PilotMatrixAnswer) -> Iterator[RenderableType]:
    yield heading(say("Pilots: {name}", name=answer.matrix))
    yield _table(answer.cases)
    reasons: dict[str, list[str]] = {}
    for one in answer.cases:
        if one.reason is not None:
            reasons.setdefault(one.reason, []).append(one.name)
    if reasons:
        yield points(
            [
                say("{cases}: {reason}", cases=", ".join(names), reason=reason)
                for reason, names in reasons.items()
            ]
        )
    yield paragraph(say("Rows of measured runs: {path}", path=answer.rows))


def _table(cases: Sequence[PilotCase]) -> RenderableType:
    columns = [
        Column(name=say("case")),
        Column(name=say("came to")),
        Column(name=say("a step"), right=True),
        Column(name=say("predicted"), right=True),
        Column(name=say("memory"), right=True),
        Column(name=say("predicted"), right=True),
    ]
    return table(columns, [_row(one) for one in cases])


def _row(one: PilotCase) -> tuple[str, ...]:
    step, memory = one.predicted_step_s, one.predicted_peak_bytes
    return (
        one.name,
        _came_to(one),
        "–" if one.step_s is None else format_duration(one.step_s),
        "–" if step is None else range_text("step_s", step),
        "–" if one.peak_bytes is None else format_gib(one.peak_bytes),
        "–" if memory is None else range_text("peak_bytes", memory),
    )


def _came_to(one: PilotCase) -> str:
    words = {
        "ok": say("{steps} steps", steps=one.steps),
        "oom": say("out of memory"),
        "timeout": say("time up"),
        "failed": say("failed"),
        "kept": say("done before"),
        "not_run": say("not run"),
    }
    return words.get(one.status, one.status)
