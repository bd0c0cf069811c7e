"""Gemma 1 to 3: scaled embeddings, four norms a layer, soft caps, local and global attention.

Names and norms as in transformers 5.24.0, ``modeling_gemma*.py`` and ``modeling_siglip.py``.
"""

from __future__ import annotations

from typing import Any

from tuneplan.catalog.architectures.fields import Fields
from tuneplan.catalog.architectures.parts import (
    Heads,
    gated_feed_forward,
    group_layers,
    grouped_attention,
    language_model,
    norm,
    sliding_kinds,
    window_settings,
)
from tuneplan.catalog.architectures.siglip import siglip_tower
from tuneplan.spec.architecture import Layer, ModelArchitecture

_ACTIVATION = "gelu_pytorch_tanh"
_FOUR_NORMS = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)


def _read_heads(fields: Fields, *, heads: int, key_value_heads: int) -> Heads:
    """Head sizes; published configurations leave out what equals the class's defaults."""
    read = Heads(
        hidden_size=fields.count("hidden_size"),
        num_attention_heads=fields.count("num_attention_heads", default=heads),
        num_key_value_heads=fields.count("num_key_value_heads", default=key_value_heads),
        head_dim=fields.count("head_dim", default=256),
    )
    fields.must_divide(
        "num_key_value_heads",
        read.num_key_value_heads,
        "num_attention_heads",
        read.num_attention_heads,
    )
    return read


def _gemma(
    fields: Fields,
    *,
    heads: Heads,
    class_name: str,
    norms: tuple[str, ...],
    kinds: list[bool],
    attention: dict[str, Any],
    root: str = "model",
    **settings: Any,
) -> ModelArchitecture:
    window = fields.optional_count("sliding_window")
    feed_forward = gated_feed_forward(
        heads.hidden_size,
        fields.count("intermediate_size"),
        activation=fields.text("hidden_activation", "hidden_act", default=_ACTIVATION),
    )
    bias = fields.flag("attention_bias", default=False)

    def make(slides: bool) -> Layer:  # noqa: FBT001  one kind of layer or the other
        return Layer(
            class_name=class_name,
            mixer=grouped_attention(
                heads,
                bias=bias,
                output_bias=bias,
                **attention,
                **window_settings(slides=slides, window=window),
            ),
            feed_forward=feed_forward,
            norms=tuple(norm(name, heads.hidden_size) for name in norms),
        )

    return language_model(
        fields,
        hidden_size=heads.hidden_size,
        groups=group_layers(kinds, make, prefix=f"{root}.layers"),
        root=root,
        tied_by_default=True,
        **settings,
    )


def gemma(fields: Fields) -> ModelArchitecture:
    """Gemma 1."""
    return _gemma(
        fields,
        heads=_read_heads(fields, heads=16, key_value_heads=16),
        class_name="GemmaDecoderLayer",
        norms=("input_layernorm", "post_attention_layernorm"),
        kinds=[False] * fields.count("num_hidden_layers"),
        attention={},
        model_type="gemma",
    )


def gemma2(fields: Fields) -> ModelArchitecture:
    """Gemma 2: every second layer slides; scores and logits are soft-capped."""
    num_layers = fields.count("num_hidden_layers")
    return _gemma(
        fields,
        heads=_read_heads(fields, heads=8, key_value_heads=4),
        class_name="Gemma2DecoderLayer",
        norms=_FOUR_NORMS,
        kinds=sliding_kinds(fields, num_layers, pattern=2),
        attention={"softcap": fields.fraction("attn_logit_softcapping", default=50.0) > 0},
        model_type="gemma2",
        logit_softcap=fields.fraction("final_logit_softcapping", default=30.0) > 0,
    )


def gemma3_text(fields: Fields) -> ModelArchitecture:
    """Gemma 3, language model alone: five sliding layers to one full, normalised queries."""
    return _gemma3(fields, root="model")


def gemma3(fields: Fields) -> ModelArchitecture:
    """Gemma 3 with its SigLIP tower; the projector pools patches to ``mm_tokens_per_image``."""
    text = fields.section("text_config")
    text.inherit("tie_word_embeddings")
    vision = fields.section("vision_config")
    model = _gemma3(text, root="model.language_model")
    return siglip_tower(
        model, vision, tokens_per_image=fields.count("mm_tokens_per_image", default=256)
    )


def _gemma3(fields: Fields, *, root: str) -> ModelArchitecture:
    num_layers = fields.count("num_hidden_layers")
    pattern = fields.optional_count("sliding_window_pattern") or 6
    fields.take_default("vocab_size", 262208)
    return _gemma(
        fields,
        heads=_read_heads(fields, heads=8, key_value_heads=4),
        class_name="Gemma3DecoderLayer",
        norms=_FOUR_NORMS,
        kinds=sliding_kinds(fields, num_layers, pattern=pattern),
        attention={"query_key_norm": "head"},
        root=root,
        model_type="gemma3_text" if root == "model" else "gemma3",
    )
