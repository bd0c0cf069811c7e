from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneplan.estimation.batches import (
    Padding,
    batch_shape,
    expected_longest,
    imbalance_factor,
    length_spread,
    packing_efficiency,
    sample_lengths,
)
from tuneplan.spec.data import TokenStatistics

lengths_of_samples = st.lists(st.integers(1, 3000), min_size=1, max_size=120)


def statistics(lengths):
    return TokenStatistics(
        num_samples=len(lengths), total_tokens=sum(lengths), lengths=tuple(lengths)
    )


@given(lengths=lengths_of_samples)
def test_packing_never_beats_full_rows(lengths):
    assert 0 < packing_efficiency(np.array(lengths, dtype=float), 3000) <= 1


def test_halves_pack_without_waste():
    assert packing_efficiency(np.full(10, 1024.0), 2048) == 1.0
    # 1100 + 900 fit together: 10 of each in 10 rows of 2048.
    assert packing_efficiency(np.array([1100.0, 900.0] * 10), 2048) == pytest.approx(2000 / 2048)


def test_the_longest_of_two_draws_from_two_lengths():
    # Of {100, 300}, both draws are 100 with probability 1/4: 0.25 x 100 + 0.75 x 300 = 250.
    assert expected_longest(np.array([100.0, 300.0]), 2) == pytest.approx(250)


@given(lengths=lengths_of_samples, batch=st.integers(1, 16))
def test_larger_batches_are_padded_to_longer_rows(lengths, batch):
    ascending = np.sort(np.array(lengths, dtype=float))
    assert expected_longest(ascending, batch) <= expected_longest(ascending, batch + 1) + 1e-9
    assert expected_longest(ascending, 1) == pytest.approx(ascending.mean())


@given(lengths=lengths_of_samples, batch=st.integers(1, 8), padding=st.sampled_from(list(Padding)))
def test_a_batch_holds_no_more_tokens_than_positions(lengths, batch, padding):
    shape = batch_shape(
        statistics(lengths), max_length=2048, per_device_batch_size=batch, padding=padding
    )
    assert shape.real_tokens <= shape.positions * (1 + 1e-9)
    assert -1e-9 <= shape.padding_fraction < 1
    assert shape.mean_length <= shape.worst_length + 1e-9 <= shape.limit_length + 2e-9


def test_a_batch_of_one_has_no_padding_and_the_longest_sample_is_the_worst():
    shape = batch_shape(
        statistics([100, 200, 900]),
        max_length=4096,
        per_device_batch_size=1,
        padding=Padding.LONGEST,
    )
    assert shape.padding_fraction == pytest.approx(0)
    assert shape.mean_length == pytest.approx(400)
    assert (shape.worst_length, shape.limit_length) == (900, 4096)


def test_a_short_run_need_not_meet_the_longest_sample():
    lengths = [100] * 999 + [4000]
    whole = batch_shape(
        statistics(lengths), max_length=4096, per_device_batch_size=4, padding=Padding.LONGEST
    )
    short = batch_shape(
        statistics(lengths),
        max_length=4096,
        per_device_batch_size=4,
        padding=Padding.LONGEST,
        samples_seen=40,
    )
    assert whole.worst_length == 4000
    # 40 draws meet the one long sample in 3.9 % of runs: 100 + 0.039 x 3900.
    assert short.worst_length == pytest.approx(100 + 3900 * (1 - 0.999**40))


def test_grouping_by_length_wastes_less_than_random_batches():
    known = statistics(np.random.default_rng(3).integers(50, 2000, 2000).tolist())

    def waste(padding):
        return batch_shape(
            known, max_length=2048, per_device_batch_size=8, padding=padding
        ).padding_fraction

    assert waste(Padding.GROUPED) < 0.05 < waste(Padding.LONGEST) < waste(Padding.MAX_LENGTH)


def test_truncation_bounds_every_row():
    shape = batch_shape(
        statistics([5000, 6000]), max_length=1024, per_device_batch_size=2, padding=Padding.LONGEST
    )
    assert shape.positions == shape.real_tokens == 2048


def test_a_stand_in_has_the_stated_mean_and_quantiles():
    stated = TokenStatistics(
        num_samples=21000,
        total_tokens=21000 * 850,
        quantiles={0.5: 610.0, 0.95: 2900.0, 1.0: 16000.0},
    )
    found = sample_lengths(stated)
    assert found.mean() == pytest.approx(850, rel=0.01)
    assert np.quantile(found, 0.5) == pytest.approx(610, rel=0.02)
    assert np.quantile(found, 0.95) == pytest.approx(2900, rel=0.02)
    assert found[-1] == pytest.approx(16000)


def test_where_only_a_mean_is_known_the_stand_in_keeps_it():
    found = sample_lengths(TokenStatistics(num_samples=1000, total_tokens=512_000))
    assert found.mean() == pytest.approx(512, rel=0.01)
    assert np.quantile(found, 0.95) == pytest.approx(2.7 * 512, rel=0.05)


def test_pairs_run_two_rows_a_sample():
    shape = batch_shape(
        statistics([100, 100]),
        max_length=1024,
        per_device_batch_size=2,
        padding=Padding.LONGEST,
        sequences_per_sample=2,
    )
    assert (shape.sequences, shape.samples, shape.positions) == (4, 2, 400)


def test_the_slowest_of_many_ranks_works_longer():
    lengths = np.array([100.0, 300.0])  # mean 200, deviation 100: cv 0.5
    # Expected largest of four normal draws 1.029: 1 + 1.029 x 0.5 / sqrt(4).
    assert imbalance_factor(length_spread(lengths), samples_per_rank=4, ranks=4) == pytest.approx(
        1.257, abs=1e-3
    )
    assert imbalance_factor(length_spread(lengths), samples_per_rank=4, ranks=1) == 1.0
