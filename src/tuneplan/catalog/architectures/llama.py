"""Llama and the models that differ from it by a bias, a norm or a window.

Module names and biases as in transformers 5.24.0, ``modeling_llama.py`` and its siblings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tuneplan.catalog.architectures.fields import Fields
from tuneplan.catalog.architectures.parts import (
    gated_feed_forward,
    group_layers,
    grouped_attention,
    language_model,
    norm,
    read_heads,
    sliding_kinds,
    window_settings,
)
from tuneplan.spec.architecture import Layer, ModelArchitecture

NORMS = ("input_layernorm", "post_attention_layernorm")


def _decoder(
    fields: Fields,
    *,
    model_type: str,
    class_name: str,
    attention: dict[str, Any],
    norms: tuple[str, ...] = NORMS,
    feed_forward_bias: bool = False,
    kinds: list[Any] | None = None,
    settings_of: Callable[[Any], dict[str, Any]] = lambda _: {},
    tied_by_default: bool = False,
    root: str = "model",
    scaled: bool = False,
) -> ModelArchitecture:
    """A Llama-shaped decoder; ``kinds`` has one entry per layer, ``settings_of`` its meaning.

    ``scaled``: embeddings, block outputs and logits are multiplied by numbers (Granite).
    """
    num_layers = fields.count("num_hidden_layers")
    heads = read_heads(fields)
    feed_forward = gated_feed_forward(
        heads.hidden_size,
        fields.count("intermediate_size"),
        activation=fields.text("hidden_act", default="silu"),
        bias=feed_forward_bias,
    )

    def make(kind: Any) -> Layer:
        return Layer(
            class_name=class_name,
            mixer=grouped_attention(heads, **attention, **settings_of(kind)),
            feed_forward=feed_forward,
            norms=tuple(norm(name, heads.hidden_size) for name in norms),
            residual_scale=scaled,
        )

    return language_model(
        fields,
        model_type=model_type,
        hidden_size=heads.hidden_size,
        groups=group_layers(kinds or [None] * num_layers, make, prefix=f"{root}.layers"),
        root=root,
        tied_by_default=tied_by_default,
        embedding_scale=scaled,
        logit_scale=scaled,
    )


def llama(fields: Fields) -> ModelArchitecture:
    """Llama 1 to 3, TinyLlama, Yi, SmolLM2, Falcon 3, the Llama distillations of DeepSeek."""
    bias = fields.flag("attention_bias", default=False)
    return _decoder(
        fields,
        model_type="llama",
        class_name="LlamaDecoderLayer",
        attention={"bias": bias, "output_bias": bias},
        feed_forward_bias=fields.flag("mlp_bias", default=False),
    )


def granite(fields: Fields) -> ModelArchitecture:
    """IBM Granite 3 and PowerLM: Llama with multipliers on embeddings, residuals and logits."""
    bias = fields.flag("attention_bias", default=False)
    return _decoder(
        fields,
        model_type="granite",
        class_name="GraniteDecoderLayer",
        attention={"bias": bias, "output_bias": bias},
        feed_forward_bias=fields.flag("mlp_bias", default=False),
        scaled=True,
    )


def mistral(fields: Fields) -> ModelArchitecture:
    """Mistral 7B to Large: one window for all layers, or none."""
    window = fields.optional_count("sliding_window")
    return _decoder(
        fields,
        model_type="mistral",
        class_name="MistralDecoderLayer",
        attention=window_settings(slides=True, window=window),
    )


def qwen2(fields: Fields) -> ModelArchitecture:
    """Qwen 1.5, 2 and 2.5."""
    return qwen2_text(fields, model_type="qwen2", class_name="Qwen2DecoderLayer")


def qwen2_text(
    fields: Fields, *, model_type: str, class_name: str, root: str = "model"
) -> ModelArchitecture:
    """The language model of Qwen 2 and Qwen 2.5 VL: biases on q, k and v alone."""
    kinds, settings_of = _optional_windows(fields)
    return _decoder(
        fields,
        model_type=model_type,
        class_name=class_name,
        attention={"bias": True},
        kinds=kinds,
        settings_of=settings_of,
        root=root,
    )


def qwen3(fields: Fields) -> ModelArchitecture:
    """Qwen 3, dense."""
    return qwen3_text(fields, model_type="qwen3", class_name="Qwen3DecoderLayer")


def qwen3_text(
    fields: Fields, *, model_type: str, class_name: str, root: str = "model"
) -> ModelArchitecture:
    """The language model of Qwen 3 and Qwen 3 VL: queries and keys normalised per head."""
    bias = fields.flag("attention_bias", default=False)
    kinds, settings_of = _optional_windows(fields)
    return _decoder(
        fields,
        model_type=model_type,
        class_name=class_name,
        attention={"bias": bias, "output_bias": bias, "query_key_norm": "head"},
        kinds=kinds,
        settings_of=settings_of,
        root=root,
    )


def _optional_windows(fields: Fields) -> tuple[list[bool], Callable[[bool], dict[str, Any]]]:
    """Qwen's windows: off unless ``use_sliding_window``, then from ``max_window_layers`` on."""
    num_layers = fields.count("num_hidden_layers")
    window = fields.optional_count("sliding_window")
    kinds = [False] * num_layers
    if fields.flag("use_sliding_window", default=False) and window is not None:
        first = fields.count("max_window_layers", default=28)
        kinds = [position >= first for position in range(num_layers)]
        if fields.config.get("layer_types") is not None:
            kinds = sliding_kinds(fields, num_layers)
    return kinds, lambda slides: window_settings(slides=slides, window=window)


