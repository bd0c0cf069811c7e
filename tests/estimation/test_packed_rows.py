"""Packed rows against the plainest programs that do the same, and against what cannot be beaten."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneplan.estimation.packed_rows import (
    PackedRows,
    pack_best_fit_decreasing,
    pack_first_fit,
    pack_in_order,
    pack_largest_that_fits,
)
from tuneplan.estimation.packing import best_fit_decreasing_rows

LENGTHS = st.lists(st.integers(0, 40), max_size=60)
ROOM = st.integers(1, 32)


def plain(rows: PackedRows) -> list[list[int]]:
    return [row.tolist() for row in rows.rows()]


def best_fit_one_by_one(lengths: list[int], room: int) -> list[list[int]]:
    """Longest first, each to the row with the least room that holds it; oldest in that room."""
    kept = [(min(length, room), index) for index, length in enumerate(lengths) if length]
    rows: list[list[int]] = []
    spaces: list[tuple[int, int]] = []  # (room, when it came to have it), by row
    for clock, (length, index) in enumerate(sorted(kept, key=lambda one: -one[0])):
        fitting = [row for row, (space, _) in enumerate(spaces) if space >= length]
        row = min(fitting, key=lambda row: spaces[row], default=None)
        if row is None:
            row = len(rows)
            rows.append([])
            spaces.append((room, clock))
        rows[row].append(index)
        spaces[row] = (spaces[row][0] - length, clock)
    return rows


@given(LENGTHS, ROOM)
def test_best_fit_decreasing_places_every_sample_as_one_by_one(lengths: list[int], room: int):
    packed = pack_best_fit_decreasing(np.array(lengths, dtype=np.int64), room)
    assert plain(packed) == best_fit_one_by_one(lengths, room)
    assert packed.num_rows == best_fit_decreasing_rows(lengths, room)


@given(LENGTHS, ROOM, st.integers(1, 5))
def test_first_fit_is_the_first_row_with_room(lengths: list[int], room: int, most: int):
    rows: list[list[int]] = []
    for index, length in enumerate(lengths):
        if not 0 < length <= room:
            continue
        fits = (
            row
            for row in rows
            if len(row) < most and sum(lengths[one] for one in row) + length <= room
        )
        found = next(fits, None)
        if found is None:
            rows.append([index])
        else:
            found.append(index)
    packed = pack_first_fit(np.array(lengths, dtype=np.int64), room, max_samples_per_row=most)
    assert plain(packed) == rows


@given(LENGTHS, ROOM)
def test_in_order_a_row_ends_where_the_next_sample_does_not_fit(lengths: list[int], room: int):
    rows: list[list[int]] = []
    used = room
    for index, length in enumerate(lengths):
        size = min(length, room)
        if not size:
            continue
        if used + size > room:
            rows.append([])
            used = 0
        rows[-1].append(index)
        used += size
    assert plain(pack_in_order(np.array(lengths, dtype=np.int64), room)) == rows


@given(LENGTHS, ROOM)
def test_the_largest_that_fits_is_taken_each_time(lengths: list[int], room: int):
    waiting = [(length, index) for index, length in enumerate(lengths) if 0 < length <= room]
    rows = []
    while waiting:
        space, row = room, []
        while fitting := [one for one in waiting if one[0] <= space]:
            taken = max(fitting)
            waiting.remove(taken)
            space -= taken[0]
            row.append(taken[1])
        rows.append(row)
    assert plain(pack_largest_that_fits(np.array(lengths, dtype=np.int64), room)) == rows


def test_what_trl_gives_for_these_lengths():
    # trl 1.16 `_pack_bfd`, seq_length 10: indices of the samples in each of its rows.
    lengths = np.array([3, 7, 10, 2, 14, 5, 5, 1, 0, 4, 6, 3])
    assert plain(pack_best_fit_decreasing(lengths, 10)) == [
        [2],
        [4],
        [1, 0],
        [10, 9],
        [5, 6],
        [11, 3, 7],
    ]


def lower_bound(lengths: np.ndarray, room: int) -> int:
    """Rows that no packing can do without: Martello and Toth's L2.

    Source: S. Martello, P. Toth, "Lower bounds and reduction procedures for the bin packing
    problem", Discrete Applied Mathematics 28 (1990), theorem 2: what is longer than half a row
    needs one of its own, and what is short but not too short fits beside it only as far as the
    room goes.
    """
    counts = np.bincount(np.minimum(lengths, room), minlength=room + 1)
    number, tokens = np.cumsum(counts), np.cumsum(counts * np.arange(room + 1))
    half = room // 2
    short = np.arange(half + 1)
    alone = number[-1] - number[room - short]
    long = number[room - short] - number[half]
    long_tokens = tokens[room - short] - tokens[half]
    rest = tokens[half] - np.where(short > 0, tokens[short - 1], 0)
    more = np.maximum(0, -(-(rest - (long * room - long_tokens)) // room))
    return max(-(-int(tokens[-1]) // room), int((alone + long + more).max()))


@pytest.mark.parametrize("spread", ["uniform", "log-normal"])
def test_best_fit_decreasing_is_within_a_thousandth_of_the_lower_bound(spread: str):
    draw = np.random.default_rng(5)
    if spread == "uniform":
        lengths = draw.integers(1, 2049, 300_000)
    else:
        lengths = np.maximum(1, draw.lognormal(6, 1, 300_000).astype(np.int64))
    rows = pack_best_fit_decreasing(lengths, 2048).num_rows
    assert rows <= 1.001 * lower_bound(lengths, 2048)
