"""Yuan 2.0 M32: localized filtering before queries and keys, a router that attends over experts.

Follows the model code published with its weights (``yuan_moe_hf_model.py``). Its 32 experts are
separate modules there (``w1``, ``w2``); they are described stacked, like all experts here.
"""

from __future__ import annotations

from tuneplan.catalog.architectures.fields import Fields
from tuneplan.catalog.architectures.parts import (
    convolution,
    experts,
    language_model,
    linear,
    norm,
    router,
    uniform_layers,
)
from tuneplan.spec.architecture import Layer, ModelArchitecture
from tuneplan.spec.blocks import Attention, MixtureOfExperts


def yuan(fields: Fields) -> ModelArchitecture:
    """Yuan 2.0 M32."""
    hidden_size = fields.count("hidden_size")
    mixture = fields.section("moe_config")
    num_experts = mixture.count("moe_num_experts")
    per_token = mixture.count("moe_top_k")
    mixture.must_not_exceed("moe_top_k", per_token, "moe_num_experts", num_experts)
    size = mixture.count("ffn_hidden_size")
    layer = Layer(
        class_name="YuanDecoderLayer",
        mixer=_attention(fields, hidden_size),
        feed_forward=MixtureOfExperts(
            weights=(
                *(
                    router(f"mlp.router.{name}", num_experts, hidden_size)
                    for name in ("query", "key", "value")
                ),
                experts("mlp.experts.w1", num_experts, 2 * size, hidden_size),
                experts("mlp.experts.w2", num_experts, hidden_size, size),
            ),
            num_experts=num_experts,
            num_experts_per_tok=per_token,
            intermediate_size=size,
            gated=True,
            activation=fields.text("hidden_act", default="silu"),
        ),
        norms=(
            norm("input_layernorm", hidden_size),
            norm("post_attention_layernorm", hidden_size),
        ),
    )
    return language_model(
        fields,
        model_type="yuan",
        hidden_size=hidden_size,
        groups=uniform_layers(layer, fields.count("num_hidden_layers"), prefix="model.layers"),
    )


def _attention(fields: Fields, hidden_size: int) -> Attention:
    num_heads = fields.count("num_attention_heads")
    size = fields.derived_count("attention_projection_size", otherwise=hidden_size)
    fields.must_divide("num_attention_heads", num_heads, "attention_projection_size", size)
    half = max(1, hidden_size // 2)
    return Attention(
        weights=(
            linear("self_attn.v_proj", size, hidden_size),
            convolution("self_attn.lf_gate.conv1", half, hidden_size, 2, 1, bias=True),
            convolution("self_attn.lf_gate.conv2", hidden_size, half, 2, 1, bias=True),
            norm("self_attn.lf_gate.output_layernorm", hidden_size),
            linear("self_attn.q_proj", size, hidden_size),
            linear("self_attn.k_proj", size, hidden_size),
            linear("self_attn.o_proj", hidden_size, size),
        ),
        num_attention_heads=num_heads,
        num_key_value_heads=num_heads,
        head_dim=max(1, size // num_heads),
        v_head_dim=max(1, size // num_heads),
    )
