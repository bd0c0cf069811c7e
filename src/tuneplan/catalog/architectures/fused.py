"""Decoders whose query, key and value (or gate and up) share one matrix.

Phi-3, ChatGLM, Qwen 1, Baichuan 2, InternLM 2. Phi-3 follows transformers 5.24.0; the others
follow the model code published with their weights (``trust_remote_code``).
"""

from __future__ import annotations

from tuneplan.catalog.architectures.fields import Fields
from tuneplan.catalog.architectures.parts import (
    Heads,
    embedding,
    fused_attention,
    gated_feed_forward,
    language_model,
    linear,
    norm,
    read_heads,
    uniform_layers,
    window_settings,
)
from tuneplan.spec.architecture import Layer, ModelArchitecture
from tuneplan.spec.blocks import FeedForward

_NORMS = ("input_layernorm", "post_attention_layernorm")


def phi3(fields: Fields) -> ModelArchitecture:
    """Phi-3, Phi-3.5 mini, Phi-4: Llama with ``qkv_proj`` and ``gate_up_proj``."""
    heads = read_heads(fields)
    layer = Layer(
        class_name="Phi3DecoderLayer",
        mixer=fused_attention(
            heads,
            fused_name="self_attn.qkv_proj",
            output_name="self_attn.o_proj",
            **window_settings(slides=True, window=fields.optional_count("sliding_window")),
        ),
        feed_forward=gated_feed_forward(
            heads.hidden_size,
            fields.count("intermediate_size"),
            activation=fields.text("hidden_act", default="silu"),
            fused=True,
        ),
        norms=tuple(norm(name, heads.hidden_size) for name in _NORMS),
    )
    return _uniform(fields, model_type="phi3", heads=heads, layer=layer)


def baichuan(fields: Fields) -> ModelArchitecture:
    """Baichuan 2: Llama with a fused ``W_pack``; the 13B has ALiBi instead of rotation."""
    heads = read_heads(fields)
    layer = Layer(
        class_name="DecoderLayer" if not _is_alibi(fields) else "BaichuanLayer",
        mixer=fused_attention(
            heads,
            fused_name="self_attn.W_pack",
            output_name="self_attn.o_proj",
            rotary=not _is_alibi(fields),
        ),
        feed_forward=gated_feed_forward(heads.hidden_size, fields.count("intermediate_size")),
        norms=tuple(norm(name, heads.hidden_size) for name in _NORMS),
    )
    return _uniform(
        fields,
        model_type="baichuan",
        heads=heads,
        layer=layer,
        positions=fields.count("model_max_length", "max_position_embeddings", default=4096),
    )


def _is_alibi(fields: Fields) -> bool:
    """The 13B names its context ``model_max_length`` alone, the 7B has rotary positions."""
    return fields.config.get("max_position_embeddings") is None


def internlm2(fields: Fields) -> ModelArchitecture:
    """InternLM 2: Llama's layer under other names, with a fused ``wqkv``."""
    heads = read_heads(fields)
    bias = fields.flag("bias", default=False)
    hidden_size = heads.hidden_size
    intermediate_size = fields.count("intermediate_size")
    layer = Layer(
        class_name="InternLM2DecoderLayer",
        mixer=fused_attention(
            heads,
            fused_name="attention.wqkv",
            output_name="attention.wo",
            bias=bias,
            output_bias=bias,
        ),
        feed_forward=_named_gated(
            hidden_size,
            intermediate_size,
            names=("feed_forward.w1", "feed_forward.w3", "feed_forward.w2"),
        ),
        norms=tuple(norm(name, hidden_size) for name in ("attention_norm", "ffn_norm")),
    )
    vocab_size = fields.count("vocab_size")
    return ModelArchitecture(
        name="internlm2",
        model_type="internlm2",
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        embeddings=(embedding("model.tok_embeddings", vocab_size, hidden_size),),
        groups=uniform_layers(layer, fields.count("num_hidden_layers"), prefix="model.layers"),
        outer=(norm("model.norm", hidden_size),),
        head=linear("output", vocab_size, hidden_size),
        max_position_embeddings=fields.count("max_position_embeddings", default=32768),
    )


