"""Mixtures of experts with ordinary attention.

Mixtral, Qwen 1.5/3 MoE, Phi-3.5 MoE, MiniMax M2, gpt-oss. Experts are stacked as transformers 5
holds them; names as in transformers 5.24.0. The other mixtures borrow ``gated_experts``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tuneplan.catalog.architectures.fields import Fields
from tuneplan.catalog.architectures.parts import (
    Heads,
    bare,
    experts,
    gated_feed_forward,
    group_layers,
    grouped_attention,
    language_model,
    linear,
    norm,
    read_heads,
    router,
    sliding_kinds,
    uniform_layers,
    window_settings,
)
from tuneplan.spec.architecture import Layer, ModelArchitecture
from tuneplan.spec.blocks import FeedForward, MixtureOfExperts
from tuneplan.spec.weights import Weight

_NORMS = ("input_layernorm", "post_attention_layernorm")


def gated_experts(
    hidden_size: int,
    intermediate_size: int,
    *,
    num_experts: int,
    num_experts_per_tok: int,
    prefix: str = "mlp",
    router_name: str = "gate",
    router_bias: bool = False,
    router_is_linear: bool = False,
    bias: bool = False,
    activation: str = "silu",
    more: tuple[Weight, ...] = (),
    shared: FeedForward | None = None,
) -> MixtureOfExperts:
    """Gated routed experts: router, ``gate_up_proj``, ``down_proj``, then what ``more`` adds.

    With ``router_is_linear`` the router is a linear, which quantisers take; so does PEFT, whose
    LoRA fails on it, since it returns scores and choices together.
    """
    score = _linear_router if router_is_linear else router
    return MixtureOfExperts(
        weights=(
            score(f"{prefix}.{router_name}", num_experts, hidden_size, bias=router_bias),
            experts(
                f"{prefix}.experts.gate_up_proj",
                num_experts,
                2 * intermediate_size,
                hidden_size,
                bias=bias,
            ),
            experts(
                f"{prefix}.experts.down_proj",
                num_experts,
                hidden_size,
                intermediate_size,
                bias=bias,
            ),
            *more,
        ),
        num_experts=num_experts,
        num_experts_per_tok=num_experts_per_tok,
        intermediate_size=intermediate_size,
        gated=True,
        activation=activation,
        shared=shared,
    )


def read_num_experts(fields: Fields, *names: str) -> tuple[int, int]:
    """Experts and experts per token; the second must not exceed the first."""
    num_experts = fields.count(*names)
    per_token = fields.count("num_experts_per_tok", "num_experts_per_token", "top_k_experts")
    fields.must_not_exceed("num_experts_per_tok", per_token, names[0], num_experts)
    return num_experts, per_token


def _linear_router(name: str, num_experts: int, hidden_size: int, *, bias: bool = False) -> Weight:
    """Source: transformers 5.24 ``Llama4Router``, ``PhimoeTopKRouter`` (both ``nn.Linear``)."""
    return replace(linear(name, num_experts, hidden_size, bias=bias), takes_lora=False)


def router_bias_buffer(prefix: str, num_experts: int) -> Weight:
    """The bias that balances the experts: counted by the hub, never trained."""
    return bare(f"{prefix}.e_score_correction_bias", num_experts, buffer=True)


def mixtral(fields: Fields) -> ModelArchitecture:
    """Mixtral 8x7B and 8x22B."""
    heads = read_heads(fields)
    num_experts, per_token = read_num_experts(fields, "num_local_experts")
    return _uniform_mixture(
        fields,
        model_type="mixtral",
        class_name="MixtralDecoderLayer",
        heads=heads,
        attention=window_settings(slides=True, window=fields.optional_count("sliding_window")),
        mixture=gated_experts(
            heads.hidden_size,
            fields.count("intermediate_size"),
            num_experts=num_experts,
            num_experts_per_tok=per_token,
        ),
    )


def phimoe(fields: Fields) -> ModelArchitecture:
    """Phi-3.5 MoE: layer norms with biases, biases on attention, and on the head where stated."""
    heads = read_heads(fields)
    bias = fields.flag("attention_bias", default=False)
    num_experts, per_token = read_num_experts(fields, "num_local_experts")
    return _uniform_mixture(
        fields,
        model_type="phimoe",
        class_name="PhimoeDecoderLayer",
        heads=heads,
        attention={
            "bias": bias,
            "output_bias": bias,
            **window_settings(slides=True, window=fields.optional_count("sliding_window")),
        },
        mixture=gated_experts(
            heads.hidden_size,
            fields.count("intermediate_size"),
            num_experts=num_experts,
            num_experts_per_tok=per_token,
            router_name="router",
            router_is_linear=True,
        ),
        norm_bias=True,
        head_bias=fields.flag("lm_head_bias", default=False),
    )


def minimax_m2(fields: Fields) -> ModelArchitecture:
    """MiniMax M2: queries and keys normalised over their whole width, router bias buffers."""
    heads = read_heads(fields)
    num_experts, per_token = read_num_experts(fields, "num_local_experts")
    return _uniform_mixture(
        fields,
        model_type="minimax_m2",
        class_name="MiniMaxM2DecoderLayer",
        heads=heads,
        attention={"query_key_norm": "all"},
        mixture=gated_experts(
            heads.hidden_size,
            fields.count("intermediate_size"),
            num_experts=num_experts,
            num_experts_per_tok=per_token,
            more=(router_bias_buffer("mlp", num_experts),),
        ),
    )


def gpt_oss(fields: Fields) -> ModelArchitecture:
    """gpt-oss: sinks, biases everywhere, every second layer slides."""
    heads = read_heads(fields)
    window = fields.optional_count("sliding_window")
    num_layers = fields.count("num_hidden_layers")
    num_experts, per_token = read_num_experts(fields, "num_local_experts", "num_experts")
    bias = fields.flag("attention_bias", default=True)
    mixture = gated_experts(
        heads.hidden_size,
        fields.count("intermediate_size"),
        num_experts=num_experts,
        num_experts_per_tok=per_token,
        router_name="router",
        router_bias=True,
        bias=True,
    )
    mixture = replace(mixture, activation="clamped_swiglu")

    def make(slides: bool) -> Layer:  # noqa: FBT001
        return Layer(
            class_name="GptOssDecoderLayer",
            mixer=grouped_attention(
                heads,
                bias=bias,
                output_bias=bias,
                extra=(bare("self_attn.sinks", heads.num_attention_heads),),
                sinks=True,
                **window_settings(slides=slides, window=window),
            ),
            feed_forward=mixture,
            norms=tuple(norm(name, heads.hidden_size) for name in _NORMS),
        )

    return language_model(
        fields,
        model_type="gpt_oss",
        hidden_size=heads.hidden_size,
        groups=group_layers(sliding_kinds(fields, num_layers, pattern=2), make),
    )


def qwen2_moe(fields: Fields) -> ModelArchitecture:
    """Qwen 1.5 MoE and Qwen 2 57B: one shared expert behind a gate."""
    heads = read_heads(fields)
    shared_size = fields.optional_count("shared_expert_intermediate_size")
    return _sparse_model(
        fields,
        model_type="qwen2_moe",
        class_name="Qwen2MoeDecoderLayer",
        heads=heads,
        attention={"bias": fields.flag("qkv_bias", default=True)},
        shared_size=shared_size,
    )


def qwen3_moe(fields: Fields) -> ModelArchitecture:
    """Qwen 3 MoE: no shared expert, queries and keys normalised per head."""
    return qwen3_moe_text(fields, model_type="qwen3_moe", class_name="Qwen3MoeDecoderLayer")


def qwen3_moe_text(
    fields: Fields, *, model_type: str, class_name: str, root: str = "model"
) -> ModelArchitecture:
    """The language model of Qwen 3 MoE and Qwen 3 VL MoE."""
    bias = fields.flag("attention_bias", default=False)
    return _sparse_model(
        fields,
        model_type=model_type,
        class_name=class_name,
        heads=read_heads(fields),
        attention={"bias": bias, "output_bias": bias, "query_key_norm": "head"},
        shared_size=None,
        root=root,
    )


def gated_shared_expert(
    hidden_size: int, shared_size: int | None
) -> tuple[FeedForward | None, tuple[Weight, ...]]:
    """Qwen's shared expert and the weight of its gate."""
    if shared_size is None:
        return None, ()
    shared = gated_feed_forward(hidden_size, shared_size, prefix="mlp.shared_expert")
    return shared, (linear("mlp.shared_expert_gate", 1, hidden_size),)


