"""What self-attention executes and keeps around its kernel: projections, norms, positions, gate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tuneplan.estimation import litgpt
from tuneplan.estimation.activations import activation, multiply
from tuneplan.estimation.attention_core import attention_core
from tuneplan.estimation.attention_kernels import flash_share
from tuneplan.estimation.heads import rotary
from tuneplan.estimation.linears import linear
from tuneplan.estimation.modules import Walk, share, split
from tuneplan.estimation.norms import bare_norm, norm
from tuneplan.estimation.shadow import Tensor
from tuneplan.spec.blocks import Attention
from tuneplan.spec.recipe import Kernels
from tuneplan.spec.weights import Weight, WeightKind


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
        flash = flash_share(walk.recipe, mixer, walk.length)
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
