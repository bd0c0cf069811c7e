"""Attention as shadow operations: projections, positions, the kernel that really runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tuneplan.estimation import litgpt
from tuneplan.estimation.fused_softmax import fused_softmax
from tuneplan.estimation.linears import linear
from tuneplan.estimation.modules import Walk, cast, promote, share, split
from tuneplan.estimation.operations import AttentionShape, Number, Operation, OperationKind
from tuneplan.estimation.pointwise import (
    activation,
    bare_norm,
    expand_heads,
    multiply,
    norm,
    rotary,
)
from tuneplan.estimation.shadow import Tensor
from tuneplan.spec.architecture import Attention, Weight, WeightKind
from tuneplan.spec.recipe import AttentionKernel, DType, Kernels, TrainingRecipe

_FP32 = DType.FLOAT32


def attention(walk: Walk, x: Tensor, mixer: Attention) -> Tensor:
    """Self-attention with its projections."""
    gate = None
    by_litgpt = walk.recipe.kernels.model_code == litgpt.LITGPT
    if mixer.latent is not None:
        q, k, v = _latent_projections(walk, x, mixer)
    elif by_litgpt:
        q, k, v = litgpt.projections(walk, x, mixer)
    else:
        q, k, v, gate = _projections(walk, x, mixer)
    del x
    _hold_key_values(walk, k, v, mixer)
    out = attention_core(walk, [q, k, v], mixer)
    del q, k, v
    if by_litgpt and mixer.rotary:
        out = litgpt.heads_joined(walk, out)
    elif _joins_queries(walk, mixer):
        flash = _flash_share(walk.recipe, mixer, walk.length)
        out = litgpt.heads_joined(walk, out, flash) if np.any(flash) else out
    if gate is not None:
        gate = activation(walk, gate, "sigmoid")
        out = multiply(walk, out, gate, "gated attention output")
        del gate
    return linear(walk, out, _linears(mixer.weights)[-1])


def _joins_queries(walk: Walk, mixer: Attention) -> bool:
    """Whether transformers' own rotary code joins the queries of a fused attention kernel."""
    recipe = walk.recipe
    own_code = recipe.kernels.model_code == Kernels().model_code and not recipe.kernels.fused_rope
    return mixer.joins_rotary and own_code and not recipe.attention.keeps_scores


def _hold_key_values(walk: Walk, k: Tensor, v: Tensor, mixer: Attention) -> None:
    """Who else names keys and values: the cache of the model's forward, and layers to come.

    What layers lend dies with the model's forward, unless checkpoints that read it hold it.
    """
    tape = walk.tape
    if mixer.borrows_key_values:
        return
    if mixer.lends_key_values and not tape.grad:
        tape.attributes += [k.storage, v.storage]
    elif mixer.lends_key_values or walk.recipe.keeps_key_values:
        tape.key_values += [k.storage, v.storage]


def _linears(weights: Sequence[Weight]) -> list[Weight]:
    return [weight for weight in weights if weight.kind is WeightKind.LINEAR]


