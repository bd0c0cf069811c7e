"""The profile of a data set as a document: lengths, what a ``max_length`` does, what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tuneplan.contract.measured import (
    Alternative,
    AtMaxLength,
    DataProfileAnswer,
    LengthPrice,
    Recommended,
)
from tuneplan.language import say
from tuneplan.report.amounts import (
    count_cell,
    hours_range_cell,
    money_range_cell,
    number_cell,
    percent_cell,
    words,
)
from tuneplan.report.data_charts import length_histogram, length_tradeoff, packing_bars
from tuneplan.report.labels import source_text
from tuneplan.report.plan_charts import NARROW, WIDE
from tuneplan.report.profile_lengths import WAYS
from tuneplan.report.sections.ledger import assumption_table
from tuneplan.report.tables import UNKNOWN
from tuneplan.report.verdict import verdict_text
from tuneplan.report.view import (
    Block,
    Cell,
    Chart,
    Column,
    Document,
    Fact,
    Facts,
    Paragraph,
    Points,
    Section,
    Table,
)
from tuneplan.units import format_count, format_gb

_SHOWN_BAD_ROWS: Final = 20


def data_document(answer: DataProfileAnswer, *, max_length: int | None = None) -> Document:
    """The profile to hand on."""
    return Document(
        kind="data",
        title=say("Data: {files}", files=", ".join(one.path for one in answer.files)),
        subtitle=say(
            "{count} {count:~sample/samples}, counted by {tokenizer}",
            count=answer.num_samples,
            tokenizer=answer.tokenizer.name if answer.tokenizer else UNKNOWN,
        ),
        as_of=answer.as_of,
        language=answer.language,
        tuneplan_version=answer.tuneplan_version,
        sections=data_sections(answer, max_length=max_length),
    )


def data_sections(
    answer: DataProfileAnswer, *, max_length: int | None = None
) -> tuple[Section, ...]:
    """Lengths first, with the line at ``max_length`` (None: at the recommended one)."""
    at = _looked_at(answer, max_length)
    sections = [
        Section(name="lengths", title=say("Lengths"), blocks=tuple(_lengths(answer, at))),
        Section(
            name="what_it_does",
            title=say("What max_length does"),
            blocks=tuple(_max_length(answer)),
        ),
        Section(name="ways_of_packing", title=say("Packing"), blocks=tuple(_packing(answer, at))),
        Section(name="files", title=say("Files"), blocks=tuple(_files(answer))),
        Section(name="remarks", title=say("Remarks"), blocks=tuple(_remarks(answer))),
    ]
    return tuple(section for section in sections if section.blocks)


def _looked_at(answer: DataProfileAnswer, max_length: int | None) -> AtMaxLength | None:
    wanted = max_length or (answer.recommended.max_length if answer.recommended else None)
    return next((one for one in answer.at_max_length if one.max_length == wanted), None)


def _lengths(answer: DataProfileAnswer, at: AtMaxLength | None) -> Iterator[Block]:
    if at is not None:
        yield Paragraph(text=_sentence(at), tone="loud")
    if answer.recommended is not None:
        yield Paragraph(
            text=say(
                "Recommended max_length: {length} ({reason}).",
                length=format_count(answer.recommended.max_length),
                reason=answer.recommended.reason,
            )
        )
    yield Facts(title=say("At a glance"), rows=tuple(_tiles(answer, at)), tiles=True)
    if answer.length is not None:
        yield _histogram(answer, at)
        yield _quantiles(answer)


def _sentence(at: AtMaxLength) -> str:
    return say(
        "max_length {length} cuts {samples:.1%} of the sequences and {tokens:.1%} of the tokens.",
        length=format_count(at.max_length),
        samples=at.truncated_samples_fraction,
        tokens=at.truncated_tokens_fraction,
    )


def _tiles(answer: DataProfileAnswer, at: AtMaxLength | None) -> Iterator[Fact]:
    yield Fact(name=say("Samples"), cell=count_cell(answer.num_samples))
    yield Fact(name=say("Tokens"), cell=count_cell(answer.tokens.all.likely))
    if answer.tokens.trained is not None:
        share = answer.tokens.trained.likely / max(1.0, answer.tokens.all.likely)
        yield Fact(name=say("Tokens learned"), cell=percent_cell(share))
    if answer.length is not None:
        yield Fact(name=say("Mean length"), cell=number_cell(answer.length.mean))
    if at is None:
        return
    longest = at.padding_fraction.get("longest")
    yield Fact(
        name=say("Padding, longest in a batch"),
        cell=percent_cell(longest),
        remark=say("batches of {count}", count=answer.per_device_train_batch_size or 0),
    )
    packed = at.packed_efficiency.get("best_fit_decreasing")
    yield Fact(
        name=say("Empty in packed rows"),
        cell=percent_cell(None if packed is None else 1 - packed),
        remark=say("best fit decreasing"),
    )


def _histogram(answer: DataProfileAnswer, at: AtMaxLength | None) -> Chart:
    length = at.max_length if at else None
    bins = answer.length.histogram if answer.length else []
    return Chart(
        name="lengths",
        title=say("Sequences by length; what max_length cuts lies right of the line"),
        caption="; ".join(
            say(
                "{low} to {high} tokens: {count}",
                low=format_count(one.low),
                high=format_count(one.high - 1),
                count=format_count(one.count),
            )
            for one in bins
        ),
        specification=length_histogram(answer, width=WIDE, max_length=length),
        narrow=length_histogram(answer, width=NARROW, max_length=length),
    )


def _quantiles(answer: DataProfileAnswer) -> Table:
    lengths = answer.length
    named: list[tuple[str, float | None]] = []
    if lengths is not None:
        named = [
            (say("min"), lengths.min),
            ("P5", lengths.p5),
            ("P25", lengths.p25),
            ("P50", lengths.p50),
            ("P75", lengths.p75),
            ("P90", lengths.p90),
            ("P95", lengths.p95),
            ("P99", lengths.p99),
            (say("max"), lengths.max),
        ]
    return Table(
        title=say("Length in tokens, before truncation"),
        columns=tuple(Column(name=name, amounts=1) for name, _ in named),
        rows=(tuple(count_cell(value) for _, value in named),),
    )


def _max_length(answer: DataProfileAnswer) -> Iterator[Block]:
    if len(answer.at_max_length) > 1:
        yield Chart(
            name="tradeoff",
            title=say("What each max_length cuts off, and what it leaves empty"),
            caption="; ".join(_sentence(one).rstrip(".") for one in answer.at_max_length),
            specification=length_tradeoff(answer, width=WIDE),
            narrow=length_tradeoff(answer, width=NARROW),
        )
    yield Table(
        title=say(
            "Truncation, packing, padding (batches of {count} samples)",
            count=answer.per_device_train_batch_size or 0,
        ),
        columns=(
            Column(name="max_length", amounts=1),
            Column(name=say("cut samples"), amounts=1, unit="%"),
            Column(name=say("cut tokens"), amounts=1, unit="%"),
            Column(name=say("packed, best fit: filled"), amounts=1, unit="%"),
            Column(name=say("padding, longest in a batch"), amounts=1, unit="%"),
            Column(name=say("padding, like lengths grouped"), amounts=1, unit="%"),
            Column(name=say("padding, all to max_length"), amounts=1, unit="%"),
            Column(name=say("largest batch"), amounts=1),
        ),
        rows=tuple(_at(one) for one in answer.at_max_length),
        note=say("Padding: share of the computed positions that hold no token."),
    )
    yield _costs(answer)


def _at(one: AtMaxLength) -> tuple[Cell, ...]:
    return (
        count_cell(one.max_length),
        percent_cell(one.truncated_samples_fraction),
        percent_cell(one.truncated_tokens_fraction),
        percent_cell(one.packed_efficiency.get("best_fit_decreasing")),
        percent_cell(one.padding_fraction.get("longest")),
        percent_cell(one.padding_fraction.get("grouped")),
        percent_cell(one.padding_fraction.get("max_length")),
        count_cell(one.worst_batch_tokens),
    )


def _costs(answer: DataProfileAnswer) -> Table:
    """Computed tokens of each length and, with a job, hours and money."""
    priced = any(one.price and not one.price.problem for one in answer.at_max_length)
    columns = [
        Column(name="max_length", amounts=1),
        Column(name=say("computed, padded"), amounts=1),
        Column(name=say("computed, packed"), amounts=1),
    ]
    if priced:
        columns += [
            Column(name=say("Whole run"), amounts=3, unit="h"),
            Column(name=say("Cost"), amounts=3),
            Column(name=say("Fits")),
        ]
    return Table(
        title=say("Tokens computed in one epoch, and what they cost"),
        columns=tuple(columns),
        rows=tuple(tuple(_cost(one, priced=priced)) for one in answer.at_max_length),
        note="" if priced else say("Hours and money stand here once the job names an accelerator."),
    )


def _cost(one: AtMaxLength | Recommended | Alternative, *, priced: bool) -> Iterator[Cell]:
    yield count_cell(one.max_length)
    yield count_cell(one.computed_tokens.get("longest"))
    yield count_cell(one.computed_tokens.get("packed"))
    if priced:
        yield from _price(one.price)


def _price(price: LengthPrice | None) -> Iterator[Cell]:
    if price is None or price.problem:
        yield words(price.problem or UNKNOWN if price else UNKNOWN)
        yield words(UNKNOWN)
        yield words(UNKNOWN)
        return
    yield hours_range_cell(price.total_s)
    yield money_range_cell(price.cost)
    yield words(verdict_text(price.fit) if price.fit else UNKNOWN)


def _packing(answer: DataProfileAnswer, at: AtMaxLength | None) -> Iterator[Block]:
    if at is None or not at.packed_efficiency:
        return
    shown = [way for way, share in at.packed_efficiency.items() if share is not None]
    yield Chart(
        name="packing",
        title=say(
            "How packed rows fill at max_length {length}", length=format_count(at.max_length)
        ),
        caption="; ".join(
            say(
                "{way}: {filled:.1%} filled",
                way=WAYS.get(way, way),
                filled=at.packed_efficiency[way] or 0.0,
            )
            for way in shown
        ),
        specification=packing_bars(answer, max_length=at.max_length, width=WIDE),
        narrow=packing_bars(answer, max_length=at.max_length, width=NARROW),
    )
    yield Table(
        title=say("Ways of packing"),
        columns=(
            Column(name=say("packing")),
            Column(name=say("filled"), amounts=1, unit="%"),
            Column(name=say("tokens lost"), amounts=1, unit="%"),
        ),
        rows=tuple(
            (
                words(WAYS.get(way, way)),
                percent_cell(at.packed_efficiency[way]),
                percent_cell(at.packed_lost_tokens_fraction.get(way, 0.0)),
            )
            for way in shown
        ),
        folded=True,
    )


def _files(answer: DataProfileAnswer) -> Iterator[Block]:
    yield Table(
        title=say("What was read"),
        columns=(
            Column(name=say("File")),
            Column(name=say("Format")),
            Column(name=say("Layout")),
            Column(name=say("Size")),
            Column(name=say("rows"), amounts=1),
            Column(name=say("bad rows"), amounts=1),
        ),
        rows=tuple(
            (
                words(one.path),
                words(one.format),
                words(one.shape or UNKNOWN),
                words(format_gb(one.bytes)),
                count_cell(one.rows_ok),
                count_cell(one.rows_bad),
            )
            for one in answer.files
        ),
    )
    yield Facts(title=say("The set"), rows=tuple(_set(answer)))
    if answer.bad_rows:
        yield _bad_rows(answer)


def _set(answer: DataProfileAnswer) -> Iterator[Fact]:
    if answer.tokenizer is not None:
        yield Fact(
            name=say("Tokenizer"),
            cell=words(answer.tokenizer.name),
            remark=source_text(answer.tokenizer.source or ""),
        )
    duplicates = answer.duplicates
    yield Fact(
        name=say("Duplicates"),
        cell=words(say("unknown")) if duplicates is None else count_cell(duplicates),
    )
    yield Fact(name=say("With nothing to learn"), cell=count_cell(answer.empty))
    if answer.pictures is not None:
        yield Fact(
            name=say("Pictures"),
            cell=count_cell(answer.pictures.count),
            remark=say("{unsized} of unknown size", unsized=format_count(answer.pictures.unsized)),
        )
    storage = answer.storage
    yield Fact(name=say("On disk, as files"), cell=words(format_gb(storage.raw_bytes)))
    if storage.tokenised_bytes is not None:
        yield Fact(name=say("On disk, as tokens"), cell=words(format_gb(storage.tokenised_bytes)))


def _bad_rows(answer: DataProfileAnswer) -> Table:
    count = sum(answer.bad_rows_by_code.values()) or len(answer.bad_rows)
    return Table(
        title=say("Bad rows: {count}, left out of every figure", count=format_count(count)),
        columns=(Column(name=say("Where")), Column(name=say("What"))),
        rows=tuple(
            (
                words(f"{one.path}:{one.line}" if one.line is not None else one.path),
                words(one.message),
            )
            for one in answer.bad_rows[:_SHOWN_BAD_ROWS]
        ),
    )


def _remarks(answer: DataProfileAnswer) -> Iterator[Block]:
    told: Sequence[str] = [one.message for one in answer.warnings]
    if answer.sampled:
        told = [
            say("Only a part was read: figures are for the whole set, with intervals."),
            *told,
        ]
    if told:
        yield Points(title=say("Warnings"), items=tuple(told))
    if answer.assumptions:
        yield assumption_table(answer.assumptions)
