"""Multi-head latent attention: DeepSeek V2, V3, V3.2, Kimi K2, GLM-4.7 Flash, GLM-5.

Keys and values come from one narrow latent per token (DeepSeek-V2 paper, section 2.1). V3.2 and
GLM-5 add an indexer that picks the keys each query sees. Names as in transformers 5.24.0.
"""

from __future__ import annotations

from tuneplan.catalog.architectures.fields import Fields
from tuneplan.catalog.architectures.mixtures import (
    gated_experts,
    read_num_experts,
    router_bias_buffer,
)
from tuneplan.catalog.architectures.parts import (
    gated_feed_forward,
    group_layers,
    language_model,
    linear,
    norm,
)
from tuneplan.frozen import dataclass
from tuneplan.spec.architecture import Layer, ModelArchitecture
from tuneplan.spec.blocks import Attention, AttentionKind, LatentAttention
from tuneplan.spec.weights import Weight


@dataclass(frozen=True, slots=True, kw_only=True)
class _Style:
    """How the models differ, and the configuration class's sizes where they leave them out."""

    model_type: str
    class_name: str
    first_dense: int
    router_bias: bool
    indexed: bool = False


def deepseek_v2(fields: Fields) -> ModelArchitecture:
    """DeepSeek V2 and V2 Lite."""
    return _latent_model(
        fields,
        _Style(
            model_type="deepseek_v2",
            class_name="DeepseekV2DecoderLayer",
            first_dense=0,
            router_bias=False,
        ),
    )


def deepseek_v3(fields: Fields) -> ModelArchitecture:
    """DeepSeek V3, R1, Kimi K2, Moonlight."""
    return _latent_model(
        fields,
        _Style(
            model_type="deepseek_v3",
            class_name="DeepseekV3DecoderLayer",
            first_dense=3,
            router_bias=True,
        ),
    )


def deepseek_v32(fields: Fields) -> ModelArchitecture:
    """DeepSeek V3.2: V3 with sparse attention."""
    return _latent_model(
        fields,
        _Style(
            model_type="deepseek_v32",
            class_name="DeepseekV32DecoderLayer",
            first_dense=3,
            router_bias=True,
            indexed=True,
        ),
    )


def glm4_moe_lite(fields: Fields) -> ModelArchitecture:
    """GLM-4.7 Flash."""
    return _latent_model(
        fields,
        _Style(
            model_type="glm4_moe_lite",
            class_name="Glm4MoeLiteDecoderLayer",
            first_dense=1,
            router_bias=True,
        ),
    )


def glm_moe_dsa(fields: Fields) -> ModelArchitecture:
    """GLM-5: latent attention with an indexer."""
    return _latent_model(
        fields,
        _Style(
            model_type="glm_moe_dsa",
            class_name="GlmMoeDsaDecoderLayer",
            first_dense=3,
            router_bias=True,
            indexed=True,
        ),
    )


def _latent_model(fields: Fields, style: _Style) -> ModelArchitecture:
    hidden_size = fields.count("hidden_size")
    first = _first_dense(fields, style)
    num_experts, per_token = read_num_experts(fields, "n_routed_experts")
    expert_size = fields.count("moe_intermediate_size")
    buffers = (router_bias_buffer("mlp.gate", num_experts),) if style.router_bias else ()
    mixture = gated_experts(
        hidden_size,
        expert_size,
        num_experts=num_experts,
        num_experts_per_tok=per_token,
        more=buffers,
        shared=gated_feed_forward(
            hidden_size,
            expert_size * fields.count("n_shared_experts"),
            prefix="mlp.shared_experts",
        ),
    )
    dense = gated_feed_forward(hidden_size, fields.count("intermediate_size"))

    def make(kind: tuple[bool, bool]) -> Layer:
        is_sparse, has_indexer = kind
        return Layer(
            class_name=style.class_name,
            mixer=_latent_attention(
                fields, hidden_size, sparse=style.indexed, has_indexer=has_indexer
            ),
            feed_forward=mixture if is_sparse else dense,
            norms=(
                norm("input_layernorm", hidden_size),
                norm("post_attention_layernorm", hidden_size),
            ),
        )

    return language_model(
        fields,
        model_type=style.model_type,
        hidden_size=hidden_size,
        groups=group_layers(
            [(n >= first, indexed) for n, indexed in enumerate(_indexers(fields, style))], make
        ),
    )


