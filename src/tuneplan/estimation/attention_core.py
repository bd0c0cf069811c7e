"""Softmax attention between the projections; the kernels that keep no scores run here."""

from __future__ import annotations

import numpy as np

from tuneplan.estimation.attention_kernels import (
    flash_share,
    masked_share,
    record_attention,
    repeated_share,
)
from tuneplan.estimation.eager_attention import eager_attention
from tuneplan.estimation.fused_softmax import fused_softmax
from tuneplan.estimation.heads import expand_heads
from tuneplan.estimation.modules import Walk, cast
from tuneplan.estimation.shadow import Tensor
from tuneplan.spec.blocks import Attention
from tuneplan.spec.recipe import AttentionKernel, DType

_FP32 = DType.FLOAT32


def attention_core(walk: Walk, qkv: list[Tensor], mixer: Attention) -> Tensor:
    """Softmax attention over queries, keys and values with the recipe's kernel.

    ``qkv`` is emptied, so that what is not kept dies when the kernel is done with it.
    """
    kernel = walk.recipe.attention
    share = repeated_share(walk.recipe, mixer, walk.length)
    if np.any(share) and np.any(qkv[1].elements < qkv[0].elements):
        v, k = qkv.pop(), qkv.pop()
        k = expand_heads(walk, k, mixer, mixer.head_dim, "keys", share)
        v = expand_heads(walk, v, mixer, mixer.v_head_dim, "values", share)
        qkv += [k, v]
        del k, v
    if kernel is AttentionKernel.FUSED_SOFTMAX:
        return fused_softmax(walk, qkv, mixer, record_attention)
    if kernel.keeps_scores:
        return eager_attention(walk, qkv, mixer)
    return _fused(walk, qkv, mixer)


def _fused(walk: Walk, qkv: list[Tensor], mixer: Attention) -> Tensor:
    """A kernel without scores: keeps q, k, v, the output and one number per head and token.

    Backward of FlashAttention-2 holds an fp32 accumulator of dq and, with fewer key heads than
    query heads, dk and dv per query head; the memory-efficient kernel an fp32 accumulator only
    for heads wider than its register tile (64).
    Source: FlashAttention 2.6 ``csrc/flash_attn/flash_api.cpp mha_bwd``; PyTorch
    ``mem_eff_attention/kernel_backward.h`` (``kNeedsAccumGradQ``).
    """
    recipe, tape = walk.recipe, walk.tape
    half = recipe.compute_dtype if recipe.compute_dtype is not _FP32 else qkv[0].dtype
    flash = flash_share(recipe, mixer, walk.length)
    by_flash = bool(np.any(flash))
    # Autocast lowers the precision of scaled_dot_product_attention's inputs whatever the kernel
    # (aten/src/ATen/autocast_mode.h AT_FORALL_LOWER_PRECISION_FP).
    if by_flash or recipe.autocast:
        v, k, q = qkv.pop(), qkv.pop(), qkv.pop()
        qkv += [
            cast(walk, q, half, "queries"),
            cast(walk, k, half, "keys"),
            cast(walk, v, half, "values"),
        ]
        del q, k, v
    v, k, q = qkv.pop(), qkv.pop(), qkv.pop()
    dtype, sizes = q.dtype, (q.elements, k.elements, v.elements)
    heads = walk.tokens * mixer.num_attention_heads
    bias = _mask_bias(walk, mixer, dtype)
    if tape.grad:
        tape.saves()
    out = tape.tensor(heads * mixer.v_head_dim, dtype, "attention output")
    sums = tape.tensor(heads, _FP32, "attention log-sum-exp")
    traffic = q.size + k.size + v.size + out.size
    record_attention(walk, mixer, backward=False, bytes_moved=traffic)
    repeated = (
        by_flash
        and not recipe.expand_key_value
        and (mixer.num_key_value_heads < mixer.num_attention_heads)
    )
    # 1 where the backward has an fp32 accumulator of the query gradient.
    accumulates = 1.0 if dtype is not _FP32 and mixer.head_dim > 64 else flash

    def backward(grad: Tensor) -> tuple[Tensor, ...]:
        if recipe.recomputes_attention:
            record_attention(walk, mixer, backward=False, bytes_moved=traffic)
        results = [
            tape.tensor(size, dtype, f"gradient of {name}")
            for size, name in zip(sizes, ("queries", "keys", "values"), strict=True)
        ]
        temporaries = [tape.tensor(heads, _FP32, "attention backward row sums")]
        if np.any(accumulates):
            elements = sizes[0] * accumulates
            temporaries.append(tape.tensor(elements, _FP32, "query gradient accumulator"))
        if repeated:
            keys, values = heads * mixer.head_dim * flash, heads * mixer.v_head_dim * flash
            temporaries.append(tape.tensor(keys, dtype, "key gradient per query head"))
            temporaries.append(tape.tensor(values, dtype, "value gradient per query head"))
        record_attention(walk, mixer, backward=True, bytes_moved=2 * traffic)
        del temporaries, grad
        return tuple(results)

    return tape.link(out, (q, k, v), (q, k, v, out, sums, *bias), backward)


def _mask_bias(walk: Walk, mixer: Attention, dtype: DType) -> list[Tensor]:
    """The mask as numbers, which every layer makes anew and keeps.

    Source: ``aten/src/ATen/native/transformers/attention.cpp convert_boolean_attn_mask``;
    transformers makes boolean masks (``masking_utils.py sdpa_mask``, 4.53 and later).
    """
    share = masked_share(walk.recipe, mixer, walk.length)
    if not np.any(share):
        return []
    elements = share * walk.sequences * walk.length * walk.length
    return [walk.tape.tensor(elements, dtype, "attention mask as numbers")]
