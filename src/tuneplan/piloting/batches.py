"""Which lengths a pilot trains on: the worst micro-batch twice, then a fair sample."""

from __future__ import annotations

import numpy as np

from tuneplan.estimation.batches import sample_lengths
from tuneplan.spec.data import TokenStatistics


def pilot_lengths(
    statistics: TokenStatistics | None,
    *,
    rows: int,
    max_length: int,
    worst_length: int,
    packing: bool,
    num_micro_batches: int,
    again_at: int = 0,
    seed: int = 0,
) -> tuple[tuple[int, ...], ...]:
    """Lengths of the rows of each micro-batch, in the order in which they are trained on.

    The first micro-batch is the worst that memory must survive, and so is one of the second step,
    which finds optimizer states beside it. The others are drawn from the
    lengths of the data by stratified sampling: each stretch of the distribution is as frequent as
    in the data, in an order that a seed decides.

    Args:
        statistics: None where nothing is known of the data: every row is full.
        rows: In a micro-batch.
        max_length: Where rows are cut.
        worst_length: Of the longest row to expect in the run.
        packing: Rows are filled up to ``max_length``.
        num_micro_batches: How many there are to be.
        again_at: Which is the worst too; 0 for none.
        seed: Of the order.
    """
    worst = (min(worst_length, max_length),) * rows
    if packing or statistics is None or not statistics.num_samples:
        return ((max_length,) * rows,) * num_micro_batches
    generator = np.random.default_rng(seed)
    again = 0 < again_at < num_micro_batches
    count = rows * max(num_micro_batches - 1 - again, 0)
    quantiles = (np.arange(count) + generator.random(count)) / max(count, 1)
    known = sample_lengths(statistics)  # as the plan has them
    places = np.minimum((quantiles * len(known)).astype(np.int64), len(known) - 1)
    drawn = np.clip(np.round(known[places]), 1, max_length).astype(int)
    generator.shuffle(drawn)
    fair = [
        tuple(int(one) for one in drawn[start : start + rows]) for start in range(0, count, rows)
    ]
    if again:
        fair.insert(again_at - 1, worst)
    return (worst, *fair)


def packed_lengths(
    statistics: TokenStatistics | None,
    *,
    rows: int,
    max_length: int,
    num_tokens: int,
    seed: int = 0,
) -> tuple[tuple[int, ...], ...]:
    """Lengths of samples, in groups of ``rows``, that a trainer packs by itself.

    Args:
        statistics: None where nothing is known of the data: every sample fills a row.
        rows: In a micro-batch.
        max_length: Where samples are cut, and what rows are filled up to.
        num_tokens: Of all samples together, about.
        seed: Of the order.
    """
    if statistics is None or not statistics.num_samples:
        return ((max_length,) * rows,) * max(num_tokens // (rows * max_length), 1)
    generator = np.random.default_rng(seed)
    known = np.clip(np.round(sample_lengths(statistics)), 1, max_length).astype(int)
    groups = max(round(num_tokens / float(known.mean()) / rows), 1)
    count = groups * rows
    quantiles = (np.arange(count) + generator.random(count)) / count
    drawn = known[np.minimum((quantiles * len(known)).astype(np.int64), len(known) - 1)]
    generator.shuffle(drawn)
    return tuple(map(tuple, drawn.reshape(groups, rows).tolist()))
