"""The answer of ``pilot``: made from the core's, and as text."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tuneplan.contract.answers import header
from tuneplan.contract.job_document import job_document
from tuneplan.contract.parts import Range, assumption_model, range_model
from tuneplan.contract.piloted import (
    PilotAnswer,
    PilotEnvironment,
    PilotMoved,
    PilotPeak,
    PilotRank,
    PilotStable,
    PilotStep,
)
from tuneplan.language import say
from tuneplan.piloting.stability import step_range
from tuneplan.planner.estimate import JobEstimate
from tuneplan.planner.pilot import JobPilot
from tuneplan.report.estimate_answer import estimate_body, notice_models
from tuneplan.report.learned import ID_LENGTH, figure_label, figures_table, range_text
from tuneplan.report.learned_answer import figure_model
from tuneplan.report.ledger import ledger
from tuneplan.report.page import Page
from tuneplan.report.tables import Column, facts, heading, paragraph, render, table
from tuneplan.spec.measurement import MeasuredPeak
from tuneplan.units import format_duration, format_gib

if TYPE_CHECKING:
    from rich.console import RenderableType


def pilot_answer(pilot: JobPilot, *, as_of: str) -> PilotAnswer:
    """The answer of ``pilot``."""
    run, steady = pilot.run, pilot.run.steady
    environment = run.environment
    error = steady.relative_error if steady and math.isfinite(steady.relative_error) else None
    return PilotAnswer(
        **header("pilot", as_of=as_of),
        job=job_document(pilot.now.resolved.job, pilot.now.assumptions),
        status=run.status.value,
        stage=pilot.stage,
        environment=PilotEnvironment(
            accelerator=environment.accelerator,
            device=run.device,
            num_accelerators=environment.num_accelerators,
            driver=pilot.measurement.environment.driver,
            software=dict(environment.software),
        ),
        warm_up_steps=steady.warm_up_steps if steady else 0,
        steps=[
            PilotStep(
                step_s=one.step_s,
                tokens=one.tokens,
                padded_tokens=one.padded_tokens,
                loader_wait_s=one.loader_wait_s,
                cpu_s=one.cpu_s,
            )
            for one in run.steps
        ],
        stable=PilotStable(
            stable=bool(steady and steady.stable),
            step_s=_step(pilot),
            relative_error=error,
        ),
        peak=PilotPeak(**_memory(run.peak)),
        ranks=[PilotRank(**_memory(one.peak), step_s=one.step_s) for one in run.ranks],
        power_w=pilot.measurement.power_w,
        utilization_fraction=pilot.measurement.utilization_fraction,
        temperature_c=pilot.measurement.temperature_c,
        figures=[figure_model(figure) for figure in pilot.figures],
        measurement_id=pilot.id,
        before=estimate_body(pilot.now),
        after=estimate_body(pilot.after) if pilot.after else None,
        moved=list(moved_figures(pilot.now, pilot.after)),
        assumptions=[assumption_model(one) for one in pilot.assumptions],
        warnings=notice_models(pilot.notices),
    )


def _memory(peak: MeasuredPeak) -> dict[str, int | None]:
    return {
        "allocated_bytes": peak.allocated_bytes,
        "reserved_bytes": peak.reserved_bytes,
        "device_bytes": peak.device_bytes,
        "host_bytes": peak.host_bytes,
    }


def moved_figures(now: JobEstimate, then: JobEstimate | None) -> Iterator[PilotMoved]:
    """Figures of an estimate that the user's own measurements have changed."""
    if then is not None:
        yield from _moved_memory(now, then)
    before, after = now.time, then.time if then else None
    if before is None or after is None or after.correction is None:
        return
    because = say(
        "measured here: {factor} times the predicted step",
        factor=f"{after.correction.factor:.3f}",
    )
    pairs = [
        ("step_s", before.step.step_s, after.step.step_s),
        (
            "tokens_per_s_per_accelerator",
            before.tokens_per_s_per_accelerator,
            after.tokens_per_s_per_accelerator,
        ),
    ]
    if before.run is not None and after.run is not None:
        pairs += [
            ("train_s", before.run.train_s, after.run.train_s),
            ("total_s", before.run.total_s, after.run.total_s),
        ]
    for figure, old, new in pairs:
        yield PilotMoved(
            figure=figure, before=range_model(old), after=range_model(new), because=because
        )


def _moved_memory(now: JobEstimate, then: JobEstimate) -> Iterator[PilotMoved]:
    if then.memory.correction is None:
        return
    before, after = now.memory.ranges, then.memory.ranges
    for figure in ("peak_bytes", "peak_reserved_bytes", "peak_device_bytes"):
        old, new = getattr(before, figure), getattr(after, figure)
        if old != new:
            because = say(
                "measured here: {factor} times the predicted memory",
                factor=f"{new.likely / old.likely:.3f}",
            )
            yield PilotMoved(
                figure=figure, before=range_model(old), after=range_model(new), because=because
            )