def smollm3(fields: Fields) -> ModelArchitecture:
    """SmolLM3: every fourth layer knows no positions."""
    num_layers = fields.count("num_hidden_layers")
    bias = fields.flag("attention_bias", default=False)
    interval = fields.optional_count("no_rope_layer_interval") or 4
    stated = fields.words("no_rope_layers", length=num_layers)
    rotary = (
        [word == "1" for word in stated]
        if stated is not None
        else [bool((position + 1) % interval) for position in range(num_layers)]
    )
    return _decoder(
        fields,
        model_type="smollm3",
        class_name="SmolLM3DecoderLayer",
        attention={"bias": bias, "output_bias": bias},
        feed_forward_bias=fields.flag("mlp_bias", default=False),
        kinds=rotary,
        settings_of=lambda has_positions: {"rotary": has_positions},
        tied_by_default=True,
    )


def internlm3(fields: Fields) -> ModelArchitecture:
    """InternLM 3: ``qkv_bias`` for q, k, v and ``bias`` for the rest (its own model code)."""
    bias = fields.flag("bias", default=False)
    return _decoder(
        fields,
        model_type="internlm3",
        class_name="InternLM3DecoderLayer",
        attention={
            "bias": fields.flag("qkv_bias", default=False),
            "output_bias": bias,
        },
        feed_forward_bias=bias,
    )


def olmo2(fields: Fields) -> ModelArchitecture:
    """OLMo 2: norms after each block, queries and keys normalised over their whole width."""
    return _olmo(fields, model_type="olmo2", class_name="Olmo2DecoderLayer", slides=False)


def olmo3(fields: Fields) -> ModelArchitecture:
    """OLMo 3: OLMo 2 with three sliding layers to one full."""
    return _olmo(fields, model_type="olmo3", class_name="Olmo3DecoderLayer", slides=True)


def _olmo(fields: Fields, *, model_type: str, class_name: str, slides: bool) -> ModelArchitecture:
    bias = fields.flag("attention_bias", default=False)
    num_layers = fields.count("num_hidden_layers")
    window = fields.optional_count("sliding_window") if slides else None
    kinds = sliding_kinds(fields, num_layers, pattern=4) if slides else [False] * num_layers
    return _decoder(
        fields,
        model_type=model_type,
        class_name=class_name,
        attention={"bias": bias, "output_bias": bias, "query_key_norm": "all"},
        norms=("post_attention_layernorm", "post_feedforward_layernorm"),
        kinds=kinds,
        settings_of=lambda slides: window_settings(slides=slides, window=window),
    )
