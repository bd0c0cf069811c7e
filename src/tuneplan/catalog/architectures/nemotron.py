"""Nemotron-H and Nemotron 3: Mamba-2 with a few attention layers (transformers 5.24.0)."""

from __future__ import annotations

from collections.abc import Callable

from tuneplan.catalog.architectures.fields import Fields
from tuneplan.catalog.architectures.mixtures import read_num_experts, router_bias_buffer
from tuneplan.catalog.architectures.parts import (
    bare,
    convolution,
    experts,
    group_layers,
    grouped_attention,
    language_model,
    linear,
    norm,
    read_heads,
    router,
)
from tuneplan.spec.architecture import Layer, ModelArchitecture
from tuneplan.spec.blocks import (
    Attention,
    FeedForward,
    MixtureOfExperts,
    Recurrence,
    RecurrenceKind,
)


def nemotron_h(fields: Fields) -> ModelArchitecture:
    """Nemotron-H and Nemotron 3: a pattern of M (Mamba-2), * (attention), E (experts), - (dense).

    Each layer holds one of them behind one norm.
    """
    hidden_size = fields.count("hidden_size")
    num_layers = fields.derived_count(
        "num_hidden_layers", otherwise=len(fields.config.get("layers_block_type") or ())
    )
    pattern = _nemotron_pattern(fields, num_layers)
    parts: dict[str, Callable[[], Layer]] = {
        "M": lambda: _nemotron_layer(hidden_size, mixer=_mamba2(fields, hidden_size)),
        "*": lambda: _nemotron_layer(
            hidden_size, mixer=grouped_attention(read_heads(fields), prefix="mixer", rotary=False)
        ),
        "-": lambda: _nemotron_layer(
            hidden_size,
            feed_forward=_squared(hidden_size, fields.count("intermediate_size"), prefix="mixer"),
        ),
        "E": lambda: _nemotron_layer(hidden_size, feed_forward=_nemotron_experts(fields)),
    }
    return language_model(
        fields,
        model_type="nemotron_h",
        hidden_size=hidden_size,
        groups=group_layers(pattern, lambda sign: parts[sign]()),
        final_norm=norm("model.norm_f", hidden_size),
        token_embedding="model.embeddings",  # noqa: S106  a module's name
    )


def _nemotron_pattern(fields: Fields, num_layers: int) -> str:
    words = {"mamba": "M", "attention": "*", "moe": "E", "mlp": "-"}
    stated = fields.words("layers_block_type", length=num_layers)
    if stated is not None:
        pattern = "".join(words.get(word, "?") for word in stated)
    else:
        pattern = fields.text("hybrid_override_pattern", default="")
    if not pattern or len(pattern) != num_layers or set(pattern) - set("M*E-"):
        fields.impossible(
            "hybrid_override_pattern", pattern, f"one of M * E - for each of {num_layers} layers"
        )
        return "M" * num_layers
    return pattern


def _nemotron_layer(
    hidden_size: int,
    *,
    mixer: Attention | Recurrence | None = None,
    feed_forward: FeedForward | MixtureOfExperts | None = None,
) -> Layer:
    return Layer(
        class_name="NemotronHBlock",
        mixer=mixer,
        feed_forward=feed_forward,
        norms=(norm("norm", hidden_size),),
    )


def _mamba2(fields: Fields, hidden_size: int) -> Recurrence:
    """Mamba-2 (Dao and Gu 2024): gate, x, B, C and dt from one projection."""
    num_heads = fields.count("mamba_num_heads")
    head_dim = fields.count("mamba_head_dim")
    groups = fields.count("n_groups", default=8)
    state = fields.count("ssm_state_size", default=128)
    kernel = fields.count("conv_kernel", default=4)
    inner = num_heads * head_dim
    channels = inner + 2 * groups * state
    bias = fields.flag("use_bias", default=False)
    return Recurrence(
        weights=(
            linear("mixer.in_proj", inner + channels + num_heads, hidden_size, bias=bias),
            convolution(
                "mixer.conv1d", channels, 1, kernel, bias=fields.flag("use_conv_bias", default=True)
            ),
            bare("mixer.dt_bias", num_heads),
            bare("mixer.A_log", num_heads),
            bare("mixer.D", num_heads),
            norm("mixer.norm", inner),
            linear("mixer.out_proj", hidden_size, inner, bias=bias),
        ),
        kind=RecurrenceKind.MAMBA2,
        num_heads=num_heads,
        num_key_heads=groups,
        key_head_dim=state,
        value_head_dim=head_dim,
        conv_kernel=kernel,
        conv_channels=channels,
        chunk_size=fields.derived_count("chunk_size", otherwise=128),
    )


def _squared(hidden_size: int, intermediate_size: int, *, prefix: str) -> FeedForward:
    """``down(relu(up(x)) ** 2)``."""
    return FeedForward(
        weights=(
            linear(f"{prefix}.up_proj", intermediate_size, hidden_size),
            linear(f"{prefix}.down_proj", hidden_size, intermediate_size),
        ),
        intermediate_size=intermediate_size,
        gated=False,
        activation="relu2",
    )


def _nemotron_experts(fields: Fields) -> MixtureOfExperts:
    """Plain experts, in a narrow latent space where ``moe_latent_size`` is stated."""
    hidden_size = fields.count("hidden_size")
    size = fields.count("moe_intermediate_size")
    latent = fields.optional_count("moe_latent_size")
    width = latent or hidden_size
    num_experts, per_token = read_num_experts(fields, "n_routed_experts")
    latent_weights = (
        ()
        if latent is None
        else (
            linear("mixer.fc1_latent_proj", latent, hidden_size),
            linear("mixer.fc2_latent_proj", hidden_size, latent),
        )
    )
    return MixtureOfExperts(
        weights=(
            router("mixer.gate", num_experts, hidden_size),
            experts("mixer.experts.up_proj", num_experts, size, width),
            experts("mixer.experts.down_proj", num_experts, width, size),
            *latent_weights,
            router_bias_buffer("mixer.gate", num_experts),
        ),
        num_experts=num_experts,
        num_experts_per_tok=per_token,
        intermediate_size=size,
        gated=False,
        activation=fields.text("mlp_hidden_act", default="relu2"),
        shared=_squared(
            hidden_size,
            fields.count("moe_shared_expert_intermediate_size"),
            prefix="mixer.shared_experts",
        ),
        latent_size=latent,
    )