def _sparse_model(
    fields: Fields,
    *,
    model_type: str,
    class_name: str,
    heads: Heads,
    attention: dict[str, Any],
    shared_size: int | None,
    root: str = "model",
) -> ModelArchitecture:
    """Qwen's mixtures: dense where ``mlp_only_layers`` or ``decoder_sparse_step`` say so."""
    num_layers = fields.count("num_hidden_layers")
    num_experts, per_token = read_num_experts(fields, "num_experts")
    step = fields.derived_count("decoder_sparse_step", otherwise=1)
    dense_layers = fields.config.get("mlp_only_layers") or ()
    sparse = [
        position not in dense_layers and (position + 1) % step == 0
        for position in range(num_layers)
    ]
    shared, gate = gated_shared_expert(heads.hidden_size, shared_size)
    mixture = gated_experts(
        heads.hidden_size,
        fields.count("moe_intermediate_size"),
        num_experts=num_experts,
        num_experts_per_tok=per_token,
        more=gate,
        shared=shared,
    )

    def make(is_sparse: bool) -> Layer:  # noqa: FBT001
        return Layer(
            class_name=class_name,
            mixer=grouped_attention(heads, **attention),
            feed_forward=mixture
            if is_sparse
            else gated_feed_forward(heads.hidden_size, fields.count("intermediate_size")),
            norms=tuple(norm(name, heads.hidden_size) for name in _NORMS),
        )

    return language_model(
        fields,
        model_type=model_type,
        hidden_size=heads.hidden_size,
        groups=group_layers(sparse, make, prefix=f"{root}.layers"),
        root=root,
    )


def _uniform_mixture(
    fields: Fields,
    *,
    model_type: str,
    class_name: str,
    heads: Heads,
    attention: dict[str, Any],
    mixture: MixtureOfExperts,
    norm_bias: bool = False,
    head_bias: bool = False,
) -> ModelArchitecture:
    """Equal layers of attention and experts."""
    layer = Layer(
        class_name=class_name,
        mixer=grouped_attention(heads, **attention),
        feed_forward=mixture,
        norms=tuple(norm(name, heads.hidden_size, bias=norm_bias) for name in _NORMS),
    )
    return language_model(
        fields,
        model_type=model_type,
        hidden_size=heads.hidden_size,
        groups=uniform_layers(layer, fields.count("num_hidden_layers"), prefix="model.layers"),
        final_norm=norm("model.norm", heads.hidden_size, bias=norm_bias),
        head_bias=head_bias,
    )
