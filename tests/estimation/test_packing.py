"""Packing and padding: the arithmetic by hand, and laws that hold for any lengths."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneplan.estimation.packing import (
    Padding,
    batch_positions,
    best_fit_decreasing_efficiency,
    best_fit_decreasing_rows,
    padding_fraction,
    wrapped_efficiency,
)

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=60)
MAX_LENGTH = st.integers(1, 40)


def rows_one_by_one(lengths: list[int], max_length: int) -> int:
    """Best-fit decreasing as the textbook says it, one sample at a time."""
    spaces: list[int] = []
    for length in sorted((min(one, max_length) for one in lengths), reverse=True):
        fitting = [number for number, space in enumerate(spaces) if space >= length]
        if fitting:
            spaces[min(fitting, key=lambda number: spaces[number])] -= length
        else:
            spaces.append(max_length - length)
    return len(spaces)


def test_seven_and_three_share_a_row_and_six_stands_alone():
    # 10 positions a row: [7, 3] and [6]: 2 rows hold 16 of 20 positions.
    assert best_fit_decreasing_rows([3, 7, 6], 10) == 2
    assert best_fit_decreasing_efficiency([3, 7, 6], 10) == 16 / 20


def test_a_sample_longer_than_a_row_is_cut_to_the_row():
    # 25 -> 10, 4: two rows, 14 of 20 positions.
    assert best_fit_decreasing_efficiency([25, 4], 10) == 14 / 20


def test_the_fullest_row_that_still_has_room_is_taken():
    # 8 | 5 | then 2 goes to the row with 8 (space 2), not to the one with 5; 5 joins 5.
    assert best_fit_decreasing_rows([8, 5, 2, 5], 10) == 2


def test_joined_samples_leave_only_the_last_row_open():
    # 3 + 7 + 6 = 16 tokens in rows of 10: two rows.
    assert wrapped_efficiency([3, 7, 6], 10) == 16 / 20
    assert wrapped_efficiency([25, 5], 10) == 1.0


def test_an_empty_set_wastes_nothing():
    assert best_fit_decreasing_efficiency([], 10) == 1.0
    assert wrapped_efficiency([], 10) == 1.0
    assert padding_fraction([], 4, Padding.LONGEST) == 0.0


def test_padding_to_a_fixed_length_is_one_minus_the_mean_over_the_length():
    # 2 + 4 + 6 = 12 tokens in 3 x 10 positions.
    assert padding_fraction([2, 4, 6], 2, "max_length", max_length=10) == pytest.approx(1 - 12 / 30)


def test_one_batch_is_padded_to_its_longest_sample():
    # One batch of 3 x 6 positions.
    assert padding_fraction([2, 4, 6], 3, "longest") == pytest.approx(1 - 12 / 18)
    assert list(batch_positions([2, 4, 6], 3, "longest")) == [18]


def test_a_batch_of_one_has_no_padding():
    assert padding_fraction([2, 40, 6], 1, "longest") == 0.0


def test_grouping_like_lengths_pads_less_than_drawing_at_random():
    lengths = [10] * 500 + [100] * 500
    # Groups of 50 batches are sorted, so a batch of 8 mixes both lengths once a group at most.
    assert padding_fraction(lengths, 8, "grouped") < 0.05
    assert padding_fraction(lengths, 8, "longest") > 0.3


@pytest.mark.parametrize("call", [best_fit_decreasing_efficiency, wrapped_efficiency])
def test_a_row_of_no_positions_is_refused(call):
    with pytest.raises(ValueError, match="max_length"):
        call([1], 0)


def test_a_batch_of_nothing_is_refused():
    with pytest.raises(ValueError, match="batch_size"):
        padding_fraction([1], 0, "longest")


@given(LENGTHS, MAX_LENGTH)
def test_placing_equal_lengths_together_gives_the_rows_of_placing_one_by_one(lengths, max_length):
    assert best_fit_decreasing_rows(lengths, max_length) == rows_one_by_one(lengths, max_length)


@given(LENGTHS, MAX_LENGTH)
def test_efficiency_is_a_share_above_zero(lengths, max_length):
    assert 0 < best_fit_decreasing_efficiency(lengths, max_length) <= 1
    assert 0 < wrapped_efficiency(lengths, max_length) <= 1


@given(LENGTHS, MAX_LENGTH)
def test_rows_are_fewer_than_twice_the_fewest_there_could_be(lengths, limit):
    # Any two rows hold more than one row could (else they were one), so rows < 2 x tokens / row.
    cut = [min(length, limit) for length in lengths]
    assert best_fit_decreasing_rows(lengths, limit) <= max(1, 2 * math.ceil(sum(cut) / limit) - 1)


@given(LENGTHS, MAX_LENGTH)
def test_joining_wastes_no_more_than_packing_where_nothing_is_cut(lengths, max_length):
    whole = [min(length, max_length) for length in lengths]
    joined = wrapped_efficiency(whole, max_length)
    assert joined >= best_fit_decreasing_efficiency(whole, max_length) - 1e-12


@given(LENGTHS, MAX_LENGTH)
def test_counts_of_lengths_say_the_same_as_the_lengths(lengths, max_length):
    counts = Counter(lengths)
    for efficiency in (best_fit_decreasing_efficiency, wrapped_efficiency):
        assert efficiency(counts, max_length) == efficiency(lengths, max_length)


@given(LENGTHS, st.integers(1, 9), st.sampled_from(list(Padding)), st.integers(0, 5))
def test_padding_is_a_share_below_one_and_the_same_for_the_same_seed(lengths, batch, policy, seed):
    share = padding_fraction(lengths, batch, policy, seed)
    assert 0 <= share < 1
    assert padding_fraction(lengths, batch, policy, seed) == share


@given(LENGTHS, st.integers(1, 9), st.sampled_from(["longest", "grouped"]))
def test_no_batch_is_padded_beyond_the_longest_sample(lengths, batch, policy):
    fixed = padding_fraction(lengths, batch, "max_length")
    assert padding_fraction(lengths, batch, policy) <= fixed + 1e-12


# --- batches, drawn one by one ---


def drawn_batches(lengths, batch, policy, seed, max_length, per_sample):
    """Positions of each batch of an epoch: samples one by one, as a trainer's loader takes them."""
    samples = [
        [min(length, max_length) for length in lengths[start : start + per_sample]]
        for start in range(0, len(lengths), per_sample)
    ]
    order = list(np.random.default_rng(seed).permutation(len(samples)))
    if policy == "grouped":
        group = max(1, min(len(samples) // (batch * 4), 50)) * batch
        groups = [order[start : start + group] for start in range(0, len(order), group)]
        groups = [sorted(one, key=lambda i: -max(samples[i])) for one in groups]
        longest = max(range(len(groups)), key=lambda at: max(samples[groups[at][0]]))
        groups[0][0], groups[longest][0] = groups[longest][0], groups[0][0]
        order = [index for one in groups for index in one]
    positions = []
    for start in range(0, len(order), batch):
        rows = [length for index in order[start : start + batch] for length in samples[index]]
        positions.append(len(rows) * (max_length if policy == "max_length" else max(rows)))
    return positions


@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=80),
    st.integers(1, 6),
    st.sampled_from(list(Padding)),
    st.integers(0, 3),
    st.integers(1, 50),
    st.sampled_from([1, 2]),
)
def test_batches_and_their_padding_are_those_of_a_loader(
    lengths, batch, policy, seed, max_length, per_sample
):
    lengths = lengths * per_sample  # as many as whole samples need
    expected = drawn_batches(lengths, batch, policy, seed, max_length, per_sample)
    options = {"max_length": max_length, "sequences_per_sample": per_sample}
    assert list(batch_positions(lengths, batch, policy, seed, **options)) == expected
    tokens = sum(min(length, max_length) for length in lengths)
    share = padding_fraction(lengths, batch, policy, seed, **options)
    assert share == pytest.approx(1 - tokens / sum(expected))


def test_a_pair_is_padded_together():
    # One batch of two pairs: four rows of the longest of all.
    positions = batch_positions([1, 2, 3, 9], 2, "longest", sequences_per_sample=2)
    assert list(positions) == [4 * 9]
