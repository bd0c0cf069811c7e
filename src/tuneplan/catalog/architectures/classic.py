"""Decoders of the first generation: plain feed-forwards, biases, learned or ALiBi positions.

GPT-2, GPT-BigCode, GPT-NeoX, OPT, BLOOM, Phi, Nemotron, StarCoder 2; names as in transformers
5.24.0.
"""

from __future__ import annotations

from dataclasses import replace

from tuneplan.catalog.architectures.fields import Fields
from tuneplan.catalog.architectures.parts import (
    Heads,
    embedding,
    fused_attention,
    grouped_attention,
    language_model,
    linear,
    norm,
    plain_feed_forward,
    read_heads,
    uniform_layers,
    window_settings,
)
from tuneplan.spec.architecture import Layer, ModelArchitecture
from tuneplan.spec.weights import Weight

_NORMS = ("input_layernorm", "post_attention_layernorm")


def multi_heads(
    fields: Fields, hidden_name: str, heads_name: str, *, key_value_heads: int | None = None
) -> Heads:
    """Heads that share the hidden size, under any names."""
    hidden_size = fields.count(hidden_name, "hidden_size")
    num_heads = fields.count(heads_name, "num_attention_heads")
    fields.must_divide(heads_name, num_heads, hidden_name, hidden_size)
    return Heads(
        hidden_size=hidden_size,
        num_attention_heads=num_heads,
        num_key_value_heads=key_value_heads or num_heads,
        head_dim=max(1, hidden_size // num_heads),
    )


def gpt2(fields: Fields) -> ModelArchitecture:
    """GPT-2; its Conv1D modules are linears whose weight is stored transposed."""
    return _gpt2(fields, class_name="GPT2Block", model_type="gpt2", activation="gelu_new")


def gpt_bigcode(fields: Fields) -> ModelArchitecture:
    """SantaCoder and StarCoder: GPT-2 with one key-value head.

    The model holds a boolean causal mask over all positions
    (``modeling_gpt_bigcode.py GPTBigCodeModel.__init__``, transformers 4.27 to 5.24).
    """
    model = _gpt2(
        fields,
        class_name="GPTBigCodeBlock",
        model_type="gpt_bigcode",
        activation="gelu_pytorch_tanh",
        key_value_heads=1 if fields.flag("multi_query", default=True) else None,
    )
    return replace(model, mask_buffer_bytes=model.max_position_embeddings**2)


def _gpt2(
    fields: Fields,
    *,
    class_name: str,
    model_type: str,
    activation: str,
    key_value_heads: int | None = None,
) -> ModelArchitecture:
    heads = multi_heads(fields, "n_embd", "n_head", key_value_heads=key_value_heads)
    layer = Layer(
        class_name=class_name,
        mixer=fused_attention(
            heads,
            fused_name="attn.c_attn",
            output_name="attn.c_proj",
            bias=True,
            output_bias=True,
            rotary=False,
        ),
        feed_forward=plain_feed_forward(
            heads.hidden_size,
            fields.derived_count("n_inner", otherwise=4 * heads.hidden_size),
            names=("mlp.c_fc", "mlp.c_proj"),
            activation=fields.text("activation_function", default=activation),
        ),
        norms=tuple(norm(name, heads.hidden_size, bias=True) for name in ("ln_1", "ln_2")),
    )
    positions = fields.count("n_positions", "max_position_embeddings", default=1024)
    layer = replace(layer, dropout=fields.fraction("resid_pdrop", default=0.1) > 0)
    model = _decoder(
        fields,
        model_type=model_type,
        layer=layer,
        num_layers=fields.count("n_layer", "num_hidden_layers"),
        prefix="transformer.h",
        token_embedding="transformer.wte",  # noqa: S106  a module's name
        more_embeddings=(embedding("transformer.wpe", positions, heads.hidden_size),),
        final_norm="transformer.ln_f",
        max_position_embeddings=positions,
    )
    drops = fields.fraction("embd_pdrop", default=0.1) > 0
    return replace(model, embedding_dropout=drops)


def gpt_neox(fields: Fields) -> ModelArchitecture:
    """GPT-NeoX, Pythia and StableLM alpha: parallel residual, a quarter of each head rotates."""
    heads = multi_heads(fields, "hidden_size", "num_attention_heads")
    bias = fields.flag("attention_bias", default=True)
    layer = Layer(
        class_name="GPTNeoXLayer",
        mixer=fused_attention(
            heads,
            fused_name="attention.query_key_value",
            output_name="attention.dense",
            bias=bias,
            output_bias=bias,
        ),
        feed_forward=plain_feed_forward(
            heads.hidden_size,
            fields.count("intermediate_size"),
            names=("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
            activation=fields.text("hidden_act", default="gelu"),
        ),
        norms=tuple(norm(name, heads.hidden_size, bias=True) for name in _NORMS),
        parallel=fields.flag("use_parallel_residual", default=True),
    )
    return _decoder(
        fields,
        model_type="gpt_neox",
        layer=layer,
        num_layers=fields.count("num_hidden_layers"),
        prefix="gpt_neox.layers",
        token_embedding="gpt_neox.embed_in",  # noqa: S106
        final_norm="gpt_neox.final_layer_norm",
        tied_by_default=False,
        head_name="lm_head",
        max_position_embeddings=fields.count("max_position_embeddings", default=2048),
    )


def opt(fields: Fields) -> ModelArchitecture:
    """OPT: two more position rows than positions; the 350M variant projects its embeddings."""
    heads = multi_heads(fields, "hidden_size", "num_attention_heads")
    hidden_size = heads.hidden_size
    bias = fields.flag("enable_bias", default=True)
    layer = Layer(
        class_name="OPTDecoderLayer",
        mixer=grouped_attention(
            heads, bias=bias, output_bias=bias, output_name="out_proj", rotary=False
        ),
        feed_forward=plain_feed_forward(
            hidden_size,
            fields.count("ffn_dim"),
            names=("fc1", "fc2"),
            activation=fields.text("activation_function", default="relu"),
            bias=bias,
        ),
        norms=tuple(
            norm(name, hidden_size, bias=True)
            for name in ("self_attn_layer_norm", "final_layer_norm")
        ),
        dropout=fields.fraction("dropout", default=0.1) > 0,
    )
    positions = fields.count("max_position_embeddings", default=2048)
    projected = fields.derived_count("word_embed_proj_dim", otherwise=hidden_size)
    projections: tuple[Weight, ...] = ()
    if projected != hidden_size:
        projections = (
            linear("model.decoder.project_out", projected, hidden_size),
            linear("model.decoder.project_in", hidden_size, projected),
        )
    normed = fields.flag("do_layer_norm_before", default=True) and not fields.flag(
        "_remove_final_layer_norm", default=False
    )
    return _decoder(
        fields,
        model_type="opt",
        layer=layer,
        num_layers=fields.count("num_hidden_layers"),
        prefix="model.decoder.layers",
        token_embedding="model.decoder.embed_tokens",  # noqa: S106
        embedding_size=projected,
        more_embeddings=(embedding("model.decoder.embed_positions", positions + 2, hidden_size),),
        final_norm="model.decoder.final_layer_norm" if normed else None,
        more_outer=projections,
        max_position_embeddings=positions,
    )


def bloom(fields: Fields) -> ModelArchitecture:
    """BLOOM: ALiBi, and a norm right after the embeddings."""
    heads = multi_heads(fields, "hidden_size", "n_head")
    hidden_size = heads.hidden_size
    layer = Layer(
        class_name="BloomBlock",
        mixer=fused_attention(
            heads,
            fused_name="self_attention.query_key_value",
            output_name="self_attention.dense",
            bias=True,
            output_bias=True,
            rotary=False,
        ),
        feed_forward=plain_feed_forward(
            hidden_size,
            4 * hidden_size,
            names=("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
            activation="gelu_pytorch_tanh",
        ),
        norms=tuple(norm(name, hidden_size, bias=True) for name in _NORMS),
    )
    return _decoder(
        fields,
        model_type="bloom",
        layer=layer,
        num_layers=fields.count("n_layer", "num_hidden_layers"),
        prefix="transformer.h",
        token_embedding="transformer.word_embeddings",  # noqa: S106
        more_embeddings=(norm("transformer.word_embeddings_layernorm", hidden_size, bias=True),),
        final_norm="transformer.ln_f",
        max_position_embeddings=fields.count("max_position_embeddings", "seq_length", default=2048),
    )


def phi(fields: Fields) -> ModelArchitecture:
    """Phi 1, 1.5 and 2: one norm for a parallel block, part of each head rotates."""
    heads = read_heads(fields)
    layer = Layer(
        class_name="PhiDecoderLayer",
        mixer=grouped_attention(heads, bias=True, output_bias=True, output_name="dense"),
        feed_forward=plain_feed_forward(
            heads.hidden_size,
            fields.count("intermediate_size"),
            names=("mlp.fc1", "mlp.fc2"),
            activation=fields.text("hidden_act", default="gelu_new"),
        ),
        norms=(norm("input_layernorm", heads.hidden_size, bias=True),),
        parallel=True,
        dropout=fields.fraction("resid_pdrop", default=0.0) > 0,
    )
    return _decoder(
        fields,
        model_type="phi",
        layer=layer,
        num_layers=fields.count("num_hidden_layers"),
        prefix="model.layers",
        token_embedding="model.embed_tokens",  # noqa: S106
        final_norm="model.final_layernorm",
        tied_by_default=False,
        head_bias=True,
        max_position_embeddings=fields.count("max_position_embeddings", default=2048),
    )


def nemotron(fields: Fields) -> ModelArchitecture:
    """Nemotron 3 and 4: grouped keys, a squared ReLU, LayerNorm with a bias, no other bias."""
    heads = read_heads(fields)
    bias = fields.flag("mlp_bias", default=False)
    layer = Layer(
        class_name="NemotronDecoderLayer",
        mixer=grouped_attention(heads),
        feed_forward=plain_feed_forward(
            heads.hidden_size,
            fields.count("intermediate_size"),
            names=("mlp.up_proj", "mlp.down_proj"),
            activation=fields.text("hidden_act", default="relu2"),
            bias=bias,
        ),
        norms=tuple(norm(name, heads.hidden_size, bias=True) for name in _NORMS),
    )
    return _decoder(
        fields,
        model_type="nemotron",
        layer=layer,
        num_layers=fields.count("num_hidden_layers"),
        prefix="model.layers",
        token_embedding="model.embed_tokens",  # noqa: S106
        final_norm="model.norm",
        tied_by_default=False,
        max_position_embeddings=fields.count("max_position_embeddings", default=4096),
    )


def starcoder2(fields: Fields) -> ModelArchitecture:
    """StarCoder 2: Llama's attention with a plain feed-forward and biases everywhere."""
    heads = read_heads(fields, default_key_value_heads=2)
    bias = fields.flag("use_bias", default=True)
    layer = Layer(
        class_name="Starcoder2DecoderLayer",
        mixer=grouped_attention(
            heads,
            bias=bias,
            output_bias=bias,
            **window_settings(slides=True, window=fields.optional_count("sliding_window")),
        ),
        feed_forward=plain_feed_forward(
            heads.hidden_size,
            fields.count("intermediate_size"),
            names=("mlp.c_fc", "mlp.c_proj"),
            activation=fields.text("hidden_act", default="gelu_pytorch_tanh"),
            bias=bias,
        ),
        norms=tuple(norm(name, heads.hidden_size, bias=True) for name in _NORMS),
        dropout=fields.fraction("residual_dropout", default=0.0) > 0,
    )
    return language_model(
        fields,
        model_type="starcoder2",
        hidden_size=heads.hidden_size,
        groups=uniform_layers(layer, fields.count("num_hidden_layers"), prefix="model.layers"),
        final_norm=norm("model.norm", heads.hidden_size, bias=True),
        tied_by_default=True,
    )


def _decoder(
    fields: Fields,
    *,
    model_type: str,
    layer: Layer,
    num_layers: int,
    prefix: str,
    token_embedding: str,
    final_norm: str | None,
    max_position_embeddings: int,
    more_embeddings: tuple[Weight, ...] = (),
    more_outer: tuple[Weight, ...] = (),
    embedding_size: int | None = None,
    tied_by_default: bool = True,
    head_name: str = "lm_head",
    head_bias: bool = False,
) -> ModelArchitecture:
    """Equal layers between embeddings and head, under any names."""
    hidden_size = layer.norms[0].shape[0]
    vocab_size = fields.count("vocab_size")
    width = embedding_size or hidden_size
    tied = fields.flag("tie_word_embeddings", default=tied_by_default)
    norms = () if final_norm is None else (norm(final_norm, hidden_size, bias=True),)
    return ModelArchitecture(
        name=model_type,
        model_type=model_type,
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        embeddings=(embedding(token_embedding, vocab_size, width), *more_embeddings),
        groups=uniform_layers(layer, num_layers, prefix=prefix),
        outer=(*more_outer, *norms),
        head=None if tied else linear(head_name, vocab_size, width, bias=head_bias),
        max_position_embeddings=max_position_embeddings,
    )