def _step(pilot: JobPilot) -> Range | None:
    """Seconds of a step with as many positions as the plan's, else as the pilot's own."""
    steady = pilot.run.steady
    if steady is None or not math.isfinite(steady.relative_error):
        return None
    time = pilot.now.time
    run = time.run if time else None
    kept = pilot.run.steps[steady.warm_up_steps :]
    own = sum(step.padded_tokens or 0 for step in kept) / max(len(kept), 1)
    return range_model(step_range(steady, run.tokens_per_step if run else own))


def pilot_text(answer: PilotAnswer, page: Page) -> str:
    """What ran, how steady it was, measured beside predicted."""
    return render(list(_blocks(answer, page)), page)


def _blocks(answer: PilotAnswer, page: Page) -> Iterator[RenderableType]:
    yield heading(say("Pilot: {model}", model=str(answer.job.get("model"))))
    yield paragraph(_verdict(answer), style="" if answer.status == "ok" else "red")
    yield facts(list(_facts(answer)))
    if len(answer.ranks) > 1:
        yield _ranks_table(answer.ranks)
    if answer.figures:
        yield figures_table(answer.figures)
    if answer.moved:
        yield heading(say("What the pilot moves"))
        yield _moved_table(answer.moved)
    if answer.measurement_id is not None:
        yield paragraph(say("Kept as {id}.", id=answer.measurement_id[:ID_LENGTH]))
    yield from ledger(answer.assumptions, answer.warnings, page, full=True)


def _ranks_table(ranks: list[PilotRank]) -> RenderableType:
    columns = [
        Column(name=say("process")),
        Column(name=say("its mean step"), right=True),
        Column(name=say("allocated"), right=True),
        Column(name=say("memory of the process"), right=True),
    ]
    rows = [
        (
            str(number),
            format_duration(one.step_s) if one.step_s is not None else "–",
            *(
                format_gib(value) if value is not None else "–"
                for value in (one.allocated_bytes, one.host_bytes)
            ),
        )
        for number, one in enumerate(ranks)
    ]
    return table(columns, rows)


def _moved_table(moved: list[PilotMoved]) -> RenderableType:
    columns = [
        Column(name=say("figure")),
        Column(name=say("before"), right=True),
        Column(name=say("after"), right=True),
    ]
    rows = [
        (
            figure_label(one.figure),
            range_text(one.figure, one.before),
            range_text(one.figure, one.after),
        )
        for one in moved
    ]
    return table(columns, rows)


def _verdict(answer: PilotAnswer) -> str:
    steps = len(answer.steps)
    if answer.status == "ok":
        return say("{steps} steps were done.", steps=steps)
    if answer.status == "oom":
        return say(
            "Memory ran out in the stage {stage}, after {steps} steps.",
            stage=answer.stage or "?",
            steps=steps,
        )
    if answer.status == "timeout":
        return say("The time was up after {steps} steps.", steps=steps)
    return say("The run failed after {steps} steps.", steps=steps)


def _facts(answer: PilotAnswer) -> Iterator[tuple[str, str]]:
    environment = answer.environment
    if environment.accelerator:
        count = environment.num_accelerators or 1
        yield say("Ran on"), f"{count} x {environment.accelerator}"
    if environment.software:
        names = ("torch", "transformers", "peft", "trl")
        versions = [
            f"{one} {environment.software[one]}" for one in names if one in environment.software
        ]
        yield say("With"), ", ".join(versions)
    if answer.steps:
        total = sum(step.step_s for step in answer.steps)
        yield (
            say("Steps"),
            say(
                "{count} in {time}, the first {warm_up} as warm-up",
                count=len(answer.steps),
                time=format_duration(total),
                warm_up=answer.warm_up_steps,
            ),
        )
    if answer.stable.relative_error is not None:
        yield say("Step time known to"), f"±{answer.stable.relative_error:.1%} (80 %)"
    waited = sum(step.loader_wait_s or 0 for step in answer.steps)
    if answer.steps:
        share = waited / sum(step.step_s for step in answer.steps)
        yield say("Waiting for data"), f"{share:.1%}"
    if answer.peak.host_bytes is not None:
        yield say("Memory of the process"), format_gib(answer.peak.host_bytes)
    if answer.power_w is not None:
        yield say("Power of a card"), f"{answer.power_w:.0f} W"
    if answer.utilization_fraction is not None:
        yield say("Use of the cards"), f"{answer.utilization_fraction:.0%}"
    if answer.temperature_c is not None:
        yield say("Hottest card"), f"{answer.temperature_c:.0f} °C"
