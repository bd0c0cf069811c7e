"""Memory in a document: what the peak is made of, and what stays free."""

from __future__ import annotations

from collections.abc import Iterator

from tuneplan.contract.answers import EstimateBody, Fit
from tuneplan.language import say, translate
from tuneplan.report.amounts import decimals_of, gib_cell, gib_range_cell, percent_cell, words
from tuneplan.report.labels import memory_term_label, phase_label
from tuneplan.report.plan_charts import NARROW, WIDE, MemoryBar, memory_bar, memory_stack
from tuneplan.report.verdict import percent_text, verdict_text
from tuneplan.report.view import Block, Cell, Chart, Column, Fact, Facts, Section, Table
from tuneplan.units import GIB


def memory_section(answer: EstimateBody, *, chart: bool = True) -> Section:
    """Terms of the peak with their sum; the other figures; the phases."""
    blocks: list[Block] = []
    if chart:
        blocks.append(_chart(answer))
    blocks += [_terms(answer), *_fit(answer), _phases(answer)]
    return Section(name="memory", title=say("Memory"), blocks=tuple(blocks))


def memory_chart(bars: list[MemoryBar]) -> Chart:
    """Stacked bars against what the cards hold."""
    return Chart(
        name="memory_stack",
        title=say("Memory of a card against what it holds"),
        caption="; ".join(bar.sentence() for bar in bars),
        specification=memory_stack(bars, width=WIDE),
        narrow=memory_stack(bars, width=NARROW),
    )


def _chart(answer: EstimateBody) -> Chart:
    name = answer.hardware.accelerator if answer.hardware else say("one card")
    return memory_chart([memory_bar(name, answer)])


def _terms(answer: EstimateBody) -> Table:
    memory = answer.memory
    peak = float(memory.peak_bytes.likely)
    decimals = 1 + decimals_of(peak / GIB)  # so that the addends give the sum as they are read
    rows: list[tuple[Cell, ...]] = []
    keys: list[str] = []
    for place, term in enumerate(memory.terms, start=1):
        key = f"memory.term_{place}"
        keys.append(f"{{{key}}}")
        rows.append(
            (
                words(memory_term_label(term.kind)),
                gib_cell(term.size_bytes, key=key, decimals=decimals),
                _share(term.size_bytes, peak, f"{{{key}}} / {{memory.allocated}} * 100"),
                words(translate(term.formula)),
            )
        )
    rows.append(
        (
            words(say("allocated at the peak")),
            gib_cell(peak, key="memory.allocated", formula=" + ".join(keys), decimals=decimals),
            _share(peak, peak, "{memory.allocated} / {memory.allocated} * 100"),
            words(""),
        )
    )
    phase = phase_label(memory.peak_phase)
    return Table(
        title=say("Memory of a card at its peak, in the {phase}", phase=phase),
        columns=(
            Column(name=say("What")),
            Column(name=say("Size"), amounts=1, unit="GiB"),
            Column(name=say("of the peak"), amounts=1, unit="%"),
            Column(name=say("Formula")),
        ),
        rows=tuple(rows),
    )


def _share(part: float, whole: float, formula: str) -> Cell:
    return percent_cell(part / whole if whole else None, formula=formula if whole else "")


def _fit(answer: EstimateBody) -> Iterator[Facts]:
    memory, fit = answer.memory, answer.fit
    rows = [
        Fact(
            name=say("Allocated by PyTorch"),
            cell=gib_range_cell(memory.peak_bytes, "memory.peak"),
        ),
        Fact(
            name=say("Reserved by its allocator"), cell=gib_range_cell(memory.peak_reserved_bytes)
        ),
        Fact(name=say("As nvidia-smi shows it"), cell=gib_range_cell(memory.peak_device_bytes)),
        Fact(name=say("Main memory per card"), cell=gib_range_cell(memory.host_bytes)),
    ]
    if isinstance(fit, Fit):
        rows += _room(answer, fit)
    yield Facts(title=say("Against the card"), rows=tuple(rows))


def _room(answer: EstimateBody, fit: Fit) -> Iterator[Fact]:
    """The sum that decides: needed and free, out of its parts."""
    memory = answer.memory
    need = fit.capacity_bytes - fit.headroom_bytes
    reserved, device = memory.peak_reserved_bytes, memory.peak_device_bytes
    formula, decimals = "", 1 + decimals_of(need / GIB)
    if reserved is not None and device is not None:
        context = device.likely - reserved.likely
        lost = need - memory.peak_bytes.likely - context
        if lost >= 0:
            yield Fact(
                name=say("Unusable fragments"),
                cell=gib_cell(lost, key="memory.fragments", decimals=decimals),
            )
            yield Fact(
                name=say("CUDA context"),
                cell=gib_cell(context, key="memory.context", decimals=decimals),
            )
            formula = "{memory.allocated} + {memory.fragments} + {memory.context}"
    yield Fact(
        name=say("Needed to fit"),
        cell=gib_cell(need, key="memory.needed", formula=formula, decimals=decimals),
    )
    yield Fact(
        name=say("Capacity"),
        cell=gib_cell(fit.capacity_bytes, key="memory.capacity", decimals=decimals),
    )
    yield Fact(
        name=say("Stays free"),
        cell=gib_cell(
            fit.headroom_bytes,
            key="memory.free",
            formula="{memory.capacity} - {memory.needed}",
            decimals=decimals,
        ),
    )
    yield Fact(
        name=say("Verdict"),
        cell=words(
            say(
                "{verdict} (probability {chance})",
                verdict=verdict_text(fit.verdict),
                chance=percent_text(fit.probability_fits),
            )
        ),
    )


def _phases(answer: EstimateBody) -> Table:
    return Table(
        title=say("Peak by phase"),
        columns=(
            Column(name=say("Phase")),
            Column(name=say("Allocated"), amounts=1, unit="GiB"),
        ),
        rows=tuple(
            (words(phase_label(one.phase)), gib_cell(one.size_bytes))
            for one in answer.memory.by_phase
        ),
        folded=True,
    )
