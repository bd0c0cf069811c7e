"""Falcon and MPT: one fused projection, ALiBi or rotary positions, norms with few biases.

Names as in transformers 5.24.0; MPT also as llm-foundry trains it (learned positions, biases).
"""

from __future__ import annotations

from dataclasses import replace

from tuneplan.catalog.architectures.classic import multi_heads
from tuneplan.catalog.architectures.fields import Fields
from tuneplan.catalog.architectures.parts import (
    embedding,
    fused_attention,
    linear,
    norm,
    plain_feed_forward,
    uniform_layers,
)
from tuneplan.spec.architecture import Layer, ModelArchitecture


def falcon(fields: Fields) -> ModelArchitecture:
    """Falcon 7B (one key-value head), 40B and 180B (grouped, two parallel norms)."""
    grouped = fields.flag("new_decoder_architecture", default=False)
    parallel = grouped or fields.flag("parallel_attn", default=True)
    bias = fields.flag("bias", default=False)
    key_value_heads = fields.derived_count(
        "num_kv_heads", otherwise=fields.count("num_attention_heads", "n_head")
    )
    if not grouped:
        key_value_heads = 1 if fields.flag("multi_query", default=True) else 0
    heads = multi_heads(
        fields, "hidden_size", "num_attention_heads", key_value_heads=key_value_heads
    )
    hidden_size = heads.hidden_size
    two_norms = fields.derived_count("num_ln_in_parallel_attn", otherwise=2) == 2
    if grouped:
        names = ("ln_attn", "ln_mlp") if two_norms else ("input_layernorm",)
    else:
        names = ("input_layernorm",)
        if not parallel:
            names = ("input_layernorm", "post_attention_layernorm")
    layer = Layer(
        class_name="FalconDecoderLayer",
        mixer=fused_attention(
            heads,
            fused_name="self_attention.query_key_value",
            output_name="self_attention.dense",
            bias=bias,
            output_bias=bias,
            rotary=not fields.flag("alibi", default=False),
        ),
        feed_forward=plain_feed_forward(
            hidden_size,
            fields.derived_count("ffn_hidden_size", otherwise=4 * hidden_size),
            names=("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
            activation=fields.text("activation", default="gelu"),
            bias=bias,
        ),
        norms=tuple(norm(name, hidden_size, bias=True) for name in names),
        parallel=parallel,
    )
    layer = _own_linears(layer)
    vocab_size = fields.count("vocab_size")
    tied = fields.flag("tie_word_embeddings", default=True)
    return ModelArchitecture(
        name="falcon",
        model_type="falcon",
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        embeddings=(embedding("transformer.word_embeddings", vocab_size, hidden_size),),
        groups=uniform_layers(
            layer, fields.count("num_hidden_layers", "n_layer"), prefix="transformer.h"
        ),
        outer=(norm("transformer.ln_f", hidden_size, bias=True),),
        head=None if tied else linear("lm_head", vocab_size, hidden_size),
        max_position_embeddings=fields.count("max_position_embeddings", default=2048),
    )


def _own_linears(layer: Layer) -> Layer:
    """Falcon's linears are of a class of its own, ``FalconLinear``."""
    mixer, feed_forward = layer.mixer, layer.feed_forward
    assert mixer is not None  # noqa: S101 - the builder made both
    assert feed_forward is not None  # noqa: S101
    return replace(
        layer,
        mixer=replace(mixer, weights=tuple(replace(w, own_class=True) for w in mixer.weights)),
        feed_forward=replace(
            feed_forward,
            weights=tuple(replace(w, own_class=True) for w in feed_forward.weights),
        ),
    )


def mpt(fields: Fields) -> ModelArchitecture:
    """MPT: ALiBi without biases as published, or learned positions with biases.

    ``learned_pos_emb`` and ``no_bias: false`` are llm-foundry's own keys; transformers' MPT code
    knows neither.
    """
    heads = multi_heads(fields, "d_model", "n_heads")
    hidden_size = heads.hidden_size
    bias = not fields.flag("no_bias", default=True)
    attention = fields.section("attn_config", default={})
    learned = fields.flag("learned_pos_emb", default=True) and not attention.flag(
        "alibi", default=True
    )
    layer = Layer(
        class_name="MptBlock",
        mixer=fused_attention(
            heads,
            fused_name="attn.Wqkv",
            output_name="attn.out_proj",
            bias=bias,
            output_bias=bias,
            rotary=False,
        ),
        feed_forward=plain_feed_forward(
            hidden_size,
            fields.count("expansion_ratio", default=4) * hidden_size,
            names=("ffn.up_proj", "ffn.down_proj"),
            activation="gelu",
            bias=bias,
        ),
        norms=tuple(
            norm(name, hidden_size, bias=bias, layer_norm=True) for name in ("norm_1", "norm_2")
        ),
    )
    vocab_size = fields.count("vocab_size")
    positions = fields.count("max_seq_len", default=2048)
    embeddings = [embedding("transformer.wte", vocab_size, hidden_size)]
    if learned:
        embeddings.append(embedding("transformer.wpe", positions, hidden_size))
    return ModelArchitecture(
        name="mpt",
        model_type="mpt",
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        embeddings=tuple(embeddings),
        groups=uniform_layers(layer, fields.count("n_layers"), prefix="transformer.blocks"),
        outer=(norm("transformer.norm_f", hidden_size, bias=bias, layer_norm=True),),
        head=None,
        max_position_embeddings=positions,
    )
