"""How far a measured figure may lie from the likely one: two tails of a distribution.

Each tail is a Lomax distribution of the distance: what a Laplace tail becomes whose scale is known
only as well as its number of observations says. Heavy with few observations, Laplace with many.
"""

from __future__ import annotations

import math
from typing import Final

from tuneplan.frozen import dataclass
from tuneplan.spec.answer import Estimate

OUTSIDE: Final = 0.1  # on each side of the range: P10 and P90


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """One side: ``P(distance > d) = share x (scale / (scale + d)) ** shape``.

    Attributes:
        share: Probability of this side.
        shape: Observations behind the scale, the prior's among them.
        scale: In the unit of the distance (a logarithm of measured over likely).
    """

    share: float
    shape: float
    scale: float

    def beyond(self, distance: float) -> float:
        """Probability of a larger distance on this side."""
        if self.scale <= 0.0:
            return self.share if distance <= 0.0 else 0.0
        return float(self.share * (self.scale / (self.scale + distance)) ** self.shape)

    def reach(self, outside: float = OUTSIDE) -> float:
        """The distance that only this probability lies beyond; 0 where the side has no more."""
        if self.share <= outside:
            return 0.0
        return float(self.scale * ((self.share / outside) ** (1.0 / self.shape) - 1.0))

    def reaching(self, distance: float, outside: float = OUTSIDE) -> Tail:
        """The same shape with the scale that makes ``reach`` this distance."""
        if self.share <= outside:
            return Tail(share=self.share, shape=self.shape, scale=distance)
        unit = (self.share / outside) ** (1.0 / self.shape) - 1.0
        return Tail(share=self.share, shape=self.shape, scale=distance / unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Both sides of the likely figure, of ``log(measured / likely)``."""

    below: Tail
    above: Tail

    @property
    def low_factor(self) -> float:
        """P10 over likely."""
        return math.exp(-self.below.reach())

    @property
    def high_factor(self) -> float:
        """P90 over likely."""
        return math.exp(self.above.reach())

    def around(self, likely: float, low: float, high: float) -> Spread:
        """The same shape for a value with another range, in the value's own unit."""
        return Spread(
            below=self.below.reaching(likely - low), above=self.above.reaching(high - likely)
        )

    def probability_below(self, value: Estimate, edge: float) -> float:
        """Probability that a value with this range and shape lies below ``edge``."""
        shaped = self.around(value.likely, value.low, value.high)
        if edge >= value.likely:
            return 1.0 - shaped.above.beyond(edge - value.likely)
        return shaped.below.beyond(value.likely - edge)
