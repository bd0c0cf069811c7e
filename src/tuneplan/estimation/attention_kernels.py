"""Which attention kernel really runs, with a mask or without, and the operations of one call."""

from __future__ import annotations

from typing import Final

import numpy as np

from tuneplan.estimation.modules import Walk
from tuneplan.estimation.operations import AttentionShape, Number, Operation, OperationKind
from tuneplan.spec.blocks import Attention
from tuneplan.spec.recipe import AttentionKernel, TrainingRecipe

_FLASH_HEAD_DIM: Final = 256
_BY_SDPA: Final = (
    AttentionKernel.SDPA_FLASH,
    AttentionKernel.SDPA_EFFICIENT,
    AttentionKernel.SDPA_MATH,
    AttentionKernel.CUDNN,
)


def masked_share(recipe: TrainingRecipe, mixer: Attention, length: Number) -> Number:
    """1 where PyTorch's attention function is given a mask, 0 where it is told "causal".

    With padding there is always one. Without, a layer whose window is not longer than the rows
    still needs one, which the flash kernel does not take and before which keys and values are
    repeated. Source: transformers 4.48-5.24 ``masking_utils.py _ignore_causal_mask_sdpa``,
    ``integrations/sdpa_attention.py use_gqa_in_sdpa``.
    """
    if recipe.attention not in _BY_SDPA:
        return 0.0
    if recipe.attention_mask:
        return 1.0
    if mixer.window is None:
        return 0.0
    return (
        np.where(np.asarray(length) >= mixer.window, 1.0, 0.0)
        if np.ndim(length)
        else float(length >= mixer.window)
    )


def repeated_share(recipe: TrainingRecipe, mixer: Attention, length: Number) -> Number:
    """1 where keys and values are repeated to the query heads before the kernel.

    Where there is a mask, and where flash could not take the heads: PyTorch would fall to math.
    """
    if recipe.expand_key_value:
        return 1.0
    if recipe.attention is AttentionKernel.SDPA_FLASH and mixer.head_dim > _FLASH_HEAD_DIM:
        return 1.0
    return masked_share(recipe, mixer, length)


def flash_share(recipe: TrainingRecipe, mixer: Attention, length: Number) -> Number:
    """1 where a flash kernel runs: PyTorch's takes no mask and one width of heads."""
    if recipe.attention is AttentionKernel.SDPA_EFFICIENT:
        return 0.0
    if recipe.attention is AttentionKernel.SDPA_FLASH and (
        mixer.head_dim != mixer.v_head_dim or mixer.head_dim > _FLASH_HEAD_DIM
    ):
        return 0.0
    return 1.0 - masked_share(recipe, mixer, length)


def _shape(walk: Walk, mixer: Attention, *, backward: bool) -> AttentionShape:
    heads = mixer.num_attention_heads if walk.recipe.expand_key_value else mixer.num_key_value_heads
    return AttentionShape(
        walk.sequences,
        walk.length,
        mixer.num_attention_heads,
        heads,
        mixer.head_dim,
        mixer.v_head_dim,
        walk.recipe.attention,
        window=mixer.window,
        backward=backward,
    )


def attention_flops(shape: AttentionShape) -> Number:
    """Operations of one causal attention forward pass: QK and PV over the visible keys.

    ``2 x heads x (d + d_v) x sum of visible keys``; causal halves the square, a window caps it.
    """
    length = shape.length
    if shape.window is not None:
        seen = 0.5 * length * length - 0.5 * _positive(length - shape.window) ** 2
    else:
        seen = 0.5 * length * length
    if not shape.causal:
        seen = length * length
    return 2.0 * shape.num_sequences * shape.num_heads * (shape.head_dim + shape.v_head_dim) * seen


def _positive(value: Number) -> Number:
    return np.maximum(value, 0.0) if isinstance(value, np.ndarray) else max(value, 0.0)


def record_attention(walk: Walk, mixer: Attention, *, backward: bool, bytes_moved: Number) -> None:
    """Add one call of the kernel to what the step executes."""
    shape = _shape(walk, mixer, backward=backward)
    flops = attention_flops(shape) * (2.5 if backward else 1.0)
    walk.tape.operations.append(
        Operation(
            "attention",
            OperationKind.ATTENTION,
            walk.tape.stage,
            walk.recipe.compute_dtype,
            launches=3.0 if backward else 1.0,
            flops=flops,
            bytes_moved=bytes_moved,
            attention=shape,
        )
    )