def qwen(fields: Fields) -> ModelArchitecture:
    """Qwen 1: bias on ``c_attn``; ``intermediate_size`` counts gate and up together."""
    hidden_size = fields.count("hidden_size")
    num_heads = fields.count("num_attention_heads")
    fields.must_divide("num_attention_heads", num_heads, "hidden_size", hidden_size)
    intermediate_size = fields.count("intermediate_size")
    fields.must_divide("2", 2, "intermediate_size", intermediate_size)
    heads = Heads(
        hidden_size=hidden_size,
        num_attention_heads=num_heads,
        num_key_value_heads=num_heads,
        head_dim=fields.derived_count("kv_channels", otherwise=max(1, hidden_size // num_heads)),
    )
    layer = Layer(
        class_name="QWenBlock",
        mixer=fused_attention(
            heads, fused_name="attn.c_attn", output_name="attn.c_proj", bias=True
        ),
        feed_forward=_named_gated(
            hidden_size, intermediate_size // 2, names=("mlp.w2", "mlp.w1", "mlp.c_proj")
        ),
        norms=tuple(norm(name, hidden_size) for name in ("ln_1", "ln_2")),
    )
    vocab_size = fields.count("vocab_size")
    return ModelArchitecture(
        name="qwen",
        model_type="qwen",
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        embeddings=(embedding("transformer.wte", vocab_size, hidden_size),),
        groups=uniform_layers(layer, fields.count("num_hidden_layers"), prefix="transformer.h"),
        outer=(norm("transformer.ln_f", hidden_size),),
        head=linear("lm_head", vocab_size, hidden_size),
        max_position_embeddings=fields.count("max_position_embeddings", "seq_length", default=8192),
    )


def chatglm(fields: Fields) -> ModelArchitecture:
    """ChatGLM 2 and 3, GLM-4 9B as first published: everything fused, half of each head rotates."""
    hidden_size = fields.count("hidden_size")
    num_heads = fields.count("num_attention_heads")
    grouped = fields.flag("multi_query_attention", default=False)
    heads = Heads(
        hidden_size=hidden_size,
        num_attention_heads=num_heads,
        num_key_value_heads=fields.count("multi_query_group_num") if grouped else num_heads,
        head_dim=fields.derived_count("kv_channels", otherwise=max(1, hidden_size // num_heads)),
    )
    bias = fields.flag("add_bias_linear", default=False)
    layer = Layer(
        class_name="GLMBlock",
        mixer=fused_attention(
            heads,
            fused_name="self_attention.query_key_value",
            output_name="self_attention.dense",
            bias=fields.flag("add_qkv_bias", default=False) or bias,
            output_bias=bias,
        ),
        feed_forward=FeedForward(
            weights=(
                linear(
                    "mlp.dense_h_to_4h",
                    2 * fields.count("ffn_hidden_size"),
                    hidden_size,
                    bias=bias,
                ),
                linear(
                    "mlp.dense_4h_to_h", hidden_size, fields.count("ffn_hidden_size"), bias=bias
                ),
            ),
            intermediate_size=fields.count("ffn_hidden_size"),
            gated=True,
            activation="silu",
        ),
        norms=tuple(norm(name, hidden_size) for name in _NORMS),
    )
    vocab_size = fields.count("padded_vocab_size", "vocab_size")
    return ModelArchitecture(
        name="chatglm",
        model_type="chatglm",
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        embeddings=(embedding("transformer.embedding.word_embeddings", vocab_size, hidden_size),),
        groups=uniform_layers(
            layer,
            fields.count("num_layers", "num_hidden_layers"),
            prefix="transformer.encoder.layers",
        ),
        outer=(norm("transformer.encoder.final_layernorm", hidden_size),),
        head=linear("transformer.output_layer", vocab_size, hidden_size),
        max_position_embeddings=fields.count("seq_length", "max_position_embeddings", default=8192),
    )


def _named_gated(
    hidden_size: int, intermediate_size: int, *, names: tuple[str, str, str]
) -> FeedForward:
    """A gated feed-forward whose gate, up and down have other names."""
    gate, up, down = names
    return FeedForward(
        weights=(
            linear(gate, intermediate_size, hidden_size),
            linear(up, intermediate_size, hidden_size),
            linear(down, hidden_size, intermediate_size),
        ),
        intermediate_size=intermediate_size,
        gated=True,
        activation="silu",
    )


def _uniform(
    fields: Fields,
    *,
    model_type: str,
    heads: Heads,
    layer: Layer,
    positions: int | None = None,
) -> ModelArchitecture:
    if positions is not None:
        fields.config = {**fields.config, "max_position_embeddings": positions}
    return language_model(
        fields,
        model_type=model_type,
        hidden_size=heads.hidden_size,
        groups=uniform_layers(layer, fields.count("num_hidden_layers"), prefix="model.layers"),
    )
