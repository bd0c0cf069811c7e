"""The order of candidates for a goal."""

from __future__ import annotations

from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Goal(StrEnum):
    """What the user wants most."""

    CHEAPEST = "cheapest"
    FASTEST = "fastest"
    BALANCED = "balanced"


def ranked(
    goal: Goal,
    *,
    cost: Floats,
    duration_s: Floats,
    accelerators: Floats,
    place: NDArray[np.intp],
) -> NDArray[np.intp]:
    """Indices of the candidates, best first.

    cheapest: cost, then card-hours. fastest: duration, then cost. balanced: the product of cost and
    duration (what is twice as dear must be twice as fast). Candidates without a price come after
    those with one, except under ``fastest``; among themselves, and where all cost the same, their
    card-hours stand for their cost. Ties go to fewer cards, then by ``place``: the
    candidates' own order, which must not depend on the order of a catalogue.
    """
    priced = np.isnan(cost)
    money = np.where(priced, 0.0, cost)
    product = np.where(priced, 0.0, money * duration_s)
    held_s = accelerators * duration_s
    keys = {
        Goal.CHEAPEST: (priced, money, held_s, duration_s),
        Goal.FASTEST: (duration_s, priced, money),
        Goal.BALANCED: (priced, product, held_s * duration_s, money),
    }[goal]
    rounded = [_rounded(np.asarray(key, dtype=float)) for key in keys]
    order: NDArray[np.intp] = np.lexsort((place, accelerators, *reversed(rounded)))
    return order


def _rounded(values: Floats) -> Floats:
    """To nine digits, so that the order of a sum decides nothing."""
    size = np.abs(values)
    known = np.isfinite(values) & (size > 0)
    digits = np.floor(np.log10(size, out=np.zeros_like(size), where=known))
    scale = 10.0 ** (8.0 - digits)
    return np.where(known, np.rint(values * scale) / scale, values)
