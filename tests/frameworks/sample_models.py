"""Small descriptions of known shapes, and chips, for the tests of this folder."""

from __future__ import annotations

from tuneplan.spec.architecture import Layer, LayerGroup, ModelArchitecture
from tuneplan.spec.blocks import Attention, FeedForward, MixtureOfExperts
from tuneplan.spec.hardware import Accelerator
from tuneplan.spec.stated import (
    StatedAdapter,
    StatedParallelism,
    StatedQuantization,
    StatedRecipe,
    StatedTraining,
)
from tuneplan.spec.weights import Weight, WeightKind


def linear(name: str, out: int, width: int, *, bias: bool = False) -> Weight:
    return Weight(name=name, kind=WeightKind.LINEAR, shape=(out, width), bias=bias)


def norm(name: str, width: int) -> Weight:
    return Weight(name=name, kind=WeightKind.NORM, shape=(width,))


def attention(hidden: int, heads: int, kv_heads: int, head_dim: int) -> Attention:
    return Attention(
        weights=(
            linear("self_attn.q_proj", heads * head_dim, hidden),
            linear("self_attn.k_proj", kv_heads * head_dim, hidden),
            linear("self_attn.v_proj", kv_heads * head_dim, hidden),
            linear("self_attn.o_proj", hidden, heads * head_dim),
        ),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        v_head_dim=head_dim,
    )


def dense(hidden: int, intermediate: int) -> FeedForward:
    return FeedForward(
        weights=(
            linear("mlp.gate_proj", intermediate, hidden),
            linear("mlp.up_proj", intermediate, hidden),
            linear("mlp.down_proj", hidden, intermediate),
        ),
        intermediate_size=intermediate,
        gated=True,
        activation="silu",
    )


def experts(hidden: int, intermediate: int, count: int) -> MixtureOfExperts:
    def stacked(name: str, out: int, width: int) -> Weight:
        return Weight(name=name, kind=WeightKind.EXPERTS, shape=(count, out, width))

    return MixtureOfExperts(
        weights=(
            Weight(name="mlp.gate", kind=WeightKind.ROUTER, shape=(count, hidden)),
            stacked("mlp.experts.w1", intermediate, hidden),
            stacked("mlp.experts.w3", intermediate, hidden),
            stacked("mlp.experts.w2", hidden, intermediate),
        ),
        num_experts=count,
        num_experts_per_tok=2,
        intermediate_size=intermediate,
        gated=True,
        activation="silu",
    )


def model(
    model_type: str = "llama",
    *,
    layers: int = 32,
    hidden: int = 4096,
    heads: int = 32,
    kv_heads: int = 8,
    intermediate: int = 14336,
    vocabulary: int = 128256,
    num_experts: int = 0,
    stored_dtype: str = "bfloat16",
) -> ModelArchitecture:
    """A Llama-3-8B shape by default."""
    block = (
        experts(hidden, intermediate, num_experts) if num_experts else dense(hidden, intermediate)
    )
    layer = Layer(
        class_name="DecoderLayer",
        mixer=attention(hidden, heads, kv_heads, hidden // heads),
        feed_forward=block,
        norms=(norm("input_layernorm", hidden), norm("post_attention_layernorm", hidden)),
    )
    return ModelArchitecture(
        name=f"test {model_type}",
        model_type=model_type,
        hidden_size=hidden,
        vocab_size=vocabulary,
        embeddings=(
            Weight(
                name="model.embed_tokens", kind=WeightKind.EMBEDDING, shape=(vocabulary, hidden)
            ),
        ),
        groups=(LayerGroup(layer=layer, count=layers),),
        outer=(norm("model.norm", hidden),),
        head=linear("lm_head", vocabulary, hidden),
        max_position_embeddings=8192,
        stored_dtype=stored_dtype,
    )


def chip(name: str = "A100", *, capability: float = 8.0, bf16: bool = True) -> Accelerator:
    return Accelerator(
        name=name,
        vendor="nvidia",
        architecture="test",
        memory_bytes=80 * 2**30,
        capacity_bytes=79 * 2**30,
        memory_bandwidth_bytes_per_s=2e12,
        dense_flop_per_s={"bfloat16": 312e12},
        power_w=400.0,
        supports_bf16=bf16,
        supports_flash_attention_2=capability >= 8,
        compute_capability=capability,
    )


A100 = chip()
H100 = chip("H100", capability=9.0)
T4 = chip("T4", capability=7.5, bf16=False)


def stated(
    framework: str | None = None,
    method: str | None = None,
    *,
    version: str | None = None,
    software: dict[str, str] | None = None,
    date: str | None = None,
    objective: str | None = None,
    facts: dict[str, str] | None = None,
    strategy: str | None = None,
    adapter: StatedAdapter | None = None,
    quantization: StatedQuantization | None = None,
    **training: object,
) -> StatedRecipe:
    return StatedRecipe(
        framework=framework,
        framework_version=version,
        software=software or {},
        date=date,
        objective=objective,
        method=method,
        adapter=adapter or StatedAdapter(),
        quantization=quantization or StatedQuantization(),
        training=StatedTraining(**training),  # type: ignore[arg-type]
        parallelism=StatedParallelism(strategy=strategy),
        facts=facts or {},
    )
