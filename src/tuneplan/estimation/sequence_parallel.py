"""Sequence parallelism: tensor ranks share the positions between the blocks.

A block's input is gathered before its column-parallel products and its output reduced and scattered
after the row-parallel one. For the backward each rank keeps its share of the input alone and
gathers it again (Korthikanti et al. 2022, section 4.2.2; Megatron-LM
``core/tensor_parallel/layers.py LinearWithGradAccumulationAndAsyncCommunication``), into a buffer
that all layers share and that counts once (``split_memory``).
"""

from __future__ import annotations

from tuneplan.estimation.modules import Walk
from tuneplan.estimation.shadow import Tensor


def whole_positions(walk: Walk, x: Tensor) -> Tensor:
    """All positions of a tensor of which each rank holds a share; its storage stays that share."""
    tape, share, dtype = walk.tape, x.elements, x.dtype

    def backward(grad: Tensor) -> tuple[Tensor]:
        del grad
        return (tape.tensor(share, dtype, "gradient of a block's input, scattered"),)

    return tape.link(Tensor(x.storage, share * walk.sequence_ranks, dtype), (x,), (), backward)


def positions_shared(walk: Walk, x: Tensor) -> Tensor:
    """The own share of a block's output, summed over the ranks."""
    tape, whole, dtype = walk.tape, x.elements, x.dtype
    out = tape.tensor(whole / walk.sequence_ranks, dtype, "block output, scattered")

    def backward(grad: Tensor) -> tuple[Tensor]:
        del grad
        return (tape.tensor(whole, dtype, "gradient of a block's output, gathered"),)

    return tape.link(out, (x,), (), backward)
