"""DeepSeek V4: one shared key-value head, compressed long-range keys, hyper-connections.

Names as in transformers 5.24.0, ``modeling_deepseek_v4.py``. Each layer sees a short window and,
by its compression rate, every 4th token's summary picked by an indexer, or every 128th's. The
latter (a 128th of the length) are left out of ``window``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from tuneplan.catalog.architectures.fields import Fields
from tuneplan.catalog.architectures.mixtures import (
    gated_experts,
    read_num_experts,
    router_bias_buffer,
)
from tuneplan.catalog.architectures.parts import (
    bare,
    gated_feed_forward,
    group_layers,
    language_model,
    linear,
    norm,
)
from tuneplan.spec.architecture import Layer, ModelArchitecture
from tuneplan.spec.blocks import Attention, AttentionKind, MixtureOfExperts
from tuneplan.spec.weights import Weight

_INDEXED: Final = 4  # compressed sparse attention; 128 is heavily compressed, 0 only slides
_HEAVY: Final = 128
_RATIOS: Final = {
    "sliding_attention": 0,
    "compressed_sparse_attention": _INDEXED,
    "heavily_compressed_attention": _HEAVY,
}


def deepseek_v4(fields: Fields) -> ModelArchitecture:
    """DeepSeek V4 Flash and Pro."""
    hidden_size = fields.count("hidden_size")
    num_layers = fields.count("num_hidden_layers")
    ratios = _ratios(fields, num_layers)
    num_hashed = fields.derived_count("num_hash_layers", otherwise=3)
    streams = fields.count("hc_mult", default=4)
    connections = tuple(
        weight
        for name in ("attn_hc", "ffn_hc")
        for weight in _hyper_connection(name, hidden_size, streams)
    )

    def make(kind: tuple[int, bool]) -> Layer:
        ratio, hashed = kind
        return Layer(
            class_name="DeepseekV4DecoderLayer",
            mixer=_attention(fields, hidden_size, ratio),
            feed_forward=_mixture(fields, hidden_size, hashed=hashed),
            norms=(
                norm("input_layernorm", hidden_size),
                norm("post_attention_layernorm", hidden_size),
            ),
            extra=connections,
            streams=streams,
        )

    kinds = [(ratio, position < num_hashed) for position, ratio in enumerate(ratios)]
    return language_model(
        fields,
        model_type="deepseek_v4",
        hidden_size=hidden_size,
        groups=group_layers(kinds, make),
        more_outer=(
            bare("model.hc_head.hc_fn", streams, streams * hidden_size),
            bare("model.hc_head.hc_base", streams),
            bare("model.hc_head.hc_scale", 1),
        ),
    )


def _ratios(fields: Fields, num_layers: int) -> list[int]:
    """Compression of each layer's long-range keys: stated as words, as numbers, or the default."""
    words = fields.words("layer_types", length=num_layers)
    if words is not None:
        return [_RATIOS.get(word, 0) for word in words]
    numbers: Any = fields.config.get("compress_ratios")
    if isinstance(numbers, list) and len(numbers) >= num_layers:
        return [int(number) for number in numbers[:num_layers]]
    return [_HEAVY if n < 2 or n % 2 == 0 else _INDEXED for n in range(num_layers)]


def _attention(fields: Fields, hidden_size: int, ratio: int) -> Attention:
    num_heads = fields.count("num_attention_heads")
    head_dim = fields.count("head_dim")
    rank = fields.count("q_lora_rank")
    groups = fields.count("o_groups")
    output_rank = fields.count("o_lora_rank")
    fields.must_divide("o_groups", groups, "num_attention_heads", num_heads)
    window = fields.count("sliding_window")
    picked = fields.count("index_topk") if ratio == _INDEXED else 0
    prefix = "self_attn"
    return Attention(
        weights=(
            linear(f"{prefix}.q_a_proj", rank, hidden_size),
            norm(f"{prefix}.q_a_norm", rank),
            linear(f"{prefix}.q_b_proj", num_heads * head_dim, rank),
            linear(f"{prefix}.kv_proj", head_dim, hidden_size),
            norm(f"{prefix}.kv_norm", head_dim),
            *_compressor(fields, hidden_size, ratio),
            replace(  # a grouped linear
                linear(f"{prefix}.o_a_proj", groups * output_rank, num_heads * head_dim // groups),
                own_class=True,
                takes_lora=False,
            ),
            linear(f"{prefix}.o_b_proj", hidden_size, groups * output_rank),
            bare(f"{prefix}.sinks", num_heads),
        ),
        num_attention_heads=num_heads,
        num_key_value_heads=1,
        head_dim=head_dim,
        v_head_dim=head_dim,
        kind=AttentionKind.SPARSE if picked else AttentionKind.SLIDING,
        window=window + picked,
        sinks=True,
        fp32_sinks=True,
        pooled=ratio,
        tail_rotary=_turned(fields, head_dim),
        output_groups=groups,
    )


def _turned(fields: Fields, head_dim: int) -> int:
    """Features of a head that positions turn: stated, or an eighth of them."""
    share = fields.config.get("partial_rotary_factor")
    if isinstance(share, float):
        return int(share * head_dim)
    return fields.optional_count("qk_rope_head_dim") or head_dim // 8


def _compressor(fields: Fields, hidden_size: int, ratio: int) -> tuple[Weight, ...]:
    """Pools ``ratio`` tokens into one key-value; at rate 4 two overlapping slices and an index."""
    if ratio == 0:
        return ()
    head_dim = fields.count("head_dim")
    width = head_dim * (2 if ratio == _INDEXED else 1)
    prefix = "self_attn.compressor"
    pooled = (
        bare(f"{prefix}.position_bias", ratio, width),
        linear(f"{prefix}.kv_proj", width, hidden_size),
        linear(f"{prefix}.gate_proj", width, hidden_size),
        norm(f"{prefix}.kv_norm", head_dim),
    )
    if ratio != _INDEXED:
        return pooled
    index_heads = fields.count("index_n_heads")
    index_dim = fields.count("index_head_dim")
    index = f"{prefix}.indexer"
    return (
        *pooled,
        bare(f"{index}.position_bias", ratio, 2 * index_dim),
        linear(f"{index}.kv_proj", 2 * index_dim, hidden_size),
        linear(f"{index}.gate_proj", 2 * index_dim, hidden_size),
        norm(f"{index}.kv_norm", index_dim),
        linear(f"{index}.q_b_proj", index_heads * index_dim, fields.count("q_lora_rank")),
        linear(f"{index}.scorer.weights_proj", index_heads, hidden_size),
    )


def _mixture(fields: Fields, hidden_size: int, *, hashed: bool) -> MixtureOfExperts:
    """Routed and shared experts; the first layers route by a table of token ids."""
    num_experts, per_token = read_num_experts(fields, "n_routed_experts")
    size = fields.count("moe_intermediate_size")
    return gated_experts(
        hidden_size,
        size,
        num_experts=num_experts,
        num_experts_per_tok=per_token,
        more=() if hashed else (router_bias_buffer("mlp.gate", num_experts),),
        shared=gated_feed_forward(
            hidden_size,
            size * fields.count("n_shared_experts"),
            prefix="mlp.shared_experts",
            activation="clamped_silu",
        ),
        activation="clamped_silu",
    )


def _hyper_connection(name: str, hidden_size: int, streams: int) -> tuple[Weight, ...]:
    """Weights that mix the residual streams before and after a block."""
    outputs = streams * (streams + 2)
    return (
        bare(f"{name}.fn", outputs, streams * hidden_size),
        bare(f"{name}.base", outputs),
        bare(f"{name}.scale", 3),
    )
