"""The answer of ``trace`` as text: the verdict, the memory, what is alive, how it came about."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from tuneplan.contract.answers import Fit
from tuneplan.contract.parts import Moment
from tuneplan.contract.traced import Alive, Remark, TraceAnswer
from tuneplan.language import say
from tuneplan.report.labels import operation_label, phase_label, traced_term_label
from tuneplan.report.ledger import ledger
from tuneplan.report.page import Page
from tuneplan.report.tables import (
    UNKNOWN,
    Column,
    bars_table,
    bytes_range_text,
    facts,
    heading,
    number_text,
    paragraph,
    points,
    render,
    table,
)
from tuneplan.report.verdict import (
    VERDICT_STYLES,
    fit_sentence,
    percent_text,
    smallest_sentence,
    title,
    verdict_text,
)
from tuneplan.units import format_count, format_duration, format_gib

if TYPE_CHECKING:
    from rich.console import RenderableType

_MODULES_APART: Final = 110  # columns of a page on which names of modules stand whole
_FEW_ALIVE: Final = 12
_ADAPTED: Final = "base_model.model."  # PEFT's wrapper around every module
_BARS: Final = " ▁▂▃▄▅▆▇█"


def trace_text(answer: TraceAnswer, page: Page, *, full: bool = False) -> str:
    """The report of a trace; ``full`` for every card, block, remark and assumption."""
    return render(list(_blocks(answer, page, full=full)), page)


def _blocks(answer: TraceAnswer, page: Page, *, full: bool) -> Iterator[RenderableType]:
    yield heading(title(answer))
    yield from _verdict(answer)
    yield from _memory(answer, page)
    yield _curve(answer.timeline, page)
    yield _at_peak(answer.at_peak, answer.memory.peak_phase, page, full=full)
    yield _operations(answer)
    if full:
        yield heading(say("What stood in"))
        yield points(_remarks(answer.stand_ins))
    yield heading(say("Not in the trace"))
    yield points(_remarks(answer.not_modelled))
    yield facts(list(_process(answer)), title=say("How it was traced"))
    yield from ledger(answer.assumptions, answer.warnings, page, full=full)


def _verdict(answer: TraceAnswer) -> Iterator[RenderableType]:
    fit = answer.fit
    if isinstance(fit, list):
        yield paragraph(smallest_sentence(fit), style="bold")
    elif fit is not None:
        yield paragraph(fit_sentence(fit), style=f"bold {VERDICT_STYLES.get(fit.verdict, '')}")
    if answer.fit_in:
        yield _limits(answer.fit_in)
    yield paragraph(
        say(
            "From the real model code, {sequences} x {length} tokens, two steps, nothing "
            "allocated.",
            sequences=answer.sequences,
            length=answer.length,
        )
        + " "
        + _beside(answer)
    )


def _beside(answer: TraceAnswer) -> str:
    """The trace beside the formulas, or alone."""
    traced = format_gib(answer.memory.peak_bytes.likely)
    if answer.estimated_peak_bytes is None:
        return say(
            "PEFT's {method} trains {parameters} parameters; the trace says {traced} allocated.",
            method=answer.peft_type or UNKNOWN,
            parameters=format_count(answer.model.trainable_parameters),
            traced=traced,
        )
    return say(
        "The formulas say {formula} allocated, the trace {traced}.",
        formula=format_gib(answer.estimated_peak_bytes),
        traced=traced,
    )


def _limits(fits: Sequence[Fit]) -> RenderableType:
    return table(
        (
            Column(name=say("In a memory of"), right=True, keep=True),
            Column(name=say("Verdict"), keep=True),
            Column(name=say("Probability"), right=True, keep=True),
            Column(name=say("Stays free"), right=True, keep=True),
        ),
        [
            (
                format_gib(fit.capacity_bytes),
                verdict_text(fit.verdict),
                percent_text(fit.probability_fits),
                format_gib(fit.headroom_bytes),
            )
            for fit in fits
        ],
    )


def _memory(answer: TraceAnswer, page: Page) -> Iterator[RenderableType]:
    memory = answer.memory
    peak = float(memory.peak_bytes.likely)
    capacity = answer.hardware.capacity_bytes if answer.hardware else None
    yield bars_table(
        [(traced_term_label(term.kind), float(term.size_bytes)) for term in memory.terms],
        whole=float(capacity or peak),
        show=format_gib,
        page=page,
        title=say(
            "Memory of a card at its peak, in the {phase}", phase=phase_label(memory.peak_phase)
        ),
        heads=(say("What"), say("Size"), say("of the card") if capacity else say("of the peak")),
        total=(say("allocated at the peak"), peak),
    )
    reserved = memory.reserved
    yield facts(
        [
            (say("Allocated by PyTorch"), bytes_range_text(memory.peak_bytes)),
            (say("Reserved by its allocator"), bytes_range_text(memory.peak_reserved_bytes)),
            (say("from an empty cache"), format_gib(reserved.fresh_bytes)),
            (say("at most, of what the job leaves open"), _or_dash(reserved.after_history_bytes)),
            (say("with expandable_segments"), _expandable(answer)),
            (say("As nvidia-smi shows it"), bytes_range_text(memory.peak_device_bytes)),
            (
                say("Peak by phase"),
                ", ".join(
                    f"{phase_label(one.phase)} {format_gib(one.size_bytes)}"
                    for one in memory.by_phase
                ),
            ),
        ]
    )


def _expandable(answer: TraceAnswer) -> str:
    reserved = answer.memory.reserved
    text = format_gib(reserved.expandable_fresh_bytes)
    after = reserved.expandable_after_history_bytes
    if after is None:
        return text
    return text + ", " + say("at most {size}", size=format_gib(after))


def _or_dash(size: int | None) -> str:
    return UNKNOWN if size is None else format_gib(size)


def _curve(timeline: Sequence[Moment], page: Page) -> RenderableType:
    """Allocated memory over the trace: a column for each stretch, the phases below."""
    width = page.width - 2
    most = max((one.allocated_bytes for one in timeline), default=0)
    last = timeline[-1].t if timeline else 0
    heights, phases = [0] * width, [""] * width
    for one in timeline:
        at = min(one.t * width // (last + 1), width - 1)
        heights[at] = max(heights[at], one.allocated_bytes)
        phases[at] = phases[at] or one.phase
    for at in range(1, width):  # a stretch without a point goes on as it was
        heights[at] = heights[at] or heights[at - 1]
        phases[at] = phases[at] or phases[at - 1]
    bars = "".join(_BARS[round(8 * height / most)] if most else " " for height in heights)
    return table(
        (Column(name=say("Allocated, from loading to the end of the second step"), keep=True),),
        [(bars,), (_names(phases),)],
    )


def _names(phases: Sequence[str]) -> str:
    """Where phases begin, with as much of each name as there is room for."""
    line = ""
    for at, phase in enumerate(phases):
        if at < len(line) or (at and phase == phases[at - 1]):
            continue
        stop = next((n for n in range(at + 1, len(phases)) if phases[n] != phase), len(phases))
        room = stop - at - 1
        name = phase_label(phase)
        if len(name) > room and " " in name[: room + 1]:
            name = name[: room + 1].rsplit(" ", 1)[0]
        if room >= min(len(name), 4):
            line = line.ljust(at) + name[:room]
    return line


def _at_peak(alive: Sequence[Alive], phase: str, page: Page, *, full: bool) -> RenderableType:
    apart = page.width >= _MODULES_APART
    shown = alive if full else alive[:_FEW_ALIVE]
    rows = [
        (
            format_gib(one.size_bytes),
            f"{one.count:,}",
            traced_term_label(one.kind),
            *_module(one, apart=apart),
        )
        for one in shown
    ]
    name = say("Alive at the peak, in the {phase}", phase=phase_label(phase))
    if len(shown) < len(alive):
        name += " " + say(
            "(the {shown} largest of {count} kinds of block; --all lists them)",
            shown=len(shown),
            count=len(alive),
        )
    return table(
        (
            Column(name=say("Size"), right=True, keep=True),
            Column(name=say("Blocks"), right=True, keep=True),
            Column(name=say("What"), width=None if apart else 20),
            *(
                (Column(name=say("Module")), Column(name=say("Each")))
                if apart
                else (Column(name=say("Module, and each block")),)
            ),
        ),
        rows,
        title=name,
    )


def _module(alive: Alive, *, apart: bool) -> tuple[str, ...]:
    """Where a block belongs and what one is: two cells, or the lines of one on a narrow page."""
    module = alive.module.removeprefix(_ADAPTED) or UNKNOWN
    each = f"{alive.dtype} {' x '.join(map(str, alive.shape))}".strip()
    return (module, each) if apart else (f"{module}\n{each}".strip(),)


def _operations(answer: TraceAnswer) -> RenderableType:
    rows = []
    for one in answer.operations:
        fields = one.model_dump()
        rows.append(
            (
                operation_label(fields["class"]),
                f"{fields['count']:,}",
                _scaled(fields["flops"], 1e12),
                _scaled(fields["bytes_moved"], 1e9),
            )
        )
    return table(
        (
            Column(name=say("Operations of both steps")),
            Column(name=say("Calls"), right=True, keep=True),
            Column(name=say("TFLOP"), right=True, keep=True),
            Column(name=say("GB moved"), right=True, keep=True),
        ),
        rows,
    )


def _scaled(value: float, unit: float) -> str:
    return number_text(value / unit) if value else UNKNOWN


def _remarks(remarks: Sequence[Remark]) -> list[str]:
    return [one.reason if one.count is None else f"{one.reason} ({one.count:,})" for one in remarks]


def _process(answer: TraceAnswer) -> Iterator[tuple[str, str]]:
    process = answer.process
    yield (
        say("Libraries"),
        ", ".join(f"{name} {version}" for name, version in process.versions.items()),
    )
    if process.from_cache:
        yield say("Time"), say("none: this trace was made before (--no-cache traces again)")
    else:
        yield (
            say("Time"),
            say(
                "{trace} of tracing after {imports} of importing libraries",
                trace=format_duration(process.trace_s),
                imports=format_duration(process.import_s),
            ),
        )
    yield say("Main memory of the process"), format_gib(process.host_peak_bytes)
