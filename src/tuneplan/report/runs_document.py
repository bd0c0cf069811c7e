"""Measured runs as documents: what the store keeps, a live run, an estimate before and after."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tuneplan.contract.learned import StoreAnswer, StoredMeasurement
from tuneplan.contract.parts import Notice
from tuneplan.contract.piloted import PilotMoved
from tuneplan.contract.watched import WatchAnswer, WatchDevice
from tuneplan.language import say
from tuneplan.report.amounts import (
    count_cell,
    duration_range_cell,
    gib_cell,
    money_range_cell,
    number_cell,
    percent_cell,
    words,
)
from tuneplan.report.learned import ID_LENGTH, figure_label, range_text
from tuneplan.report.plan_charts import NARROW, WIDE
from tuneplan.report.runs_charts import progress_bar
from tuneplan.report.tables import UNKNOWN
from tuneplan.report.view import (
    Block,
    Cell,
    Chart,
    Column,
    Fact,
    Facts,
    Paragraph,
    Points,
    Section,
    Table,
)


def store_section(answer: StoreAnswer) -> Section:
    """Every measurement, the newest first."""
    title = say("Measurements")
    if not answer.measurements:
        text = say(
            "{store} holds no measurement: `tuneplan pilot JOB` makes one, `tuneplan learn LOGS` "
            "reads them out of logs.",
            store=answer.store,
        )
        return Section(name="store", title=title, blocks=(Paragraph(text=text),))
    table = Table(
        title=say("Kept in {store}", store=answer.store),
        columns=(
            Column(name=say("id")),
            Column(name=say("measured")),
            Column(name=say("from")),
            Column(name=say("job")),
            Column(name=say("card")),
            Column(name=say("step"), amounts=1, unit="s"),
            Column(name=say("memory"), amounts=1, unit="GiB"),
        ),
        rows=tuple(_row(one) for one in reversed(answer.measurements)),
    )
    return Section(name="store", title=title, blocks=(table,))


def _row(one: StoredMeasurement) -> tuple[Cell, ...]:
    count = f"{one.num_accelerators} x " if (one.num_accelerators or 1) > 1 else ""
    return (
        words(one.measurement_id[:ID_LENGTH]),
        words((one.measured_at or one.kept_at)[:10]),
        words(f"{one.origin}, {one.status}" if one.status != "ok" else one.origin),
        words(", ".join(word for word in (one.model, one.method) if word) or UNKNOWN),
        words(f"{count}{one.accelerator}" if one.accelerator else UNKNOWN),
        number_cell(one.step_s),
        gib_cell(one.peak_bytes),
    )


def calibration_section(moved: Sequence[PilotMoved], *, num_measurements: int) -> Section:
    """An estimate before and after what was measured here."""
    title = say("Before and after your own measurements")
    if not moved:
        text = (
            say("None of the measurements is near enough to this job to move its estimate.")
            if num_measurements
            else say("With measurements of your own, the estimate of this job stands here twice.")
        )
        return Section(name="calibration", title=title, blocks=(Paragraph(text=text),))
    table = Table(
        title=say("What they move: low - high, and likely"),
        columns=(
            Column(name=say("figure")),
            Column(name=say("before")),
            Column(name=say("after")),
            Column(name=say("likely, after / before"), amounts=1),
            Column(name=say("why")),
        ),
        rows=tuple(_moved(one) for one in moved),
    )
    return Section(name="calibration", title=title, blocks=(table,))


def _moved(one: PilotMoved) -> tuple[Cell, ...]:
    before = one.before.likely
    return (
        words(figure_label(one.figure)),
        words(range_text(one.figure, one.before)),
        words(range_text(one.figure, one.after)),
        number_cell(one.after.likely / before if before else None),
        words(one.because),
    )


def watch_section(answer: WatchAnswer, *, name: str) -> Section:
    """One look at a live run."""
    blocks: list[Block] = []
    if answer.missing:
        text = say("{name} is not there now; waiting for it.", name=name)
        blocks.append(Paragraph(text=text, tone="tight"))
    elif answer.finished:
        blocks.append(Paragraph(text=say("The run has finished."), tone="fits"))
    if answer.alerts:
        told = tuple(f"{one.since[11:16]} {one.message}" for one in answer.alerts)
        blocks.append(Points(title=say("Alerts"), items=told))
    if answer.step is not None and answer.total_steps:
        blocks.append(_progress(answer))
    blocks.append(Facts(title=say("Now"), rows=tuple(_tiles(answer)), tiles=True))
    if answer.devices:
        blocks.append(_devices(answer.devices))
    seen = say("Looked at {time} (UTC).", time=answer.time[11:19])
    blocks.append(Paragraph(text=seen, tone="quiet"))
    title = say("Watching {name}", name=name)
    return Section(name="live", title=title, blocks=tuple(blocks))


def _progress(answer: WatchAnswer) -> Chart:
    step, total = answer.step or 0, answer.total_steps or 1
    return Chart(
        name="progress",
        title=say("Step {step} of {total}", step=step, total=total),
        caption=say("{share:.0%} of the steps are done", share=min(1.0, step / total)),
        specification=progress_bar(step, total, width=WIDE),
        narrow=progress_bar(step, total, width=NARROW),
    )


def _tiles(answer: WatchAnswer) -> Iterator[Fact]:
    if answer.finished:
        yield Fact(name=say("Done in"), cell=words(say("finished")))
    elif answer.eta_s is None:
        yield Fact(name=say("Done in"), cell=words(say("not known yet")))
    else:
        yield Fact(name=say("Done in"), cell=duration_range_cell(answer.eta_s))
    if answer.cost is not None:
        yield Fact(name=say("Cost in all"), cell=money_range_cell(answer.cost))
    yield Fact(
        name=say("Step"),
        cell=words(say("none yet")) if answer.step is None else count_cell(answer.step),
        remark=say("of {total}", total=answer.total_steps) if answer.total_steps else "",
    )
    for name, value in ((say("Loss"), answer.loss), (say("Evaluation loss"), answer.eval_loss)):
        if value is not None:
            yield Fact(name=name, cell=number_cell(value, digits=4))
    if answer.step_s is not None:
        yield Fact(name=say("Time of a step"), cell=number_cell(answer.step_s, unit="s"))
    if answer.tokens_per_s is not None:
        yield Fact(name=say("Tokens a second"), cell=count_cell(answer.tokens_per_s))
    if answer.memory_bytes is not None:
        yield Fact(name=say("Memory"), cell=gib_cell(answer.memory_bytes))


def _devices(devices: Sequence[WatchDevice]) -> Table:
    return Table(
        title=say("Cards of this machine"),
        columns=(
            Column(name=say("Card")),
            Column(name=say("Used"), amounts=1, unit="GiB"),
            Column(name=say("Has"), amounts=1, unit="GiB"),
            Column(name=say("Busy"), amounts=1, unit="%"),
            Column(name=say("Temperature"), amounts=1, unit="°C"),
            Column(name=say("Power"), amounts=1, unit="W"),
        ),
        rows=tuple(
            (
                words(f"{one.index}: {one.name}"),
                gib_cell(one.used_bytes),
                gib_cell(one.total_bytes),
                percent_cell(one.utilization_fraction),
                number_cell(one.temperature_c),
                number_cell(one.power_w),
            )
            for one in devices
        ),
    )


def warnings_section(warnings: Sequence[Notice]) -> tuple[Section, ...]:
    """Measurements that could not be used, and why; nothing where there are none."""
    if not warnings:
        return ()
    told = tuple(one.message for one in warnings)
    points = Points(title=say("Warnings"), items=told)
    return (Section(name="remarks", title=say("Remarks"), blocks=(points,)),)