def _projections(
    walk: Walk, x: Tensor, mixer: Attention
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    projections = _linears(mixer.weights)[:-1]
    query_size = mixer.query_size
    gate = None
    if mixer.borrows_key_values:
        return (*_borrowed(walk, x, mixer), None)
    if len(projections) == 1:
        fused = linear(walk, x, projections[0])
        del x
        q, k, v = split(walk, fused, [query_size, mixer.key_size, mixer.value_size])
        del fused
    else:
        q = linear(walk, x, projections[0])
        if mixer.output_gate and projections[0].out_features > query_size:
            q, gate = split(walk, q, [query_size, projections[0].out_features - query_size])
        k = linear(walk, x, projections[1])
        v = linear(walk, x, projections[2]) if len(projections) > 2 else share(k)
        del x
    if mixer.query_key_norm:
        norms = [weight for weight in mixer.weights if weight.kind is WeightKind.NORM]
        if norms:
            q = norm(walk, q, norms[0])
            k = norm(walk, k, norms[-1])
    if mixer.rotary:
        q = rotary(walk, q, "queries")
        k = rotary(walk, k, "keys")
    if mixer.value_norm:
        v = bare_norm(walk, v, "v_norm")
    return q, k, v, gate


def _borrowed(walk: Walk, x: Tensor, mixer: Attention) -> tuple[Tensor, Tensor, Tensor]:
    """Queries of this layer; keys and values that an earlier one holds."""
    q = linear(walk, x, mixer.weights[0])
    del x
    narrow = q.dtype
    q = norm(walk, q, next(w for w in mixer.weights if w.kind is WeightKind.NORM))
    q = rotary(walk, q, "queries")
    k, v = walk.tape.tensor(0.0, q.dtype, "keys"), walk.tape.tensor(0.0, narrow, "values")
    k.elements, v.elements = walk.tokens * mixer.key_size, walk.tokens * mixer.value_size
    return q, k, v


def _latent_projections(walk: Walk, x: Tensor, mixer: Attention) -> tuple[Tensor, Tensor, Tensor]:
    """Multi-head latent attention: low-rank queries, keys and values; keys joined from two parts.

    Source: transformers ``models/deepseek_v3/modeling_deepseek_v3.py DeepseekV3Attention``.
    """
    latent = mixer.latent
    assert latent is not None  # noqa: S101
    tape, tokens = walk.tape, walk.tokens
    named = {weight.leaf: weight for weight in mixer.weights}
    if latent.q_lora_rank:
        low = linear(walk, x, named["q_a_proj"])
        low = norm(walk, low, named["q_a_layernorm"])
        q = linear(walk, low, named["q_b_proj"])
        del low
    else:
        q = linear(walk, x, named["q_proj"])
    compressed = linear(walk, x, named["kv_a_proj_with_mqa"])
    del x
    low, rope = split(walk, compressed, [latent.kv_lora_rank, latent.qk_rope_head_dim])
    del compressed
    low = norm(walk, low, named["kv_a_layernorm"])
    both = linear(walk, low, named["kv_b_proj"])
    del low
    heads = mixer.num_attention_heads
    k_part, v = split(walk, both, [heads * latent.qk_nope_head_dim, heads * mixer.v_head_dim])
    del both
    q = rotary(walk, q, "queries", latent.qk_rope_head_dim / mixer.head_dim)
    rope = rotary(walk, rope, "shared key part")
    elements = tokens * heads * mixer.head_dim
    k = tape.tensor(elements, k_part.dtype, "keys, joined")
    tape.elementwise("join", 2 * k.size)
    sizes = (k_part.elements, rope.elements, k_part.dtype)

    def backward(grad: Tensor) -> tuple[Tensor, Tensor]:
        tape.elementwise("join", 2 * grad.size)
        del grad
        return (
            tape.tensor(sizes[0], sizes[2], "gradient of keys, first part"),
            tape.tensor(sizes[1], sizes[2], "gradient of keys, shared part"),
        )

    return q, tape.link(k, (k_part, rope), (), backward), v


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
        return fused_softmax(walk, qkv, mixer, _record)
    if kernel.keeps_scores:
        return _eager(walk, qkv, mixer)
    return _fused(walk, qkv, mixer)


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


def _flash_share(recipe: TrainingRecipe, mixer: Attention, length: Number) -> Number:
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


def _record(walk: Walk, mixer: Attention, *, backward: bool, bytes_moved: Number) -> None:
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
    flash = _flash_share(recipe, mixer, walk.length)
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
    _record(walk, mixer, backward=False, bytes_moved=traffic)
    repeated = (
        by_flash
        and not recipe.expand_key_value
        and (mixer.num_key_value_heads < mixer.num_attention_heads)
    )
    # 1 where the backward has an fp32 accumulator of the query gradient.
    accumulates = 1.0 if dtype is not _FP32 and mixer.head_dim > 64 else flash

    def backward(grad: Tensor) -> tuple[Tensor, ...]:
        if recipe.recomputes_attention:
            _record(walk, mixer, backward=False, bytes_moved=traffic)
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
        _record(walk, mixer, backward=True, bytes_moved=2 * traffic)
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


def _scores(
    walk: Walk, mixer: Attention, scores: Number, dtype: DType
) -> tuple[Tensor, list[Tensor]]:
    """Product, scale, soft cap, mask and sinks; the last of them and what autograd keeps.

    Source: transformers ``models/gemma2`` and ``models/gpt_oss`` ``eager_attention_forward``.
    """
    tape, kept = walk.tape, []
    raw = tape.tensor(scores, dtype, "attention scores")
    last = tape.tensor(scores, dtype, "attention scores, scaled")
    del raw
    if mixer.softcap:
        divided = tape.tensor(scores, dtype, "attention scores, divided")
        del last
        tangent = tape.tensor(scores, dtype, "attention scores, tangent")
        del divided
        last = tape.tensor(scores, dtype, "attention scores, capped")
        if tape.grad:
            kept.append(tangent)
        del tangent
    # The mask has the dtype of the hidden states; autocast casts PyTorch's function's arguments.
    by_model = walk.recipe.attention is AttentionKernel.EAGER
    wide = promote(dtype, walk.recipe.hidden_dtype) if by_model else dtype
    masked = tape.tensor(scores, wide, "attention scores, masked")
    del last
    if mixer.fp32_sinks:
        wide = _FP32
    if mixer.sinks:
        joined = tape.tensor(scores, wide, "attention scores with sinks")
        shifted = tape.tensor(scores, wide, "attention scores with sinks, shifted")
        del joined, masked
        return shifted, kept
    return masked, kept


def _for_math(walk: Walk, x: Tensor, own_elements: Number, name: str) -> Tensor:
    """PyTorch's math kernel computes half precision in fp32; autocast narrows its products again.

    Source: ``aten/src/ATen/native/transformers/attention.cpp _scaled_dot_product_attention_math``
    (unless ``allowFP16BF16ReductionMathSDP``).
    """
    if walk.recipe.attention is AttentionKernel.SDPA_MATH and walk.recipe.autocast:
        own = Tensor(x.storage, own_elements, x.dtype, x.node)  # before heads are broadcast
        return cast(walk, own, _FP32, name)
    return x


def _broadcast(walk: Walk, x: Tensor, repeated: Number, name: str) -> Tensor:
    """Heads that a product broadcasts: a view of one sequence's, a copy of several sequences'."""
    if np.all(x.elements >= repeated):
        return x
    tape, elements, dtype = walk.tape, x.elements, x.dtype
    several = np.asarray(walk.sequences) > 1
    size = np.where(several, repeated, 0.0)
    out = Tensor(x.storage, repeated, dtype)
    if np.any(several):
        copied = size if isinstance(walk.sequences, np.ndarray) else float(size)
        out = tape.tensor(copied, dtype, f"{name} of every head")
        tape.elementwise("repeat", x.size + out.size)
        out.elements = repeated

    def backward(grad: Tensor) -> tuple[Tensor]:
        del grad
        return (tape.tensor(elements, dtype, f"gradient of {name}"),)

    return tape.link(out, (x,), (), backward)


def _eager(walk: Walk, qkv: list[Tensor], mixer: Attention) -> Tensor:
    """Scores in memory: product, scale, mask, fp32 softmax, cast, product.

    CUDA softmax's backward makes a full temporary (``aten/src/ATen/native/cuda/SoftMax.cu``); the
    fp32 softmax of an fp16 input is one fused kernel, of a bf16 input it is not.
    Source: transformers ``modeling_llama.py eager_attention_forward``.
    """
    recipe, tape = walk.recipe, walk.tape
    v, k, q = qkv.pop(), qkv.pop(), qkv.pop()
    dtype = q.dtype
    if recipe.autocast and dtype is _FP32:
        dtype = recipe.compute_dtype
    # Autocast casts the arguments of each product, values when the second one comes.
    tokens = walk.tokens
    q = cast(walk, _for_math(walk, q, q.elements, "queries"), dtype, "queries")
    k = cast(walk, _for_math(walk, k, tokens * mixer.key_size, "keys"), dtype, "keys")
    v = _for_math(walk, v, tokens * mixer.value_size, "values")
    if recipe.attention is AttentionKernel.SDPA_MATH:
        k = _broadcast(walk, k, q.elements, "keys")
    keys = walk.length * (1.0 + 1.0 / mixer.pooled) if mixer.pooled else walk.length
    scores = walk.sequences * mixer.num_attention_heads * walk.length * keys
    sizes = (q.elements, k.elements, v.elements)
    output = walk.tokens * mixer.num_attention_heads * mixer.v_head_dim
    if tape.grad:
        tape.saves()
    masked, kept = _scores(walk, mixer, scores, dtype)
    # With a sink per head (gpt-oss) the softmax stays in the dtype of the scores.
    upcasts = recipe.attention is AttentionKernel.EAGER and not mixer.sinks
    wide = upcasts or masked.dtype is _FP32
    upcast = None
    if masked.dtype is DType.BFLOAT16 and wide:
        upcast = tape.tensor(scores, _FP32, "attention scores as float32")
    chance = tape.tensor(scores, _FP32 if wide else dtype, "attention probabilities")
    del upcast
    kept += [q, k, chance]
    if chance.dtype is not dtype:
        narrow = tape.tensor(scores, dtype, f"attention probabilities as {dtype}")
        del chance
        chance = narrow
        del narrow
    del masked
    v = cast(walk, v, dtype, "values")
    if recipe.attention is AttentionKernel.SDPA_MATH:
        v = _broadcast(walk, v, output, "values")
    # What the second product keeps is let go as soon as that one's backward is over.
    of_product = [chance.storage, v.storage]
    if tape.grad:
        tape.saves()
    out = tape.tensor(output, dtype, "attention output")
    joined = tape.tensor(output, dtype, "attention output, heads joined")
    del out, chance
    b = dtype.num_bytes
    _record(walk, mixer, backward=False, bytes_moved=scores * (7 * b + (8 if wide else 2 * b)))
    tape.elementwise("join heads", 2 * output * b, launches=4.0)
    one_byte = 4 if wide else b

    def backward(grad: Tensor) -> tuple[Tensor, ...]:
        chances = tape.tensor(scores, dtype, "gradient of probabilities")
        value = tape.tensor(sizes[2], dtype, "gradient of values")
        of_product.clear()
        del grad
        if wide and dtype is not _FP32:
            wider = tape.tensor(scores, _FP32, "gradient of probabilities as float32")
            del chances
            chances = wider
            del wider
        product = tape.tensor(
            scores, _FP32 if wide else dtype, "softmax backward: gradient times output"
        )
        raw = tape.tensor(
            scores, _FP32 if wide and dtype is DType.BFLOAT16 else dtype, "gradient of scores"
        )
        del product, chances
        scaled = tape.tensor(scores, dtype, "gradient of scores, scaled")
        del raw
        query = tape.tensor(sizes[0], dtype, "gradient of queries")
        key = tape.tensor(sizes[1], dtype, "gradient of keys")
        del scaled
        _record(walk, mixer, backward=True, bytes_moved=scores * (8 * b + 4 * one_byte))
        return query, key, value

    return tape.link(joined, (q, k, v), kept, backward)
