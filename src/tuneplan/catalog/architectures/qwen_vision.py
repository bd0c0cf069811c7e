"""Qwen 2.5 VL, Qwen 3 VL and the tower that Qwen 3.5 shares with them (transformers 5.24.0)."""

from __future__ import annotations

from dataclasses import replace

from tuneplan.catalog.architectures.fields import Fields
from tuneplan.catalog.architectures.llama import qwen2_text, qwen3_text
from tuneplan.catalog.architectures.mixtures import qwen3_moe_text
from tuneplan.catalog.architectures.parts import (
    convolution,
    embedding,
    gated_feed_forward,
    linear,
    norm,
    plain_feed_forward,
    window_settings,
)
from tuneplan.spec.architecture import Layer, LayerGroup, ModelArchitecture, VisionTower
from tuneplan.spec.blocks import Attention
from tuneplan.spec.weights import Weight

LANGUAGE_ROOT = "model.language_model"
_ROOT = "model.visual"


def text_section(fields: Fields) -> Fields:
    """``text_config``, or the whole configuration where the file is of the older flat form."""
    text = fields.section("text_config", default=fields.config)
    text.inherit("tie_word_embeddings")
    return text


def qwen2_5_vl(fields: Fields) -> ModelArchitecture:
    """Qwen 2.5 VL: a tower with windowed attention, gated feed-forwards and RMS norms."""
    model = qwen2_text(
        text_section(fields),
        model_type="qwen2_5_vl",
        class_name="Qwen2_5_VLDecoderLayer",
        root=LANGUAGE_ROOT,
    )
    vision = fields.section("vision_config")
    hidden_size = vision.count("hidden_size", default=1280)
    depth = vision.count("depth", default=32)
    patch = vision.count("patch_size", "spatial_patch_size", default=14)
    window = vision.optional_count("window_size")
    full = set(vision.config.get("fullatt_block_indexes") or (7, 15, 23, 31))
    feed_forward = gated_feed_forward(
        hidden_size, vision.count("intermediate_size", default=3420), bias=True
    )
    side = None if window is None else window // patch
    positions = {
        slides: tuple(block for block in range(depth) if (block not in full) is slides)
        for slides in (True, False)
    }
    groups = tuple(
        LayerGroup(
            layer=Layer(
                class_name="Qwen2_5_VLVisionBlock",
                mixer=_fused_vision_attention(
                    vision, hidden_size, slides=slides, window=None if side is None else side * side
                ),
                feed_forward=feed_forward,
                norms=(norm("norm1", hidden_size), norm("norm2", hidden_size)),
            ),
            count=len(where),
            prefix=f"{_ROOT}.blocks",
            positions=where,
        )
        for slides, where in positions.items()
        if where
    )
    merge = vision.count("spatial_merge_size", default=2)
    merged = hidden_size * merge * merge
    temporal = vision.count("temporal_patch_size", default=2)
    return replace(
        model,
        vision=VisionTower(
            class_name="Qwen2_5_VisionTransformerPretrainedModel",
            hidden_size=hidden_size,
            groups=groups,
            outer=(
                _patches(vision, hidden_size, patch, temporal, bias=False),
                norm(f"{_ROOT}.merger.ln_q", hidden_size),
                linear(f"{_ROOT}.merger.mlp.0", merged, merged, bias=True),
                linear(f"{_ROOT}.merger.mlp.2", model.hidden_size, merged, bias=True),
            ),
            patch_size=patch,
            merge_size=merge,
            temporal_patch_size=temporal,
            window_size=window,
        ),
    )


def qwen3_vl(fields: Fields) -> ModelArchitecture:
    """Qwen 3 VL, dense."""
    model = qwen3_text(
        text_section(fields),
        model_type="qwen3_vl",
        class_name="Qwen3VLTextDecoderLayer",
        root=LANGUAGE_ROOT,
    )
    return with_qwen3_tower(model, fields, block="Qwen3VLVisionBlock", tower="Qwen3VLVisionModel")


