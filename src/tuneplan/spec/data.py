"""What is known of the data, in tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType

from tuneplan.frozen import dataclass
from tuneplan.spec.answer import Basis


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenStatistics:
    """Lengths of the samples of a data set, before truncation.

    Attributes:
        num_samples: Training samples (evaluation samples taken off).
        total_tokens: Sum over the samples.
        quantiles: ``{0.5: 610.0, 0.95: 2900.0, 1.0: 16000.0}``: length at each quantile.
        trained_tokens_fraction: Share of tokens whose loss counts (assistant turns), 1 if unknown.
        lengths: Exact length of every sequence where it was read, ascending; empty where only
            stated.
        sequences_per_sample: 2 where a sample is a preference pair: then ``lengths`` and
            ``quantiles`` are those of single sequences (prompt + chosen, prompt + rejected), twice
            as many as samples, and ``total_tokens`` is over both.
    """

    num_samples: int
    total_tokens: int
    quantiles: Mapping[float, float] = field(default_factory=lambda: MappingProxyType({}))
    trained_tokens_fraction: float = 1.0
    num_eval_samples: int = 0
    raw_bytes: int | None = None
    lengths: tuple[int, ...] = field(default=(), repr=False)
    sequences_per_sample: int = 1
    basis: Basis = Basis.ASSUMED
    source: str = ""

    @property
    def mean_tokens(self) -> float:
        """Mean length of a sample."""
        return self.total_tokens / self.num_samples if self.num_samples else 0.0
