"""Rows that a pilot trains on, from the user's own data where its tokens can be had."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tuneplan.errors import TuneplanError
from tuneplan.language import Message, message
from tuneplan.planner.dataset import beside, place_of
from tuneplan.planner.resolving import Resolved
from tuneplan.spec.answer import Assumption

if TYPE_CHECKING:
    from tuneplan.piloting.rows import TokenRow
    from tuneplan.tokens.tokenizers import Tokenizer

_MOST_SAMPLES: Final = 20_000  # that are read to choose from
_ENOUGH: Final = 2.0  # times the tokens that are wanted


def own_rows(
    resolved: Resolved, lengths: Sequence[Sequence[int]], folder: Path, *, synthetic: bool
) -> tuple[str | None, Assumption]:
    """A file of rows of these lengths, and which tokens they are; None for random ones.

    The lengths are those of the whole data, whichever part of it is read here.

    Args:
        resolved: Names the data and the model whose tokenizer counts.
        lengths: Of the rows wanted.
        folder: Where the file is written.
        synthetic: Random tokens are asked for.
    """
    if synthetic:
        return None, _random(message("pilot_random_asked", "random tokens were asked for"))
    if not resolved.job.data.path:
        reason = message("pilot_no_text", "the job names no data files, so there is no text")
        return None, _random(reason)
    from tuneplan.piloting.rows import of_lengths, write_rows

    wanted = list(chain.from_iterable(lengths))
    try:
        tokenizer = _tokenizer(resolved)
        if tokenizer.approximate:
            reason = message("pilot_no_tokenizer", "the data was counted without its tokenizer")
            return None, _random(reason)
        samples = list(_samples(resolved, tokenizer, sum(wanted)))
    except TuneplanError as error:
        why = message(
            "pilot_data_unused",
            "the data's own tokens cannot be had: {why}",
            why=str(error).splitlines()[0],
        )
        return None, _random(why)
    if not samples:
        return None, _random(message("pilot_no_rows", "no row of the data has a token"))
    file = folder / "rows.npz"
    write_rows(of_lengths(iter(samples), wanted), file)
    told = Assumption(
        name="pilot.data",
        value="own",
        reason=message(
            "pilot_own_rows",
            "{count:,} samples of the data, tokens of {tokenizer}: as long as those of the whole "
            "data are, the worst micro-batch among them",
            count=len(samples),
            tokenizer=tokenizer.name,
        ),
        source=", ".join(resolved.job.data.path),
        how_to_set="--synthetic, for random tokens",
    )
    return str(file), told


def _tokenizer(resolved: Resolved) -> Tokenizer:
    from tuneplan.tokens.tokenizers import find_tokenizer

    job, base = resolved.job, Path(resolved.job.base_path)
    named = job.data.tokenizer
    return find_tokenizer(
        tokenizer=beside(base, named) if named else None, model=beside(base, job.model)
    )


def _samples(resolved: Resolved, tokenizer: Tokenizer, num_tokens: int) -> Iterator[TokenRow]:
    """Samples from the head of the data, cut to the length of a row."""
    from tuneplan.piloting.rows import TokenRow
    from tuneplan.tokens.counting import RowCounter
    from tuneplan.tokens.files import data_files
    from tuneplan.tokens.token_rows import encoded
    from tuneplan.tokens.totals import Totals
    from tuneplan.tokens.work import DataSet

    base, limit = Path(resolved.job.base_path), resolved.recipe.max_length
    files, _ = data_files([place_of(base, path) for path in resolved.job.data.path])
    data, counter = DataSet(paths=tuple(files)), RowCounter(tokenizer)
    read = tokens = 0
    for unit in data.units():
        path = unit.content.path
        for one in encoded(counter, unit.items(), path, unit.shape, Totals()):
            yield TokenRow(ids=one.ids[:limit], learned=one.trained[:limit].astype(bool))
            read, tokens = read + 1, tokens + min(len(one.ids), limit)
            if read >= _MOST_SAMPLES or tokens >= _ENOUGH * num_tokens:
                return


def _random(reason: Message) -> Assumption:
    return Assumption(
        name="pilot.data",
        value="random tokens",
        reason=reason,
        source="planner/pilot_rows.py",
        how_to_set="data.path, with the model's tokenizer at hand (tuneplan[tokens])",
    )
