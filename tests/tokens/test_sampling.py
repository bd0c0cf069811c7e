"""Whether the intervals hold the truth as often as they say."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneplan.tokens.sampling import (
    Drawn,
    drawn_cells,
    figures,
    scaled_lengths,
    stratum_edges,
    students_t,
)


@pytest.mark.parametrize(
    ("freedom", "at_90", "at_975"),
    # Any table of Student's t.
    [(1, 3.0777, 12.7062), (2, 1.8856, 4.3027), (3, 1.6377, 3.1824), (5, 1.4759, 2.5706),
     (10, 1.3722, 2.2281), (30, 1.3104, 2.0423), (120, 1.2886, 1.9799), (10**6, 1.2816, 1.9600)],
)  # fmt: skip
def test_quantiles_of_students_t_are_those_of_the_tables(freedom, at_90, at_975):
    assert students_t(0.9, freedom) == pytest.approx(at_90, abs=2e-3)
    assert students_t(0.975, freedom) == pytest.approx(at_975, abs=2e-3)


@given(num_cells=st.integers(1, 300), num_wanted=st.integers(1, 300), seed=st.integers(0, 9))
def test_cells_are_drawn_once_each_from_strata_of_the_same_size(num_cells, num_wanted, seed):
    found = drawn_cells(num_cells, num_wanted, seed)
    assert len(np.unique(found)) == found.size
    if found.shape[1] == 1:
        assert found.ravel().tolist() == list(range(num_cells))
        return
    edges = stratum_edges(num_cells, len(found))
    assert ((found >= edges[:-1, None]) & (found < edges[1:, None])).all()
    assert np.ptp(np.diff(edges)) <= 1


def test_every_cell_has_the_same_chance():
    drawn = np.bincount(
        np.concatenate([drawn_cells(100, 20, seed).ravel() for seed in range(2000)]), minlength=100
    )
    # 400 are expected of each; 2000 draws of one in five have a deviation of 18.
    assert (abs(drawn - 400) < 5 * 18).all()


# --- Coverage ----------------------------------------------------------------------------------

CELL = 32_768


def rows_of(kind, random):
    """Tokens and bytes of the rows of a file, in order; two languages with rates of their own."""
    number = 60_000
    tokens = {
        "lognormal": lambda: random.lognormal(5, 1.5, number),
        "pareto 1.5": lambda: 50 * (1 + random.pareto(1.5, number)),
        "pareto 1.1": lambda: np.minimum(50 * (1 + random.pareto(1.1, number)), 2e6),
        "two halves": lambda: np.concatenate(
            [random.lognormal(3, 0.5, number), random.lognormal(7, 1, number // 20)]
        ),
    }[kind]()
    tokens = np.maximum(1, tokens.astype(np.int64))
    bytes_a_token = np.where(random.random(len(tokens)) < 0.4, 3.2, 4.4)
    return tokens, (tokens * bytes_a_token).astype(np.int64) + 14


def cells_of(tokens, size):
    """Rows that start in each cell, and tokens shared out by bytes: what reading it all gives."""
    starts = np.cumsum(size) - size
    total = int(size.sum())
    number = math.ceil(total / CELL)
    edges = np.minimum(np.arange(number + 1) * CELL, total)
    running = np.append(0, np.cumsum(tokens)).astype(float)
    return (
        np.bincount(starts // CELL, minlength=number).astype(float),
        np.diff(np.interp(edges, np.append(starts, total), running)),
        np.diff(edges).astype(float),
    )


@pytest.mark.parametrize("kind", ["lognormal", "pareto 1.5", "pareto 1.1", "two halves"])
def test_the_interval_holds_the_truth_in_93_of_100_draws(kind):
    tokens, size = rows_of(kind, np.random.default_rng(5))
    rows, shared, cell_bytes = cells_of(tokens, size)
    truth = {
        "samples": len(tokens),
        "tokens": tokens.sum(),
        "trained": 0.5 * tokens.sum(),
        "mean": tokens.mean(),
    }
    held = dict.fromkeys(truth, 0)
    inner = dict.fromkeys(truth, 0)
    for seed in range(1000):
        cells = drawn_cells(len(rows), 200, seed)
        drawn = Drawn(
            cells_of_stratum=np.diff(stratum_edges(len(rows), len(cells))),
            size_bytes=cell_bytes[cells],
            measured={
                "samples": rows[cells],
                "sequences": rows[cells],
                "tokens": shared[cells],
                "trained": 0.5 * shared[cells],
            },
            total_bytes=int(size.sum()),
        )
        for name, figure in figures([drawn]).items():
            if name in truth:
                held[name] += figure.low <= truth[name] <= figure.high
                inner[name] += figure.estimate.low <= truth[name] <= figure.estimate.high
    assert min(held.values()) >= 930, held
    # P10 to P90 hold it in eight of ten; 1000 draws have a deviation of 13. Where the kind of rows
    # changes on the way, the intervals are wider than they need be.
    assert min(inner.values()) >= 760, inner
    if kind != "two halves":
        assert max(inner.values()) <= 880, inner


@given(
    lengths=st.dictionaries(st.integers(1, 999), st.integers(1, 50), min_size=1, max_size=20),
    factor=st.floats(1, 1000),
)
def test_scaled_lengths_meet_both_totals_but_for_whole_numbers(lengths, factor):
    count = sum(lengths.values()) * factor
    tokens = sum(length * number for length, number in lengths.items()) * factor
    found = scaled_lengths(lengths, count, tokens)
    assert abs(found.total() - count) <= 1
    assert abs(sum(length * number for length, number in found.items()) - tokens) <= 1000
    assert set(found) <= set(lengths)


def test_longer_sequences_weigh_more_where_the_sample_has_too_few_of_them():
    # 100 sequences of 10 and 100 of 30 tokens: 200 and 4,000. Wanted: 2,000 and 42,000, a mean of
    # 21: weights of 9 and 11, as 900 + 1,100 = 2,000 and 9,000 + 33,000 = 42,000.
    assert scaled_lengths({10: 100, 30: 100}, 2000, 42_000) == {10: 900, 30: 1100}
    # A mean that no weights give: all weigh the same.
    assert scaled_lengths({10: 100, 30: 100}, 2000, 80_000) == {10: 1000, 30: 1000}
