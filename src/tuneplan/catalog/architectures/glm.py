"""GLM-4 and GLM-4.5 as transformers 5.24.0 holds them; GLM-4.7 and 5 are in ``latent.py``."""

from __future__ import annotations

from tuneplan.catalog.architectures.fields import Fields
from tuneplan.catalog.architectures.mixtures import (
    gated_experts,
    read_num_experts,
    router_bias_buffer,
)
from tuneplan.catalog.architectures.parts import (
    gated_feed_forward,
    group_layers,
    grouped_attention,
    language_model,
    norm,
    read_heads,
    uniform_layers,
)
from tuneplan.spec.architecture import Layer, ModelArchitecture

_NORMS = ("input_layernorm", "post_attention_layernorm")


def glm(fields: Fields) -> ModelArchitecture:
    """GLM-4 9B in transformers' own form: biases on q, k, v; fused gate and up."""
    return _glm(fields, model_type="glm", class_name="GlmDecoderLayer", norms=_NORMS, bias=True)


def glm4(fields: Fields) -> ModelArchitecture:
    """GLM-4 0414: GLM with a norm after each block as well."""
    norms = (
        "input_layernorm",
        "post_self_attn_layernorm",
        "post_attention_layernorm",
        "post_mlp_layernorm",
    )
    return _glm(fields, model_type="glm4", class_name="Glm4DecoderLayer", norms=norms, bias=False)


def _glm(
    fields: Fields, *, model_type: str, class_name: str, norms: tuple[str, ...], bias: bool
) -> ModelArchitecture:
    heads = read_heads(fields)
    layer = Layer(
        class_name=class_name,
        mixer=grouped_attention(heads, bias=fields.flag("attention_bias", default=bias)),
        feed_forward=gated_feed_forward(
            heads.hidden_size,
            fields.count("intermediate_size"),
            activation=fields.text("hidden_act", default="silu"),
            fused=True,
        ),
        norms=tuple(norm(name, heads.hidden_size) for name in norms),
    )
    return language_model(
        fields,
        model_type=model_type,
        hidden_size=heads.hidden_size,
        groups=uniform_layers(layer, fields.count("num_hidden_layers"), prefix="model.layers"),
    )


def glm4_moe(fields: Fields) -> ModelArchitecture:
    """GLM-4.5: dense layers first, then shared and routed experts with a bias in the router."""
    heads = read_heads(fields)
    num_layers = fields.count("num_hidden_layers")
    first = fields.count("first_k_dense_replace", default=1)
    num_experts, per_token = read_num_experts(fields, "n_routed_experts")
    expert_size = fields.count("moe_intermediate_size")
    mixture = gated_experts(
        heads.hidden_size,
        expert_size,
        num_experts=num_experts,
        num_experts_per_tok=per_token,
        more=(router_bias_buffer("mlp.gate", num_experts),),
        shared=gated_feed_forward(
            heads.hidden_size,
            expert_size * fields.count("n_shared_experts"),
            prefix="mlp.shared_experts",
        ),
    )
    dense = gated_feed_forward(heads.hidden_size, fields.count("intermediate_size"))
    attention = grouped_attention(
        heads,
        bias=fields.flag("attention_bias", default=False),
        query_key_norm="head" if fields.flag("use_qk_norm", default=False) else "no",
    )

    def make(is_sparse: bool) -> Layer:  # noqa: FBT001
        return Layer(
            class_name="Glm4MoeDecoderLayer",
            mixer=attention,
            feed_forward=mixture if is_sparse else dense,
            norms=tuple(norm(name, heads.hidden_size) for name in _NORMS),
        )

    return language_model(
        fields,
        model_type="glm4_moe",
        hidden_size=heads.hidden_size,
        groups=group_layers([position >= first for position in range(num_layers)], make),
    )
