"""Rows that a pilot trains on: the user's own tokens, or random ones of the same lengths.

Rows of tokens pass between the processes as flat arrays in one file: ``tokens``, ``learned`` (which
of them have a label) and ``starts`` (where each row begins, and the end of the last).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuneplan.frozen import dataclass
from tuneplan.piloting.wire import PilotRequest

_NOT_LEARNED = -100


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """One row: ``ids`` (int32), and which of them are ``learned``."""

    ids: NDArray[np.int32]
    learned: NDArray[np.bool_]


def write_rows(rows: Sequence[TokenRow], path: Path) -> None:
    """Write rows where the child reads them."""
    starts = np.cumsum([0, *(len(row.ids) for row in rows)])
    np.savez(
        path,
        tokens=np.concatenate([row.ids for row in rows]),
        learned=np.concatenate([row.learned for row in rows]),
        starts=starts,
    )


def read_rows(path: Path) -> list[TokenRow]:
    """Read what ``write_rows`` wrote."""
    with np.load(path, allow_pickle=False) as file:
        tokens, learned, starts = file["tokens"], file["learned"], file["starts"]
    return [
        TokenRow(ids=tokens[begin:end], learned=learned[begin:end])
        for begin, end in pairwise(starts)
    ]


def rows_of(request: PilotRequest, vocabulary: int) -> list[TokenRow]:
    """The rows of a request; ids of a larger tokenizer are folded into the vocabulary."""
    if request.rows is not None:
        return [
            TokenRow(ids=row.ids % vocabulary, learned=row.learned)
            for row in read_rows(Path(request.rows))
        ]
    generator = np.random.default_rng(request.seed)
    return [
        TokenRow(
            ids=generator.integers(0, vocabulary, length, dtype=np.int32),
            learned=np.ones(length, dtype=np.bool_),
        )
        for rows in request.lengths
        for length in rows
    ]


def of_lengths(samples: Iterator[TokenRow], lengths: Sequence[int]) -> list[TokenRow]:
    """Rows of just these lengths, from samples of any.

    Each wanted row takes the shortest unused sample that is long enough, cut to its length; where
    there is none, the longest ones one after the other.

    Args:
        samples: At least one of them has a token.
        lengths: Tokens of each row wanted.
    """
    pool = sorted((one for one in samples if len(one.ids)), key=lambda one: len(one.ids))
    found: dict[int, TokenRow] = {}
    sizes = [len(one.ids) for one in pool]
    # From the longest wanted row down, each takes what fits it best.
    place = len(pool) - 1
    for number in sorted(range(len(lengths)), key=lambda one: -lengths[one]):
        wanted = lengths[number]
        while place > 0 and sizes[place - 1] >= wanted:
            place -= 1
        found[number] = _joined(pool, place, wanted)
        place = place - 1 if place > 0 else len(pool) - 1
    return [found[number] for number in range(len(lengths))]


def _joined(pool: Sequence[TokenRow], place: int, wanted: int) -> TokenRow:
    """A row of ``wanted`` tokens, from the sample at ``place`` and those after it."""
    ids, learned, have = [], [], 0
    while have < wanted:
        one = pool[place % len(pool)]
        ids.append(one.ids[: wanted - have])
        learned.append(one.learned[: wanted - have])
        have += len(ids[-1])
        place += 1
    found = np.concatenate(learned)
    found[-1] |= not found.any()  # a row without a label would be left out
    return TokenRow(ids=np.concatenate(ids), learned=found)


def dataset_of(rows: Sequence[TokenRow]) -> Any:
    """Rows as a ``datasets`` table, with the mask by which TRL makes labels."""
    from datasets import Dataset

    return Dataset.from_dict(
        {
            "input_ids": [row.ids.tolist() for row in rows],
            "completion_mask": [row.learned.astype(np.int8).tolist() for row in rows],
        }
    )


def collated(rows: Sequence[TokenRow], pad_to: int) -> dict[str, Any]:
    """A micro-batch, padded on the right."""
    import torch

    longest = pad_to or max(len(row.ids) for row in rows)
    ids = torch.zeros((len(rows), longest), dtype=torch.long)
    labels = torch.full_like(ids, _NOT_LEARNED)
    mask = torch.zeros_like(ids)
    for number, row in enumerate(rows):
        length = len(row.ids)
        ids[number, :length] = torch.from_numpy(row.ids.astype(np.int64))
        mask[number, :length] = 1
        learned = torch.from_numpy(row.learned)
        labels[number, :length] = torch.where(learned, ids[number, :length], _NOT_LEARNED)
    batch = {"input_ids": ids, "labels": labels}
    return batch if bool(mask.all()) else {**batch, "attention_mask": mask}
