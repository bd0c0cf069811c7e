"""What attention keeps that has its scores in memory: eager code, PyTorch's math kernel."""

from __future__ import annotations

import numpy as np

from tuneplan.estimation.attention_kernels import record_attention
from tuneplan.estimation.modules import Walk, cast, promote
from tuneplan.estimation.operations import Number
from tuneplan.estimation.shadow import Tensor
from tuneplan.spec.blocks import Attention
from tuneplan.spec.recipe import AttentionKernel, DType

_FP32 = DType.FLOAT32


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


def eager_attention(walk: Walk, qkv: list[Tensor], mixer: Attention) -> Tensor:
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
    record_attention(
        walk, mixer, backward=False, bytes_moved=scores * (7 * b + (8 if wide else 2 * b))
    )
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
        record_attention(walk, mixer, backward=True, bytes_moved=scores * (8 * b + 4 * one_byte))
        return query, key, value

    return tape.link(joined, (q, k, v), kept, backward)
