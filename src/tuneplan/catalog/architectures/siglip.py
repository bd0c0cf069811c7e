"""The SigLIP image tower and Gemma 3's projector (transformers 5.24.0, ``modeling_siglip.py``)."""

from __future__ import annotations

import math
from dataclasses import replace

from tuneplan.catalog.architectures.fields import Fields
from tuneplan.catalog.architectures.parts import (
    Heads,
    bare,
    convolution,
    embedding,
    grouped_attention,
    norm,
    plain_feed_forward,
)
from tuneplan.spec.architecture import Layer, LayerGroup, ModelArchitecture, VisionTower

_ROOT = "model.vision_tower"


def siglip_tower(
    model: ModelArchitecture, vision: Fields, *, tokens_per_image: int
) -> ModelArchitecture:
    """The model with a SigLIP tower (without pooling head) and Gemma 3's projector."""
    heads = _heads(vision)
    hidden_size = heads.hidden_size
    patch_size = vision.count("patch_size", default=16)
    side = vision.count("image_size", default=224) // patch_size
    layer = Layer(
        class_name="SiglipEncoderLayer",
        mixer=grouped_attention(
            heads, bias=True, output_bias=True, output_name="out_proj", rotary=False
        ),
        feed_forward=plain_feed_forward(
            hidden_size,
            vision.count("intermediate_size", default=3072),
            names=("mlp.fc1", "mlp.fc2"),
            activation=vision.text("hidden_act", default="gelu_pytorch_tanh"),
        ),
        norms=tuple(norm(name, hidden_size, bias=True) for name in ("layer_norm1", "layer_norm2")),
    )
    num_layers = vision.count("num_hidden_layers", default=12)
    tower = VisionTower(
        class_name="SiglipVisionModel",
        hidden_size=hidden_size,
        groups=(
            LayerGroup(
                layer=layer,
                count=num_layers,
                prefix=f"{_ROOT}.encoder.layers",
                positions=tuple(range(num_layers)),
            ),
        ),
        outer=(
            convolution(
                f"{_ROOT}.embeddings.patch_embedding",
                hidden_size,
                vision.count("num_channels", default=3),
                patch_size,
                patch_size,
                bias=True,
            ),
            embedding(f"{_ROOT}.embeddings.position_embedding", side * side, hidden_size),
            norm(f"{_ROOT}.post_layernorm", hidden_size, bias=True),
            bare(
                "model.multi_modal_projector.mm_input_projection_weight",
                hidden_size,
                model.hidden_size,
            ),
            norm("model.multi_modal_projector.mm_soft_emb_norm", hidden_size),
        ),
        patch_size=patch_size,
        merge_size=max(1, side // max(1, math.isqrt(tokens_per_image))),
    )
    return replace(model, vision=tower)


def _heads(vision: Fields) -> Heads:
    hidden_size = vision.count("hidden_size", default=768)
    num_heads = vision.count("num_attention_heads", default=12)
    vision.must_divide("num_attention_heads", num_heads, "hidden_size", hidden_size)
    return Heads(
        hidden_size=hidden_size,
        num_attention_heads=num_heads,
        num_key_value_heads=num_heads,
        head_dim=max(1, hidden_size // num_heads),
    )
