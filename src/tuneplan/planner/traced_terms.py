"""What is alive at the peak of a trace, in the terms of an estimate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tuneplan.language import sentence
from tuneplan.spec.answer import Basis, Term
from tuneplan.tracing.result import AliveGroup

_PACKED: Final = ("uint8", "int8", "int32")
_TERMS: Final = {
    "frozen_weight": "frozen_weights",
    "trained_weight": "trained_weights",
    "gradient": "gradients",
    "optimizer_state": "optimizer_states",
    "master_weight": "master_weights",
    "quantization_constant": "quantization_constants",
    "activation": "kept_activations",
}


def term_of(group: AliveGroup) -> str:
    """The term that blocks at the peak belong to."""
    if group.kind == "frozen_weight" and group.dtype in _PACKED:
        return "quantized_weights"
    if group.kind == "trained_weight" and "lora_" in group.module:
        return "adapters"
    return _TERMS.get(group.kind, group.kind)


def terms_of(at_peak: Sequence[AliveGroup], total: float, resident: int) -> tuple[Term, ...]:
    """By kind; what blocks are larger than was asked stands apart."""
    kinds: dict[str, list[AliveGroup]] = {}
    for group in at_peak:
        kinds.setdefault(term_of(group), []).append(group)
    terms = [
        Term(
            kind=kind,
            value=float(sum(group.size_bytes for group in groups)),
            formula=sentence("sum of the blocks that are alive"),
            inputs={"blocks": sum(group.count for group in groups)},
            source="tuneplan trace",
            basis=Basis.TRACED,
        )
        for kind, groups in kinds.items()
    ]
    if resident:
        terms.append(
            Term(
                kind="gradient_buckets",
                value=float(resident),
                formula=sentence("flat copies of the gradients that are exchanged"),
                source="torch/csrc/distributed/c10d/reducer.cpp",
            )
        )
    rest = total - sum(term.value for term in terms)
    if rest > 0:
        terms.append(
            Term(
                kind="unsplit_blocks",
                value=rest,
                formula=sentence("blocks of the cache that were given whole, less what was asked"),
                source="c10/cuda/CUDACachingAllocator.cpp should_split",
                basis=Basis.TRACED,
            )
        )
    return tuple(sorted(terms, key=lambda term: -term.value))
