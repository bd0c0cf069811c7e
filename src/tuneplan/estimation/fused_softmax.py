"""Megatron's attention before flash kernels: scale, mask and softmax as one kernel.

Scores and probabilities are half precision; autograd keeps queries, keys, values, the
probabilities, dropout's mask and what it left of them (``attention_dropout`` is 0.1 unless set).
Source: Megatron-LM v2.5 ``megatron/model/transformer.py CoreAttention``,
``megatron/model/fused_softmax.py``.
"""

from __future__ import annotations

from typing import Protocol

from tuneplan.estimation.modules import Walk
from tuneplan.estimation.operations import Number
from tuneplan.estimation.shadow import Tensor
from tuneplan.spec.blocks import Attention
from tuneplan.spec.recipe import DType


class Recorder(Protocol):
    """Writes one attention call down."""

    def __call__(
        self, walk: Walk, mixer: Attention, *, backward: bool, bytes_moved: Number
    ) -> None:
        """Append it to the walk's operations."""
        ...


def fused_softmax(walk: Walk, qkv: list[Tensor], mixer: Attention, record: Recorder) -> Tensor:
    """Scores, probabilities and their product with the values; ``qkv`` is emptied."""
    tape = walk.tape
    v, k, q = qkv.pop(), qkv.pop(), qkv.pop()
    dtype, sizes = q.dtype, (q.elements, k.elements, v.elements)
    scores = walk.sequences * mixer.num_attention_heads * walk.length * walk.length
    if tape.grad:
        tape.saves()
    raw = tape.tensor(scores, dtype, "attention scores")
    chance = tape.tensor(scores, dtype, "attention probabilities")
    del raw
    mask = tape.tensor(scores, DType.UINT8, "attention dropout mask")
    dropped = tape.tensor(scores, dtype, "attention probabilities, dropped out")
    output = walk.tokens * mixer.num_attention_heads * mixer.v_head_dim
    out = tape.tensor(output, dtype, "attention output")
    joined = tape.tensor(output, dtype, "attention output, heads joined")
    del out
    record(walk, mixer, backward=False, bytes_moved=13 * scores)
    tape.elementwise("join heads", 2 * joined.size)

    def backward(grad: Tensor) -> tuple[Tensor, ...]:
        chances = tape.tensor(scores, dtype, "gradient of probabilities")
        value = tape.tensor(sizes[2], dtype, "gradient of values")
        del grad
        raw = tape.tensor(scores, dtype, "gradient of scores")
        del chances
        query = tape.tensor(sizes[0], dtype, "gradient of queries")
        key = tape.tensor(sizes[1], dtype, "gradient of keys")
        del raw
        record(walk, mixer, backward=True, bytes_moved=19 * scores)
        return query, key, value

    return tape.link(joined, (q, k, v), (q, k, v, chance, mask, dropped), backward)
