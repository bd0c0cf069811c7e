"""Candidates that no other candidate beats in every respect."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def pareto_mask(values: Floats) -> NDArray[np.bool_]:
    """Which rows are not dominated; every column is to be small.

    A row is dominated when another is nowhere larger and somewhere smaller. Equal rows do not
    dominate each other. Rows with a NaN are never in the set.

    Args:
        values: Shape ``(candidates, aims)``.
    """
    count = len(values)
    mask = np.zeros(count, dtype=bool)
    usable = np.flatnonzero(~np.isnan(values).any(axis=1))
    # In this order nothing is dominated by a later row, so the first that is left is in the set.
    left = usable[np.lexsort(values[usable].T[::-1])]
    while len(left):
        best = values[left[0]]
        mask[left[0]] = True
        left = left[1:]
        others = values[left]
        dominated = (others >= best).all(axis=1) & (others > best).any(axis=1)
        left = left[~dominated]
    return mask
