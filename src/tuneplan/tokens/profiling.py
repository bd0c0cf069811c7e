"""Files to a profile: cut into units, count them wherever there are cores, add up in order.

Memory does not grow with the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from tuneplan.errors import InvalidRequest, Mistake
from tuneplan.language import message
from tuneplan.tokens.cells import (
    CellCounted,
    CellCounter,
    Domain,
    as_sampled,
    cell_units,
    domains_of,
    inferred,
)
from tuneplan.tokens.counting import RowCounter
from tuneplan.tokens.files import data_files
from tuneplan.tokens.pictures import Pictures
from tuneplan.tokens.profile import DataProfile, FileFacts
from tuneplan.tokens.sampling import SAMPLE_BYTES, SAMPLED_FROM_BYTES, Sampling
from tuneplan.tokens.shapes import Shape
from tuneplan.tokens.summary import summarise
from tuneplan.tokens.tokenizers import Tokenizer
from tuneplan.tokens.totals import Totals
from tuneplan.tokens.work import DataSet, UnitCounter
from tuneplan.tokens.workers import Engine, InProcess, Workers, usable_cores
from tuneplan.units import MIB

# Told how many bytes of how many are read.
Progress = Callable[[int, int], None]

# transformers TrainingArguments.per_device_train_batch_size: the batch behind padding figures.
BATCH_SIZE: Final = 8
_SHOWN_BAD_ROWS: Final = 5
# Below this, starting workers (about a second each) takes longer than they save.
_FEW_BYTES: Final = 24 * MIB


def profile_files(
    paths: Sequence[str | Path],
    *,
    tokenizer: Tokenizer,
    pictures: Pictures | None = None,
    max_lengths: Sequence[int] = (),
    per_device_train_batch_size: int = BATCH_SIZE,
    skip_bad_rows: bool = False,
    progress: Progress | None = None,
    engine: Engine | None = None,
    exact: bool = False,
    sample_bytes: int | None = None,
    seed: int = 0,
) -> DataProfile:
    """Read the files and say what they hold in tokens: every row, or a part of a large set.

    Args:
        paths: Data files (paths, URLs, folders of ``datasets``), in order; together one data set.
        tokenizer: From ``find_tokenizer``.
        pictures: What the model makes of pictures; None leaves them uncounted.
        max_lengths: Lengths to look at; empty for powers of two around what the rows need.
        per_device_train_batch_size: Samples of a batch, for the padding figures.
        skip_bad_rows: Leave bad rows out, counted and located, in place of refusing the set.
        progress: Told now and then how many bytes of how many are read.
        engine: Where rows are counted; None for this process, or all cores for large files. The
            answer is the same.
        exact: Read every row, however many there are; else a part of files beyond 4 GiB.
        sample_bytes: Read about so much of them, whatever their size; None for 256 MiB.
        seed: Of what is drawn.

    Raises:
        InvalidRequest: Files that cannot be read at all (all of them at once), a set without a
            single good row, bad rows that are not to be skipped (counted over the whole set, the
            first ones located), or pairs mixed with other rows.
    """
    files, problems = data_files(paths)
    if problems:
        raise InvalidRequest(problems)
    counter = RowCounter(tokenizer, pictures)
    data = DataSet(paths=files)
    settings = (tuple(max_lengths), per_device_train_batch_size)
    if not exact and (sample_bytes is not None or data.size_bytes >= SAMPLED_FROM_BYTES):
        domains = domains_of(data, sample_bytes or SAMPLE_BYTES, seed)
        chosen = engine or engine_for(sum(domain.read_bytes(data) for domain in domains))
        read, totals, sampling = count_cells(data, domains, counter, chosen, progress)
        facts = [tally.facts() for tally in data.tallies]
        refuse_unusable(facts, read, skip_bad_rows=skip_bad_rows)
        profile = summarise(facts, totals, tokenizer, counter.renderer, *settings)
        return as_sampled(profile, sampling)
    chosen = engine or engine_for(data.size_bytes)
    data.whole_files = chosen.reads_files
    totals = count_units(data, counter, chosen, progress)
    facts = [tally.facts() for tally in data.tallies]
    refuse_unusable(facts, totals, skip_bad_rows=skip_bad_rows)
    return summarise(facts, totals, tokenizer, counter.renderer, *settings)


def engine_for(size_bytes: int, workers: int | None = None) -> Engine:
    """This process for little data or one worker, else worker processes on all cores."""
    number = workers or usable_cores()
    if number == 1 or (workers is None and size_bytes < _FEW_BYTES):
        return InProcess()
    return Workers(number)


def count_units(
    data: DataSet, counter: RowCounter, engine: Engine, progress: Progress | None = None
) -> Totals:
    """Count every unit of a set, in order; the tallies of its files are filled in."""
    totals, done = Totals(), 0
    with closing(engine.run(UnitCounter(counter), data.units())) as results:
        for counted in results:
            data.tallies[counted.file].enter(counted)
            totals.merge(counted.totals)
            done += counted.size_bytes
            if progress is not None:
                progress(done, data.size_bytes)
    if progress is not None:
        progress(data.size_bytes, data.size_bytes)
    return totals


def count_cells(
    data: DataSet,
    domains: Sequence[Domain],
    counter: RowCounter,
    engine: Engine,
    progress: Progress | None = None,
) -> tuple[Totals, Totals, Sampling]:
    """Count the cells that are drawn: what was read, the same for the whole set, how sure it is."""
    total = sum(domain.read_bytes(data) for domain in domains)
    units = cell_units(data, domains)
    with closing(engine.run(CellCounter(counter), units)) as results:
        return inferred(data, domains, _telling(results, progress, total))


def _telling(
    results: Iterable[CellCounted], progress: Progress | None, total: int
) -> Iterator[CellCounted]:
    done = 0
    for counted in results:
        done += counted.part.size_bytes
        if progress is not None:
            progress(done, total)
        yield counted


# --- The whole set -----------------------------------------------------------------------------


def refuse_unusable(files: Sequence[FileFacts], totals: Totals, *, skip_bad_rows: bool) -> None:
    """Refuse a set without a sample, bad rows that are not to be skipped, pairs among others."""
    if not totals.num_samples:
        raise InvalidRequest([_why_empty(files, totals)])
    if totals.bad_rows and not skip_bad_rows:
        raise InvalidRequest([_bad_rows(files, totals)])
    shapes = {file.shape for file in files if file.shape is not None}
    pairs = Shape.PREFERENCE.value
    if pairs in shapes and len(shapes) > 1:
        raise InvalidRequest(
            [
                Mistake(
                    message=message(
                        "pairs_and_others",
                        "preference pairs and other rows are not one data set: {path} is {shape}",
                        path=file.path,
                        shape=file.shape,
                    ),
                    path=file.path,
                )
                for file in files
                if file.shape not in (None, pairs)
            ]
        )


def _bad_rows(files: Sequence[FileFacts], totals: Totals) -> Mistake:
    bad = totals.num_bad
    return Mistake(
        message=message(
            "bad_rows",
            "{bad:,} of {all:,} rows cannot be used",
            bad=bad,
            all=bad + totals.num_samples,
        ),
        path=", ".join(file.path for file in files if file.rows_bad),
        places=_places(totals),
        how_to_fix=message(
            "skip_bad_rows",
            "correct or delete these lines; or go on without them, counted and listed: "
            "--skip-bad-rows with `tuneplan data profile`, data.skip_bad_rows: true in a job",
        ),
    )


def _places(totals: Totals) -> tuple[Mistake, ...]:
    """The first bad rows, and how many more there are."""
    shown = [
        Mistake(message=row.message, path=row.path, line=row.line, column=row.column)
        for row in totals.bad_rows[:_SHOWN_BAD_ROWS]
    ]
    more = totals.num_bad - len(shown)
    if more:
        shown.append(Mistake(message=message("and_more", "and {count:,} more", count=more)))
    return tuple(shown)


def _why_empty(files: Sequence[FileFacts], totals: Totals) -> Mistake:
    blank = sum(file.blank_lines for file in files)
    bad = totals.num_bad
    return Mistake(
        message=message(
            "empty_data_set",
            "no sample in {paths}: {bad} bad {bad:~row/rows}, {blank} blank {blank:~line/lines}",
            paths=", ".join(file.path for file in files),
            bad=bad,
            blank=blank,
        ),
        path=files[0].path,
        places=_places(totals),
    )
