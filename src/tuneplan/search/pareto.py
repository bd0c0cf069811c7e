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
    order = usable[np.lexsort(values[usable].T[::-1])]
    front = np.empty((0, values.shape[1]))
    for index in order:
        row = values[index]
        if len(front):
            no_larger = (front <= row).all(axis=1)
            if (no_larger & (front < row).any(axis=1)).any():
                continue
        mask[index] = True
        front = np.vstack([front, row])
    return mask
