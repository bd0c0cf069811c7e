"""Llama 4: experts with a shared one, chunked attention, some layers without positions.

Names as in transformers 5.24.0, ``modeling_llama4.py``; the image tower is not described.
"""

from __future__ import annotations

from dataclasses import replace

from tuneplan.catalog.architectures.fields import Fields
from tuneplan.catalog.architectures.mixtures import gated_experts, read_num_experts
from tuneplan.catalog.architectures.parts import (
    gated_feed_forward,
    group_layers,
    grouped_attention,
    language_model,
    norm,
    read_heads,
)
from tuneplan.spec.architecture import Layer, ModelArchitecture
from tuneplan.spec.blocks import AttentionKind

_NORMS = ("input_layernorm", "post_attention_layernorm")


def llama4_text(fields: Fields) -> ModelArchitecture:
    """Llama 4, language model: chunked attention with positions, each fourth layer without."""
    heads = read_heads(fields)
    num_layers = fields.count("num_hidden_layers")
    step = fields.derived_count("interleave_moe_layer_step", otherwise=1)
    interval = fields.derived_count("no_rope_layer_interval", otherwise=4)
    chunk = fields.optional_count("attention_chunk_size")
    unlearned = fields.flag("use_qk_norm", default=True)
    num_experts, per_token = read_num_experts(fields, "num_local_experts")
    expert_size = fields.count("intermediate_size")
    bias = fields.flag("attention_bias", default=False)
    mixture = gated_experts(
        heads.hidden_size,
        expert_size,
        num_experts=num_experts,
        num_experts_per_tok=per_token,
        prefix="feed_forward",
        router_name="router",
        router_is_linear=True,
        shared=gated_feed_forward(
            heads.hidden_size, expert_size, prefix="feed_forward.shared_expert"
        ),
    )
    mixture = replace(mixture, every_token=True)

    def make(kind: tuple[bool, bool]) -> Layer:
        is_sparse, has_positions = kind
        dense_size = fields.count("intermediate_size_mlp") if not is_sparse else 1
        chunked = has_positions and chunk is not None
        return Layer(
            class_name="Llama4TextDecoderLayer",
            mixer=grouped_attention(
                heads,
                bias=bias,
                output_bias=bias,
                query_key_norm="unlearned" if unlearned and has_positions else "no",
                rotary=has_positions,
                kind=AttentionKind.CHUNKED if chunked else AttentionKind.FULL,
                window=chunk if chunked else None,
            ),
            feed_forward=mixture
            if is_sparse
            else gated_feed_forward(heads.hidden_size, dense_size, prefix="feed_forward"),
            norms=tuple(norm(name, heads.hidden_size) for name in _NORMS),
        )

    kinds = [
        ((position + 1) % step == 0, bool((position + 1) % interval))
        for position in range(num_layers)
    ]
    return language_model(
        fields,
        model_type="llama4_text",
        hidden_size=heads.hidden_size,
        groups=group_layers(kinds, make),
    )