def _indexers(fields: Fields, style: _Style) -> list[bool]:
    """For each layer whether it has an indexer of its own (GLM-5.2: others reuse its choice)."""
    num_layers = fields.count("num_hidden_layers")
    if not style.indexed:
        return [False] * num_layers
    stated = fields.words("indexer_types", length=num_layers)
    if stated is not None:
        return [word == "full" for word in stated]
    every = fields.derived_count("index_topk_freq", otherwise=1)
    offset = fields.derived_count("index_skip_topk_offset", otherwise=2)
    return [max(n - offset + 1, 0) % every == 0 for n in range(num_layers)]


def _first_dense(fields: Fields, style: _Style) -> int:
    """Dense layers before the mixtures: stated, or by ``mlp_layer_types``, or the default."""
    stated = fields.config.get("first_k_dense_replace")
    if stated is not None:
        return fields.optional_count("first_k_dense_replace") or 0
    kinds = fields.config.get("mlp_layer_types")
    if kinds is not None:
        return sum(kind == "dense" for kind in kinds)
    fields.take_default("first_k_dense_replace", style.first_dense)
    return style.first_dense


def _latent_attention(
    fields: Fields, hidden_size: int, *, sparse: bool, has_indexer: bool
) -> Attention:
    """Projections down to the latents and up from them; without ``q_lora_rank`` one for q."""
    num_heads = fields.count("num_attention_heads")
    latent = LatentAttention(
        q_lora_rank=fields.optional_count("q_lora_rank"),
        kv_lora_rank=fields.count("kv_lora_rank"),
        qk_nope_head_dim=fields.count("qk_nope_head_dim"),
        qk_rope_head_dim=fields.count("qk_rope_head_dim"),
    )
    v_head_dim = fields.count("v_head_dim")
    head_dim = latent.qk_nope_head_dim + latent.qk_rope_head_dim
    bias = fields.flag("attention_bias", default=False)
    kv_rank = latent.kv_lora_rank
    weights = (
        *_query_weights(latent, hidden_size, num_heads * head_dim, bias=bias),
        linear(
            "self_attn.kv_a_proj_with_mqa",
            kv_rank + latent.qk_rope_head_dim,
            hidden_size,
            bias=bias,
        ),
        linear("self_attn.kv_b_proj", num_heads * (latent.qk_nope_head_dim + v_head_dim), kv_rank),
        linear("self_attn.o_proj", hidden_size, num_heads * v_head_dim, bias=bias),
        norm("self_attn.kv_a_layernorm", kv_rank),
        *(_indexer(fields, hidden_size, latent) if has_indexer else ()),
    )
    return Attention(
        weights=weights,
        num_attention_heads=num_heads,
        num_key_value_heads=num_heads,
        head_dim=head_dim,
        v_head_dim=v_head_dim,
        kind=AttentionKind.SPARSE if sparse else AttentionKind.FULL,
        window=fields.count("index_topk") if sparse else None,
        latent=latent,
    )


def _query_weights(
    latent: LatentAttention, hidden_size: int, query_size: int, *, bias: bool
) -> tuple[Weight, ...]:
    rank = latent.q_lora_rank
    if rank is None:
        return (linear("self_attn.q_proj", query_size, hidden_size),)
    return (
        linear("self_attn.q_a_proj", rank, hidden_size, bias=bias),
        norm("self_attn.q_a_layernorm", rank),
        linear("self_attn.q_b_proj", query_size, rank),
    )


def _indexer(fields: Fields, hidden_size: int, latent: LatentAttention) -> tuple[Weight, ...]:
    """The lightning indexer of DeepSeek V3.2: scores all keys with few narrow heads."""
    num_heads = fields.count("index_n_heads")
    head_dim = fields.count("index_head_dim")
    prefix = "self_attn.indexer"
    return (
        linear(f"{prefix}.wq_b", num_heads * head_dim, latent.q_lora_rank or hidden_size),
        linear(f"{prefix}.wk", head_dim, hidden_size),
        norm(f"{prefix}.k_norm", head_dim, bias=True),
        linear(f"{prefix}.weights_proj", num_heads, hidden_size),
    )
