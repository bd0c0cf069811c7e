"""What each framework packs, against programs that do it sample by sample."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneplan.tokens.packings import WAYS_OF_PACKING, packings_of

# A few lengths over and over, more than the thousand that some frameworks pack at a time.
LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=12).map(
    lambda few: np.tile(np.array(few, dtype=np.int64), 1 + 1100 // len(few))
)
ROOM = st.integers(2, 32)


def thousands(lengths):
    return [lengths[start : start + 1000].tolist() for start in range(0, len(lengths), 1000)]


def best_fit_rows(lengths, room):
    """Spaces left in rows, longest sample first, each into the least space that holds it."""
    spaces = []
    for length in sorted(lengths, reverse=True):
        fitting = [space for space in spaces if space >= length]
        space = min(fitting, default=room)
        if fitting:
            spaces.remove(space)
        spaces.append(space - length)
    return len(spaces)


@settings(max_examples=10, deadline=None)
@given(LENGTHS, ROOM)
def test_trl_packs_a_thousand_samples_at_a_time(lengths, room):
    found = packings_of(lengths, room, 2)
    cut = [[min(length, room) for length in part] for part in thousands(lengths)]
    assert found["trl_bfd"].rows == sum(best_fit_rows(part, room) for part in cut)
    assert found["trl_bfd"].lost_tokens == sum(lengths) - sum(map(sum, cut))
    pieces = [
        [size for length in part for size in [room] * (length // room) + [length % room] if size]
        for part in thousands(lengths)
    ]
    assert found["trl_bfd_split"].rows == sum(best_fit_rows(part, room) for part in pieces)
    assert found["trl_bfd_split"].lost_tokens == 0
    joined = [sum(part) for part in thousands(lengths)]
    assert found["trl_wrapped"].rows == sum(-(-tokens // room) for tokens in joined)


@settings(max_examples=10, deadline=None)
@given(LENGTHS, ROOM)
def test_llamafactory_fills_row_by_row_and_drops_what_is_too_long(lengths, room):
    rows = 0
    for part in thousands(lengths):
        waiting = [length for length in part if length <= room]
        while waiting:
            space, rows = room, rows + 1
            while fitting := [length for length in waiting if length <= space]:
                waiting.remove(max(fitting))
                space -= max(fitting)
    found = packings_of(lengths, room, 2)["llamafactory"]
    kept = int(lengths[lengths <= room].sum())
    assert (found.rows, found.positions, found.tokens) == (rows, rows * (room + 1), kept)


@settings(max_examples=10, deadline=None)
@given(LENGTHS, ROOM)
def test_torchtune_begins_a_row_where_a_sample_does_not_fit(lengths, room):
    buffer, rows = 0, 0
    for length in np.minimum(lengths, room).tolist():
        buffer += length
        if buffer > room:
            rows, buffer = rows + 1, length
    rows += buffer > 0
    found = packings_of(lengths, room, 2)
    assert found["torchtune"].rows == rows
    assert found["torchtune_split"].rows == -(-int(lengths.sum()) // room)


@settings(max_examples=10, deadline=None)
@given(LENGTHS, ROOM, st.integers(1, 8))
def test_axolotl_packs_a_whole_micro_batch_as_one_row(lengths, room, batch):
    found = packings_of(lengths, room, batch)["axolotl"]
    kept = lengths[lengths <= room]
    assert found.tokens == kept.sum()
    assert found.positions == found.rows * batch * room
    most = min(batch * room, 200 * room)
    assert -(-int(kept.sum()) // most) <= found.rows <= len(kept)


def test_axolotl_puts_at_most_two_hundred_samples_in_a_row():
    assert packings_of(np.ones(1000), 4096, 1)["axolotl"].rows == 5


@pytest.mark.parametrize("way", WAYS_OF_PACKING)
def test_rows_that_fit_exactly_are_full_in_every_way(way):
    found = packings_of(np.full(1000, 8), 8, 1)[way]
    assert found.rows == 1000
    assert found.lost_fraction == 0
    assert found.efficiency == pytest.approx(8 / 9 if way == "llamafactory" else 1)


@pytest.mark.parametrize("way", WAYS_OF_PACKING)
def test_an_empty_set_has_no_rows_and_wastes_nothing(way):
    found = packings_of(np.zeros(3), 8, 2)[way]
    assert (found.rows, found.efficiency, found.lost_fraction) == (0, 1.0, 0.0)
