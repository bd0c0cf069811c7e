"""Files to a profile: read, recognise, render, count, add up.

One pass in constant memory (JSON Lines): what is kept per row is its length and a hash of its text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tuneplan.errors import InvalidRequest, Mistake
from tuneplan.language import message
from tuneplan.tokens.counting import RowCounter, settled
from tuneplan.tokens.files import file_format, unreadable
from tuneplan.tokens.profile import DataProfile, FileFacts
from tuneplan.tokens.reading import read_rows
from tuneplan.tokens.shapes import Shape
from tuneplan.tokens.summary import summarise
from tuneplan.tokens.tokenizers import Tokenizer
from tuneplan.tokens.totals import Totals

# Told how many bytes of how many are read.
Progress = Callable[[int, int], None]

# transformers TrainingArguments.per_device_train_batch_size: the batch behind padding figures.
BATCH_SIZE: Final = 8
_SHOWN_BAD_ROWS: Final = 5


def profile_files(
    paths: Sequence[str | Path],
    *,
    tokenizer: Tokenizer,
    max_lengths: Sequence[int] = (),
    per_device_train_batch_size: int = BATCH_SIZE,
    skip_bad_rows: bool = False,
    progress: Progress | None = None,
) -> DataProfile:
    """Read every row of the files and say what they hold in tokens.

    Args:
        paths: JSON Lines or JSON files, in order; together they are one data set.
        tokenizer: From ``find_tokenizer``.
        max_lengths: Lengths to look at; empty for powers of two around what the rows need.
        per_device_train_batch_size: Samples of a batch, for the padding figures.
        skip_bad_rows: Leave bad rows out, counted and located, in place of refusing the set.
        progress: Told now and then how many bytes of how many are read.

    Raises:
        InvalidRequest: Files that cannot be read at all (all of them at once), a set without a
            single good row, bad rows that are not to be skipped (counted over the whole set, the
            first ones located), or pairs mixed with other rows.
    """
    files = [Path(path) for path in paths]
    problems = [problem for problem in map(unreadable, files) if problem is not None]
    if not files:
        problems = [Mistake(message=message("no_files", "name at least one data file"))]
    if problems:
        raise InvalidRequest(problems)
    totals = Totals()
    counter = RowCounter(tokenizer)
    sizes = [path.stat().st_size for path in files]
    before = 0
    facts = []
    for path, size in zip(files, sizes, strict=True):
        on_bytes = _told(progress, before, sum(sizes))
        facts.append(_profile_file(path, counter, totals, on_bytes))
        before += size
        if progress is not None:
            progress(before, sum(sizes))
    _refuse_unusable(facts, totals, skip_bad_rows=skip_bad_rows)
    return summarise(
        facts,
        totals,
        tokenizer,
        counter.renderer,
        tuple(max_lengths),
        per_device_train_batch_size,
    )


def _told(progress: Progress | None, before: int, total: int) -> Callable[[int], None] | None:
    return None if progress is None else lambda done: progress(before + done, total)


# --- One file ----------------------------------------------------------------------------------


def _profile_file(
    path: Path, counter: RowCounter, totals: Totals, on_bytes: Callable[[int], None] | None
) -> FileFacts:
    own = Totals()
    shape, items = settled(read_rows(path, on_bytes=on_bytes))
    counter.count(items, str(path), shape, own)
    totals.merge(own)
    return FileFacts(
        path=str(path),
        format=file_format(path),
        size_bytes=path.stat().st_size,
        shape=shape.value if shape and own.num_samples else None,
        rows_ok=own.num_samples,
        rows_bad=own.num_bad,
        blank_lines=own.blank_lines,
        columns=own.columns,
    )


# --- The whole set -----------------------------------------------------------------------------


def _refuse_unusable(files: Sequence[FileFacts], totals: Totals, *, skip_bad_rows: bool) -> None:
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
            "no sample in {paths}: {bad} bad row(s), {blank} blank line(s)",
            paths=", ".join(file.path for file in files),
            bad=bad,
            blank=blank,
        ),
        path=files[0].path,
        places=_places(totals),
    )
