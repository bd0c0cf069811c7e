"""Hybrids: most layers mix tokens in linear time, some attend.

Qwen3-Next and Qwen 3.5 (gated delta rule), MiniMax-Text-01 (lightning attention); Nemotron is in
``nemotron.py``. Names as in transformers 5.24.0.
"""

from __future__ import annotations

from tuneplan.catalog.architectures.fields import Fields
from tuneplan.catalog.architectures.mixtures import (
    gated_experts,
    gated_shared_expert,
    read_num_experts,
)
from tuneplan.catalog.architectures.parts import (
    bare,
    convolution,
    gated_feed_forward,
    group_layers,
    grouped_attention,
    language_model,
    linear,
    norm,
    read_heads,
)
from tuneplan.catalog.architectures.qwen_vision import LANGUAGE_ROOT, text_section, with_qwen3_tower
from tuneplan.spec.architecture import Layer, ModelArchitecture
from tuneplan.spec.blocks import FeedForward, MixtureOfExperts, Recurrence, RecurrenceKind
from tuneplan.spec.weights import Weight

_NORMS = ("input_layernorm", "post_attention_layernorm")
_DELTA_CHUNK = 64  # chunk_size of torch_chunk_gated_delta_rule and of flash-linear-attention
_LIGHTNING_BLOCK = 256  # ``block_size`` of MiniMaxConfig


def qwen3_next(fields: Fields) -> ModelArchitecture:
    """Qwen3-Next: fused input projections, experts in every layer."""
    return _delta_model(
        fields,
        model_type="qwen3_next",
        class_name="Qwen3NextDecoderLayer",
        fused=True,
        feed_forward=_qwen_mixture(fields),
        root="model",
    )


def qwen3_5(fields: Fields) -> ModelArchitecture:
    """Qwen 3.5 and 3.6, dense, with their image tower."""
    text = text_section(fields)
    model = qwen3_5_text(text, root=LANGUAGE_ROOT)
    return with_qwen3_tower(model, fields, block="Qwen3_5VisionBlock", tower="Qwen3_5VisionModel")


def qwen3_5_text(fields: Fields, *, root: str = "model") -> ModelArchitecture:
    """The language model of Qwen 3.5, dense."""
    return _delta_model(
        fields,
        model_type="qwen3_5" if root != "model" else "qwen3_5_text",
        class_name="Qwen3_5DecoderLayer",
        fused=False,
        feed_forward=gated_feed_forward(
            fields.count("hidden_size"), fields.count("intermediate_size")
        ),
        root=root,
    )


def qwen3_5_moe(fields: Fields) -> ModelArchitecture:
    """Qwen 3.5 and 3.6 with experts, with their image tower."""
    text = text_section(fields)
    model = qwen3_5_moe_text(text, root=LANGUAGE_ROOT)
    return with_qwen3_tower(
        model, fields, block="Qwen3_5MoeVisionBlock", tower="Qwen3_5MoeVisionModel"
    )


def qwen3_5_moe_text(fields: Fields, *, root: str = "model") -> ModelArchitecture:
    """The language model of Qwen 3.5 with experts."""
    return _delta_model(
        fields,
        model_type="qwen3_5_moe" if root != "model" else "qwen3_5_moe_text",
        class_name="Qwen3_5MoeDecoderLayer",
        fused=False,
        feed_forward=_qwen_mixture(fields),
        root=root,
    )


def _qwen_mixture(fields: Fields) -> MixtureOfExperts:
    hidden_size = fields.count("hidden_size")
    num_experts, per_token = read_num_experts(fields, "num_experts")
    shared, gate = gated_shared_expert(
        hidden_size, fields.optional_count("shared_expert_intermediate_size")
    )
    return gated_experts(
        hidden_size,
        fields.count("moe_intermediate_size"),
        num_experts=num_experts,
        num_experts_per_tok=per_token,
        more=gate,
        shared=shared,
    )


def _delta_model(
    fields: Fields,
    *,
    model_type: str,
    class_name: str,
    fused: bool,
    feed_forward: FeedForward | MixtureOfExperts,
    root: str,
) -> ModelArchitecture:
    heads = read_heads(fields)
    num_layers = fields.count("num_hidden_layers")
    bias = fields.flag("attention_bias", default=False)

    def make(attends: bool) -> Layer:  # noqa: FBT001
        attention = grouped_attention(
            heads, bias=bias, output_bias=bias, query_key_norm="head", output_gate=True
        )
        return Layer(
            class_name=class_name,
            mixer=attention if attends else _gated_delta(fields, heads.hidden_size, fused=fused),
            feed_forward=feed_forward,
            norms=tuple(norm(name, heads.hidden_size) for name in _NORMS),
        )

    return language_model(
        fields,
        model_type=model_type,
        hidden_size=heads.hidden_size,
        groups=group_layers(
            _full_layers(fields, num_layers, interval=4), make, prefix=f"{root}.layers"
        ),
        root=root,
    )


