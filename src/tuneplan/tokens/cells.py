"""Cells of a large data set: drawn, counted, and what follows for all of it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Final

import numpy as np

from tuneplan.frozen import dataclass
from tuneplan.language import message
from tuneplan.spec.answer import Estimate, Notice
from tuneplan.tokens.counting import RowCounter, settled
from tuneplan.tokens.profile import DataProfile
from tuneplan.tokens.reading import (
    Part,
    lines_before,
    parts_of,
    read_cell,
    read_rows,
    whole,
)
from tuneplan.tokens.rows import BadRow
from tuneplan.tokens.sampling import (
    CELL_BYTES,
    CONFIDENCE,
    FEWEST_CELLS,
    Drawn,
    Figure,
    Sampling,
    drawn_cells,
    figures,
    scaled_lengths,
    stratum_edges,
)
from tuneplan.tokens.totals import MAX_LISTED_BAD_ROWS, Totals
from tuneplan.tokens.work import DataSet, Unit
from tuneplan.units import format_gb

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Files whose cells are alike: ranges of bytes, row groups, whole files.
_KINDS: Final = ("lines", "groups", "files")


@dataclass(slots=True, kw_only=True)
class Domain:
    """The cells of one kind of files, and those of them that are read.

    Attributes:
        files: For each file: its place in the set, its number of cells, its bytes.
        cells: The numbers of the cells to read, by stratum, counted over all files.
    """

    kind: str
    files: list[tuple[int, int, int]] = field(default_factory=list)
    parts: dict[int, tuple[Part, ...]] = field(default_factory=dict)
    cells: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 1), dtype=np.int64))

    @property
    def num_cells(self) -> int:
        """Cells of all files."""
        return sum(number for _, number, _ in self.files)

    @property
    def size_bytes(self) -> int:
        """Bytes of all files, or of their row groups."""
        return sum(size for _, _, size in self.files)

    def read_bytes(self, data: DataSet) -> int:
        """Bytes of the cells that are read."""
        return sum(self.part(data, cell)[1].size_bytes for cell in self.cells.ravel().tolist())

    def part(self, data: DataSet, cell: int) -> tuple[int, Part]:
        """The file of a cell and what is to be read of it."""
        ends = list(accumulate(number for _, number, _ in self.files))
        place = bisect_right(ends, cell)
        file, number, _ = self.files[place]
        cell -= ends[place] - number
        if file in self.parts:
            return file, self.parts[file][cell]
        tally = data.tallies[file]
        start = cell * CELL_BYTES
        end = min(tally.size_bytes, start + CELL_BYTES)
        return file, Part(
            path=tally.path, format=tally.format, start=start, end=end, size_bytes=end - start
        )


def domains_of(data: DataSet, sample_bytes: int, seed: int) -> list[Domain]:
    """The cells of a data set, and which of them are read: about so many bytes, by kind."""
    domains = {kind: Domain(kind=kind) for kind in _KINDS}
    for file, tally in enumerate(data.tallies):
        if tally.format in ("jsonl", "txt"):
            number = -(-tally.size_bytes // CELL_BYTES)
            domains["lines"].files.append((file, number, tally.size_bytes))
            continue
        parts = parts_of(tally.path, CELL_BYTES) if tally.format == "parquet" else None
        domain = domains["groups" if parts else "files"]
        domain.parts[file] = parts or (whole(tally.path),)
        size = sum(part.size_bytes for part in domain.parts[file])
        domain.files.append((file, len(domain.parts[file]), size))
    found = [domain for domain in domains.values() if domain.files]
    total = sum(domain.size_bytes for domain in found)
    for domain in found:
        share = domain.num_cells * sample_bytes / max(1, total)
        domain.cells = drawn_cells(domain.num_cells, max(FEWEST_CELLS, round(share)), seed)
    return found


def cell_units(data: DataSet, domains: Sequence[Domain]) -> Iterator[Unit]:
    """Units of the cells to read, kind by kind and in order; layouts are settled on the way."""
    for domain in domains:
        for cell in domain.cells.ravel().tolist():
            file, part = domain.part(data, cell)
            tally = data.tallies[file]
            if tally.shape is None:
                tally.shape, _ = settled(read_rows(tally.path))
            yield Unit(file=file, shape=tally.shape, content=part)


@dataclass(slots=True, kw_only=True)
class CellCounted:
    """What is in one cell.

    Attributes:
        totals: Of the rows that start in it.
        tokens: Of all rows that touch it, by their bytes in it.
        trained: The learned ones among them.
    """

    file: int
    part: Part
    totals: Totals
    tokens: float
    trained: float


class CellCounter:
    """Counts cells; what every worker has."""

    def __init__(self, counter: RowCounter) -> None:
        self._counter = counter

    def __call__(self, unit: Unit) -> CellCounted:
        """The counts of one cell."""
        part = unit.content
        assert isinstance(part, Part)  # noqa: S101 - cells are parts
        cell = read_cell(part)
        inner, last, before = Totals(), Totals(), Totals()
        for items, totals in (
            (cell.items[:-1], inner),
            (cell.items[-1:], last),
            (() if cell.before is None else (cell.before,), before),
        ):
            self._counter.count(items, part.path, unit.shape, totals)
        shares = ((inner, 1.0), (last, cell.last_fraction), (before, cell.before_fraction))
        tokens = sum(_tokens(totals) * share for totals, share in shares)
        trained = sum(totals.trained_tokens * share for totals, share in shares)
        inner.merge(last)
        return CellCounted(file=unit.file, part=part, totals=inner, tokens=tokens, trained=trained)


def _tokens(totals: Totals) -> int:
    return sum(length * number for length, number in totals.lengths.items())


def inferred(
    data: DataSet, domains: Sequence[Domain], results: Iterable[CellCounted]
) -> tuple[Totals, Totals, Sampling]:
    """What was read, the same on the scale of the whole set, and how sure that is.

    The tallies of the files hold what was read of them.
    """
    waiting = iter(results)
    read, drawn, read_bytes = Totals(), [], 0
    lengths: dict[int, float] = {}
    scaled = {"rows": 0.0, "samples": 0.0, "empty": 0.0, "images": 0.0, "image_tokens": 0.0}
    located: list[tuple[BadRow, Part]] = []
    for domain in domains:
        own, part = _measured(domain, waiting, data, located)
        drawn.append(part)
        factor = part.total_bytes / float(part.size_bytes.sum())
        read_bytes += round(float(part.size_bytes.sum()))
        for length, number in own.lengths.items():
            lengths[length] = lengths.get(length, 0.0) + number * factor
        for name, number in (
            ("rows", own.rows_ok),
            ("samples", own.num_samples),
            ("empty", own.empty),
            ("images", own.num_images),
            ("image_tokens", own.image_tokens),
        ):
            scaled[name] += number * factor
        read.merge(own)
    read.bad_rows = _with_lines(located)
    found = figures(drawn)
    num_samples = round(found["samples"].likely)
    per_sample = read.lengths.total() / max(1, read.num_samples)
    whole_set = replace(
        read,
        lengths=scaled_lengths(lengths, num_samples * per_sample, found["tokens"].likely),
        trained_tokens=round(found["trained"].likely),
        rows_ok=round(scaled["rows"]),
        num_samples=num_samples,
        empty=round(scaled["empty"]),
        num_images=round(scaled["images"]),
        image_tokens=round(scaled["image_tokens"]),
    )
    return read, whole_set, Sampling(
        read_bytes=read_bytes,
        total_bytes=sum(domain.size_bytes for domain in domains),
        num_cells=sum(domain.num_cells for domain in domains),
        num_cells_read=sum(domain.cells.size for domain in domains),
        confidence=CONFIDENCE,
        num_samples=found["samples"],
        tokens=found["tokens"],
        trained_tokens=found["trained"],
        mean_length=found["mean"],
    )  # fmt: skip


def _measured(
    domain: Domain,
    results: Iterator[CellCounted],
    data: DataSet,
    located: list[tuple[BadRow, Part]],
) -> tuple[Totals, Drawn]:
    names = ("samples", "sequences", "tokens", "trained")
    measured = {name: np.zeros(domain.cells.size) for name in names}
    sizes = np.zeros(domain.cells.size)
    own = Totals()
    for place in range(domain.cells.size):
        counted = next(results)
        totals = counted.totals
        data.tallies[counted.file].enter_read(totals)
        located += [(row, counted.part) for row in totals.bad_rows]
        measured["samples"][place] = totals.num_samples
        measured["sequences"][place] = totals.lengths.total()
        measured["tokens"][place] = counted.tokens
        measured["trained"][place] = counted.trained
        sizes[place] = counted.part.size_bytes
        own.merge(totals)
    shape = domain.cells.shape
    edges = (
        stratum_edges(domain.num_cells, len(domain.cells))
        if shape[1] > 1
        else np.arange(domain.num_cells + 1)
    )
    return own, Drawn(
        cells_of_stratum=np.diff(edges),
        size_bytes=sizes.reshape(shape),
        measured={name: values.reshape(shape) for name, values in measured.items()},
        total_bytes=domain.size_bytes,
    )


def _with_lines(located: Sequence[tuple[BadRow, Part]]) -> list[BadRow]:
    """The first bad rows with the lines that they have in their files."""
    found: list[BadRow] = []
    shown = located[:MAX_LISTED_BAD_ROWS]
    for path in dict.fromkeys(row.path for row, _ in shown):
        rows = [(row, part) for row, part in shown if row.path == path]
        ends = sorted({part.start for _, part in rows if part.shift is not None})
        lines = dict(zip(ends, lines_before(path, ends), strict=True))
        for row, part in rows:
            by = 0 if part.shift is None else lines[part.start] + part.shift
            found.append(replace(row, line=row.line + by))
    return found


def as_sampled(profile: DataProfile, sampling: Sampling) -> DataProfile:
    """The profile of a whole set that was read in part, with what is known of it that way."""
    return replace(
        profile,
        sampled=True,
        sampling=sampling,
        duplicates=None,
        tokens=replace(
            profile.tokens,
            all=_widened(profile.tokens.all, sampling.tokens),
            trained=_widened(profile.tokens.trained, sampling.trained_tokens),
        ),
        notices=(*profile.notices, _notice(sampling)),
    )


def _widened(counted: Estimate, figure: Figure) -> Estimate:
    """The range of a sampled figure; wider where characters were counted for tokens."""
    told = figure.estimate
    return Estimate(
        low=counted.low * told.low / max(told.likely, 1.0),
        likely=counted.likely,
        high=counted.high * max(1.0, told.high / max(told.likely, 1.0)),
        basis=counted.basis,
    )


def _notice(sampling: Sampling) -> Notice:
    half = (sampling.tokens.high - sampling.tokens.low) / 2
    return Notice(
        message=message(
            "sampled",
            "{read} of {total} were read, in {cells:,} places over all files: tokens are within "
            "{error:.2%} and samples within {samples:.2%} with {confidence:.0%} confidence; "
            "repeated rows are not known; --exact reads everything",
            read=format_gb(sampling.read_bytes),
            total=format_gb(sampling.total_bytes),
            cells=sampling.num_cells_read,
            error=half / max(1.0, sampling.tokens.likely),
            samples=(sampling.num_samples.high - sampling.num_samples.low)
            / 2
            / max(1.0, sampling.num_samples.likely),
            confidence=sampling.confidence,
        )
    )