def qwen3_vl_moe(fields: Fields) -> ModelArchitecture:
    """Qwen 3 VL with experts."""
    model = qwen3_moe_text(
        text_section(fields),
        model_type="qwen3_vl_moe",
        class_name="Qwen3VLMoeTextDecoderLayer",
        root=LANGUAGE_ROOT,
    )
    return with_qwen3_tower(
        model, fields, block="Qwen3VLMoeVisionBlock", tower="Qwen3VLMoeVisionModel"
    )


def with_qwen3_tower(
    model: ModelArchitecture, fields: Fields, *, block: str, tower: str
) -> ModelArchitecture:
    """The model with Qwen 3's tower: learned positions, and mergers at some blocks (DeepStack)."""
    vision = fields.section("vision_config")
    hidden_size = vision.count("hidden_size", default=1152)
    depth = vision.count("depth", default=27)
    patch = vision.count("patch_size", default=16)
    temporal = vision.count("temporal_patch_size", default=2)
    merge = vision.count("spatial_merge_size", default=2)
    positions = vision.count("num_position_embeddings", default=2304)
    layer = Layer(
        class_name=block,
        mixer=_fused_vision_attention(vision, hidden_size, slides=False, window=None),
        feed_forward=plain_feed_forward(
            hidden_size,
            vision.count("intermediate_size", default=4304),
            names=("mlp.linear_fc1", "mlp.linear_fc2"),
            activation=vision.text("hidden_act", default="gelu_pytorch_tanh"),
        ),
        norms=(norm("norm1", hidden_size, bias=True), norm("norm2", hidden_size, bias=True)),
    )
    merged = hidden_size * merge * merge
    stacked = vision.config.get("deepstack_visual_indexes")
    count = 3 if stacked is None else len(stacked)
    if model.model_type.startswith("qwen3_5"):
        count = 0
    mergers = [_merger(f"{_ROOT}.merger", hidden_size, merged, model.hidden_size)] + [
        _merger(f"{_ROOT}.deepstack_merger_list.{index}", merged, merged, model.hidden_size)
        for index in range(count)
    ]
    return replace(
        model,
        vision=VisionTower(
            class_name=tower,
            hidden_size=hidden_size,
            groups=(
                LayerGroup(
                    layer=layer,
                    count=depth,
                    prefix=f"{_ROOT}.blocks",
                    positions=tuple(range(depth)),
                ),
            ),
            outer=(
                _patches(vision, hidden_size, patch, temporal, bias=True),
                embedding(f"{_ROOT}.pos_embed", positions, hidden_size),
                *(weight for merger in mergers for weight in merger),
            ),
            patch_size=patch,
            merge_size=merge,
            temporal_patch_size=temporal,
        ),
    )


def _fused_vision_attention(
    vision: Fields, hidden_size: int, *, slides: bool, window: int | None
) -> Attention:
    num_heads = vision.count("num_heads", default=16)
    vision.must_divide("num_heads", num_heads, "hidden_size", hidden_size)
    head_dim = max(1, hidden_size // num_heads)
    return Attention(
        weights=(
            linear("attn.qkv", 3 * hidden_size, hidden_size, bias=True),
            linear("attn.proj", hidden_size, hidden_size, bias=True),
        ),
        num_attention_heads=num_heads,
        num_key_value_heads=num_heads,
        head_dim=head_dim,
        v_head_dim=head_dim,
        **window_settings(slides=slides, window=window),
    )


def _patches(vision: Fields, hidden_size: int, patch: int, temporal: int, *, bias: bool) -> Weight:
    channels = vision.count("in_channels", "in_chans", default=3)
    return convolution(
        f"{_ROOT}.patch_embed.proj", hidden_size, channels, temporal, patch, patch, bias=bias
    )


def _merger(
    name: str, norm_size: int, merged: int, out_features: int
) -> tuple[Weight, Weight, Weight]:
    return (
        norm(f"{name}.norm", norm_size, bias=True),
        linear(f"{name}.linear_fc1", merged, merged, bias=True),
        linear(f"{name}.linear_fc2", out_features, merged, bias=True),
    )
