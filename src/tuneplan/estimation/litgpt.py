"""What LitGPT's own model code does otherwise: one query-key-value product, keys repeated early.

Source: lit-gpt at 8641822 and litgpt 0.3-0.5, ``model.py CausalSelfAttention``, ``lora.py
LoRAQKVLinear``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tuneplan.errors import NotSupported
from tuneplan.estimation.heads import expand_heads, rotary, strided
from tuneplan.estimation.linears import drop_out
from tuneplan.estimation.modules import Walk, add, base_linear, dense, scale, split
from tuneplan.estimation.norms import norm
from tuneplan.estimation.operations import Number, OperationKind
from tuneplan.estimation.roles import role_of
from tuneplan.estimation.shadow import Tensor
from tuneplan.language import message
from tuneplan.spec.architecture import Layer
from tuneplan.spec.blocks import Attention
from tuneplan.spec.recipe import TrainingRecipe
from tuneplan.spec.weights import Weight, WeightKind

LITGPT: Final = "litgpt"
PARTS: Final = ("query", "key", "value")


def refuse_streams(recipe: TrainingRecipe, layer: Layer) -> None:
    """LitGPT's Block has one residual stream (``litgpt/model.py``).

    Raises:
        NotSupported: The job runs LitGPT's model code and the layer has several.
    """
    if recipe.kernels.model_code == LITGPT:
        text = message(
            "litgpt_streams",
            "LitGPT has no layer with {count} residual streams",
            count=layer.streams,
        )
        raise NotSupported(text)


def projections(walk: Walk, x: Tensor, mixer: Attention) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values from one product; each stands once per query head before rotary.

    With as many key heads as query heads the three are views of one buffer, which values keep
    alive; with fewer, all three are copied.
    """
    linears = [weight for weight in mixer.weights if weight.kind is WeightKind.LINEAR][:-1]
    if len(linears) not in (1, len(PARTS)):
        text = message(
            "litgpt_attention",
            "LitGPT has no layer for attention with {count} projections",
            count=len(linears),
        )
        raise NotSupported(text)
    fused = linear_of_three(linears, mixer)
    sizes = [mixer.query_size, mixer.key_size, mixer.value_size]
    out = _adapted(walk, x, fused, linears, sizes)
    del x
    q, k, v = split(walk, out, sizes)
    del out
    if mixer.query_key_norm:
        norms = [weight for weight in mixer.weights if weight.kind is WeightKind.NORM]
        if not norms:
            text = message(
                "litgpt_norms", "LitGPT has no layer for queries that are scaled without a weight"
            )
            raise NotSupported(text)
        q, k = norm(walk, q, norms[0]), norm(walk, k, norms[-1])
    if mixer.num_key_value_heads < mixer.num_attention_heads:
        q = expand_heads(walk, q, mixer, mixer.head_dim, "queries")
        k = expand_heads(walk, k, mixer, mixer.head_dim, "keys")
        v = expand_heads(walk, v, mixer, mixer.v_head_dim, "values")
    if mixer.rotary:
        q = rotary(walk, q, "queries")
        k = rotary(walk, k, "keys")
    return q, k, v


def heads_joined(walk: Walk, x: Tensor, share: Number = 1.0) -> Tensor:
    """The attention output copied to one row a token (where ``share`` is 1).

    ``apply_rope`` ends in ``torch.cat``, so queries have one block a head; the kernel's output has
    the layout of its queries (``empty_like``), and ``reshape`` then copies it. Elsewhere queries
    keep the layout of their projection and no copy is made.
    """
    tape, elements, dtype = walk.tape, x.elements, x.dtype
    out = tape.tensor(elements * share, dtype, "attention output, heads joined")
    tape.elementwise("join heads", 2 * out.size, strided=strided(dtype, 2 * out.size))
    out.elements = elements
    return tape.link(out, (x,), (), lambda grad: (grad,))


def linear_of_three(linears: Sequence[Weight], mixer: Attention) -> Weight:
    """The one linear that LitGPT makes of separate projections."""
    rows = mixer.query_size + mixer.key_size + mixer.value_size
    bias = any(weight.bias for weight in linears)
    first = linears[0]
    return replace(first, name="attn.qkv", shape=(rows, first.in_features), bias=bias)


def halves(weight: Weight) -> tuple[Weight, Weight]:
    """``fc_1`` and ``fc_2`` of a model whose published gate and up projections are one."""
    half = replace(weight, shape=(weight.out_features // 2, weight.in_features))
    return half, half


def _adapted(
    walk: Walk, x: Tensor, fused: Weight, linears: Sequence[Weight], sizes: Sequence[int]
) -> Tensor:
    recipe, adapter = walk.recipe, walk.recipe.adapter
    role = role_of(linears[0], recipe, walk.place)
    adapted = [size for size, on in zip(sizes, _parts(walk, linears), strict=True) if on]
    result = base_linear(walk, x, fused, role)
    if adapter is None or not adapted:
        return result
    kind = OperationKind.ADAPTER
    if adapter.lora_dropout > 0:
        x = drop_out(walk, x, "attn.qkv adapter input")
    rank, width = adapter.r * len(adapted), sum(adapted)
    narrow = dense(
        walk, x, "attn.qkv.lora_A", fused.in_features, rank,
        trained=True, weight_dtype=adapter.dtype,
        gradient_elements=float(rank * fused.in_features), kind=kind,
    )  # fmt: skip
    del x
    update = dense(
        walk, narrow, "attn.qkv.lora_B", rank, width,
        trained=True, weight_dtype=adapter.dtype,
        gradient_elements=float(adapter.r * width), kind=kind,
    )  # fmt: skip
    del narrow
    if len(adapted) < len(sizes):
        update = _padded(walk, update, fused.out_features)
    update = scale(walk, update, "attn.qkv adapter output", kind)
    return add(walk, result, update, "attn.qkv output with adapter", kind)


def _parts(walk: Walk, linears: Sequence[Weight]) -> list[bool]:
    """Which of query, key and value are adapted."""
    adapter = walk.recipe.adapter
    if len(linears) == 1:
        on = role_of(linears[0], walk.recipe, walk.place).adapted
        named = adapter.query_key_value if adapter is not None else ()
        return [on and (not named or part in named) for part in PARTS]
    return [role_of(weight, walk.recipe, walk.place).adapted for weight in linears]


def _padded(walk: Walk, x: Tensor, out_features: int) -> Tensor:
    """``zero_pad``: the update copied into zeros by ``index_copy``, which keeps its source."""
    tape, elements, dtype = walk.tape, x.elements, x.dtype
    source = tape.tensor(elements, dtype, "attn.qkv adapter output, contiguous")
    zeros = tape.tensor(walk.tokens * out_features, dtype, "attn.qkv zeros")
    if tape.grad:
        tape.saves()
    out = tape.tensor(walk.tokens * out_features, dtype, "attn.qkv adapter output, padded")
    kind = OperationKind.ADAPTER
    tape.elementwise("zero pad", 4 * source.size + 3 * out.size, launches=4.0, kind=kind)
    del zeros

    def backward(grad: Tensor) -> tuple[Tensor]:
        tape.elementwise("zero pad", 2 * grad.size, launches=2.0, kind=kind)
        del grad
        return (tape.tensor(elements, dtype, "gradient of attn.qkv adapter output"),)

    return tape.link(out, (x,), (source,), backward)