def _full_layers(fields: Fields, num_layers: int, *, interval: int) -> list[bool]:
    """For each layer whether it attends: ``layer_types``, else each ``interval``-th."""
    stated = fields.words("layer_types", length=num_layers)
    if stated is not None:
        return [word == "full_attention" for word in stated]
    every = fields.derived_count("full_attention_interval", otherwise=interval)
    return [(position + 1) % every == 0 for position in range(num_layers)]


def _gated_delta(fields: Fields, hidden_size: int, *, fused: bool) -> Recurrence:
    """Gated delta rule (Yang et al. 2024): q, k, v through a short convolution, a gate beside."""
    key_heads = fields.count("linear_num_key_heads")
    value_heads = fields.count("linear_num_value_heads")
    key_dim = fields.count("linear_key_head_dim")
    value_dim = fields.count("linear_value_head_dim")
    kernel = fields.count("linear_conv_kernel_dim", default=4)
    fields.must_divide("linear_num_key_heads", key_heads, "linear_num_value_heads", value_heads)
    key_size, value_size = key_heads * key_dim, value_heads * value_dim
    channels = 2 * key_size + value_size
    return Recurrence(
        weights=(
            *_delta_inputs(hidden_size, channels, value_size, value_heads, fused=fused),
            convolution("linear_attn.conv1d", channels, 1, kernel),
            bare("linear_attn.dt_bias", value_heads),
            bare("linear_attn.A_log", value_heads),
            norm("linear_attn.norm", value_dim),
            linear("linear_attn.out_proj", hidden_size, value_size),
        ),
        kind=RecurrenceKind.GATED_DELTA,
        num_heads=value_heads,
        num_key_heads=key_heads,
        key_head_dim=key_dim,
        value_head_dim=value_dim,
        conv_kernel=kernel,
        conv_channels=channels,
        chunk_size=_DELTA_CHUNK,
    )


def _delta_inputs(
    hidden_size: int, channels: int, value_size: int, value_heads: int, *, fused: bool
) -> tuple[Weight, ...]:
    prefix = "linear_attn.in_proj_"
    if fused:
        return (
            linear(f"{prefix}qkvz", channels + value_size, hidden_size),
            linear(f"{prefix}ba", 2 * value_heads, hidden_size),
        )
    return (
        linear(f"{prefix}qkv", channels, hidden_size),
        linear(f"{prefix}z", value_size, hidden_size),
        linear(f"{prefix}b", value_heads, hidden_size),
        linear(f"{prefix}a", value_heads, hidden_size),
    )


def minimax(fields: Fields) -> ModelArchitecture:
    """MiniMax-Text-01: lightning attention, softmax attention in each eighth layer, experts."""
    heads = read_heads(fields)
    num_layers = fields.count("num_hidden_layers")
    num_experts, per_token = read_num_experts(fields, "num_local_experts")
    mixture = gated_experts(
        heads.hidden_size,
        fields.count("intermediate_size"),
        num_experts=num_experts,
        num_experts_per_tok=per_token,
    )
    size = heads.query_size
    lightning = Recurrence(
        weights=(
            linear("self_attn.qkv_proj", 3 * size, heads.hidden_size),
            linear("self_attn.out_proj", heads.hidden_size, size),
            linear("self_attn.output_gate", size, heads.hidden_size),
            norm("self_attn.norm", size),
        ),
        kind=RecurrenceKind.LIGHTNING,
        num_heads=heads.num_attention_heads,
        num_key_heads=heads.num_attention_heads,
        key_head_dim=heads.head_dim,
        value_head_dim=heads.head_dim,
        chunk_size=fields.derived_count("block_size", otherwise=_LIGHTNING_BLOCK),
    )

    def make(attends: bool) -> Layer:  # noqa: FBT001
        return Layer(
            class_name="MiniMaxDecoderLayer",
            mixer=grouped_attention(heads) if attends else lightning,
            feed_forward=mixture,
            norms=tuple(norm(name, heads.hidden_size) for name in _NORMS),
        )

    return language_model(
        fields,
        model_type="minimax",
        hidden_size=heads.hidden_size,
        groups=group_layers(_full_layers(fields, num_layers, interval=2), make),
    )
