"""Which tokens go to which expert, stated instead of computed.

Loops over experts ask the device which experts are hit, how many tokens each takes and whether two
numbers are equal. Tensors without bytes cannot say; this says it for a routing that is stated:
balanced (every expert takes its share), or the worst for one expert (as few experts as there can
be take every token). What follows from an answer (an index, a comparison) is computed on the host
from the answer, so that no branch is guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import torch

from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.blocks import MixtureOfExperts
from tuneplan.tracing.adapter_values import AdapterValues
from tuneplan.tracing.device import fresh_fake
from tuneplan.tracing.values import KnownValues


class Spread(StrEnum):
    """How tokens are spread over experts."""

    BALANCED = "balanced"
    WORST = "worst"


class Routing(KnownValues):
    """Answers what only data could decide.

    Args:
        num_experts: Routed experts of a layer.
        per_token: Experts that a token visits.
        spread: Over which of them.

    Attributes:
        asked: Experts that were said to be hit.
        answered: Experts for whose tokens was asked: each is a call of an expert.
    """

    def __init__(self, num_experts: int, per_token: int, spread: Spread = Spread.BALANCED) -> None:
        super().__init__()
        self.num_experts, self.per_token, self.spread = num_experts, per_token, spread
        self.asked = self.answered = 0
        self._rows = 0
        self._turn = 0

    @property
    def notes(self) -> dict[str, int]:
        """Counters for a reader: a loop that passes experts over is seen."""
        found = {"experts_hit": self.asked, "expert_calls": self.answered}
        return {name: count for name, count in found.items() if count}

    def counts(self, rows: int) -> list[int]:
        """Rows of each expert, when ``rows`` pairs of a token and an expert are spread."""
        hit = self.num_experts if self.spread is Spread.BALANCED else self.per_token
        hit = max(1, min(hit, rows))
        each, rest = divmod(rows, hit)
        return [each + (expert < rest) for expert in range(hit)] + [0] * (self.num_experts - hit)

    def _unknown(self, packet: str, args: Sequence[Any]) -> Any:
        given = args[0]
        if packet == "topk":
            if given.shape[-1] == self.num_experts:
                self._rows = given[..., 0].numel() * args[1]
        elif packet == "_local_scalar_dense":
            elements = given.untyped_storage().nbytes() // given.element_size()
            if given.dtype in (torch.int64, torch.int32) and elements == self.num_experts:
                return self.counts(self._rows)[given.storage_offset()]
        elif packet == "nonzero":
            return self._nonzero(given)
        elif packet == "bincount":
            return self._with_values(self.counts(given.numel()), given.device)
        return NotImplemented

    def _nonzero(self, mask: Any) -> Any:
        if mask.dim() == 1 and mask.shape[0] - self.num_experts in (0, 1):
            hit = [n for n, count in enumerate(self.counts(self._rows or mask.shape[0])) if count]
            self.asked += len(hit)
            self._turn = 0
            return self._with_values([[expert] for expert in hit], mask.device)
        rows = self._rows or mask.numel()
        if mask.numel() not in (rows, rows // self.per_token):
            return NotImplemented
        count = self.counts(rows)[self._turn % self.num_experts]
        self._turn += 1
        self.answered += count > 0
        return fresh_fake((count, mask.dim()), (mask.dim(), 1), torch.int64, mask.device)


def values_of(
    architecture: ModelArchitecture, spread: Spread, peft_config: object = None
) -> KnownValues:
    """What is known on the host: a routing too, where a model has routed experts."""
    for group in architecture.groups:
        mixture = group.layer.feed_forward
        if isinstance(mixture, MixtureOfExperts):
            return Routing(mixture.num_experts, mixture.num_experts_per_tok, spread)
    return KnownValues() if peft_config is None else AdapterValues(peft_config)
