"""Files to a profile: read, recognise, render, count, add up.

One pass in constant memory (JSON Lines): what is kept per row is its length and a hash of its text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Final

from tuneplan.errors import InvalidRequest, Mistake
from tuneplan.language import message
from tuneplan.tokens.encoders import Rendered
from tuneplan.tokens.files import file_format, unreadable
from tuneplan.tokens.profile import DataProfile, FileFacts
from tuneplan.tokens.reading import BadRow, BlankLine, Row, read_rows
from tuneplan.tokens.rendering import Renderer, renderer_for
from tuneplan.tokens.shapes import (
    Chat,
    RowProblem,
    Sample,
    Shape,
    columns_of,
    is_empty,
    samples_of,
    shape_of,
)
from tuneplan.tokens.summary import Totals, summarise
from tuneplan.tokens.tokenizers import Tokenizer

# Told how many bytes of how many are read.
Progress = Callable[[int, int], None]

# transformers TrainingArguments.per_device_train_batch_size: the batch behind padding figures.
BATCH_SIZE: Final = 8
# Good rows looked at before the layout of a file is settled.
_ROWS_TO_SETTLE: Final = 200
_SHOWN_BAD_ROWS: Final = 5
_BATCH_SEQUENCES: Final = 1024
_BATCH_CHARACTERS: Final = 4_000_000


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
    renderer = renderer_for(tokenizer)
    sizes = [path.stat().st_size for path in files]
    before = 0
    facts = []
    for path, size in zip(files, sizes, strict=True):
        on_bytes = _told(progress, before, sum(sizes))
        facts.append(_profile_file(path, tokenizer, renderer, totals, on_bytes))
        before += size
        if progress is not None:
            progress(before, sum(sizes))
    _refuse_unusable(facts, totals, skip_bad_rows=skip_bad_rows)
    return summarise(
        facts, totals, tokenizer, renderer, tuple(max_lengths), per_device_train_batch_size
    )


def _told(progress: Progress | None, before: int, total: int) -> Callable[[int], None] | None:
    return None if progress is None else lambda done: progress(before + done, total)


# --- One file ----------------------------------------------------------------------------------


def _profile_file(
    path: Path,
    tokenizer: Tokenizer,
    renderer: Renderer,
    totals: Totals,
    on_bytes: Callable[[int], None] | None,
) -> FileFacts:
    num_blank = num_ok = 0
    bad_before = totals.bad_by_code.total()
    waiting: list[Rendered] = []
    num_characters = 0
    shape, items = _settled(read_rows(path, on_bytes=on_bytes))
    columns: tuple[str, ...] = ()
    for item in items:
        if isinstance(item, BlankLine):
            num_blank += 1
            continue
        ready = _sequences(item, str(path), shape, renderer, totals)
        if not ready or isinstance(item, BadRow):
            continue
        if not num_ok and shape is Shape.PROMPT_COMPLETION:
            columns = columns_of(item.value) or ()
        num_ok += 1
        waiting += ready
        num_characters += sum(len(one.text) for one in ready)
        if len(waiting) >= _BATCH_SEQUENCES or num_characters >= _BATCH_CHARACTERS:
            totals.count(waiting, tokenizer)
            waiting, num_characters = [], 0
    totals.count(waiting, tokenizer)
    return FileFacts(
        path=str(path),
        format=file_format(path),
        size_bytes=path.stat().st_size,
        shape=shape.value if shape and num_ok else None,
        rows_ok=num_ok,
        rows_bad=totals.bad_by_code.total() - bad_before,
        blank_lines=num_blank,
        columns=columns,
    )


def _settled(
    items: Iterator[Row | BadRow | BlankLine],
) -> tuple[Shape | None, Iterable[Row | BadRow | BlankLine]]:
    """The layout of most of the first rows, and all the items again."""
    looked_at: list[Row | BadRow | BlankLine] = []
    shapes: Counter[Shape] = Counter()
    for item in items:
        looked_at.append(item)
        found = shape_of(item.value) if isinstance(item, Row) else None
        if found is not None:
            shapes[found] += 1
        if shapes.total() >= _ROWS_TO_SETTLE:
            break
    shape = shapes.most_common(1)[0][0] if shapes else None
    return shape, chain(looked_at, items)


def _sequences(
    item: Row | BadRow, path: str, shape: Shape | None, renderer: Renderer, totals: Totals
) -> list[Rendered]:
    """The rendered sequences of a good row; a bad one is entered in the totals and gives none."""
    if isinstance(item, BadRow):
        totals.add_bad(item)
        return []
    try:
        samples = _samples(item, shape)
        rendered = [renderer.render(sample) for sample in samples]
        digest = blake2b(digest_size=8)
        for one in rendered:
            digest.update(one.text.encode())
            digest.update(b"\x00")
    except RowProblem as problem:
        text = problem.message
        totals.add_bad(BadRow(path=path, line=item.line, code=text.code, message=text))
        return []
    except UnicodeEncodeError:
        text = message(
            "lone_surrogate",
            "the text has half of a surrogate pair (\\ud800 to \\udfff), which is no character",
        )
        totals.add_bad(BadRow(path=path, line=item.line, code=text.code, message=text))
        return []
    totals.hashes.append(int.from_bytes(digest.digest(), "little"))
    _enter(samples, totals)
    return rendered


def _samples(row: Row, shape: Shape | None) -> tuple[Sample, ...]:
    found = shape_of(row.value)
    if found is None:
        raise RowProblem(
            message(
                "unknown_shape",
                "no known layout has the keys {keys}; known: messages, conversations, "
                "instruction + output, prompt + completion, text, chosen + rejected",
                keys=", ".join(map(repr, list(row.value)[:8])) or "(none)",
            )
        )
    if found is not shape:
        raise RowProblem(
            message(
                "other_shape",
                "this row is {found}, the file is {shape}",
                found=found.value,
                shape=shape.value if shape else "",
            )
        )
    return samples_of(row.value, found)


def _enter(samples: Sequence[Sample], totals: Totals) -> None:
    totals.num_samples += 1
    totals.empty += all(is_empty(sample) for sample in samples)
    first = samples[0]
    totals.has_chat |= isinstance(first, Chat)
    totals.has_plain |= not isinstance(first, Chat)
    totals.num_images += first.num_images if isinstance(first, Chat) else 0


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
    bad = totals.bad_by_code.total()
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
    more = totals.bad_by_code.total() - len(shown)
    if more:
        shown.append(Mistake(message=message("and_more", "and {count:,} more", count=more)))
    return tuple(shown)


def _why_empty(files: Sequence[FileFacts], totals: Totals) -> Mistake:
    blank = sum(file.blank_lines for file in files)
    bad = totals.bad_by_code.total()
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
