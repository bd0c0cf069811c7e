"""Accelerators, recipes and models that the tests of time share, with datasheet figures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tuneplan.spec.architecture import Layer, LayerGroup, ModelArchitecture
from tuneplan.spec.blocks import Attention, FeedForward
from tuneplan.spec.hardware import Accelerator, Cluster
from tuneplan.spec.recipe import (
    Adapter,
    AttentionKernel,
    Checkpointing,
    DType,
    Kernels,
    Loss,
    LossPath,
    Method,
    Objective,
    Optimizer,
    OptimizerFamily,
    OptimizerImplementation,
    TrainingRecipe,
)
from tuneplan.spec.weights import Weight, WeightKind

GB = 1e9


def chip(
    name: str,
    architecture: str,
    bf16_tflop_per_s: float,
    bandwidth_gb_s: float,
    power_w: float,
    **facts: Any,
) -> Accelerator:
    """An accelerator of these rates; everything else is a plain value."""
    rates = facts.pop(
        "dense_flop_per_s",
        {"bfloat16": bf16_tflop_per_s * 1e12, "float16": bf16_tflop_per_s * 1e12},
    )
    defaults: dict[str, Any] = {
        "vendor": "NVIDIA",
        "memory_bytes": 80 * 2**30,
        "capacity_bytes": 79 * 2**30,
        "supports_bf16": True,
        "supports_flash_attention_2": True,
        "compute_capability": 8.0,
        "link": "nvlink",
        "link_bytes_per_s": 300 * GB,
        "pcie_bytes_per_s": 32 * GB,
    }
    return Accelerator(
        name=name,
        architecture=architecture,
        dense_flop_per_s=rates,
        memory_bandwidth_bytes_per_s=bandwidth_gb_s * GB,
        power_w=power_w,
        **{**defaults, **facts},
    )


A100 = chip("NVIDIA A100 SXM 80GB", "Ampere", 312, 2039, 400)
H100 = chip(
    "NVIDIA H100 SXM",
    "Hopper",
    989.4,
    3350,
    700,
    dense_flop_per_s={"bfloat16": 989.4e12, "float16": 989.4e12, "float8": 1978.9e12},
    link_bytes_per_s=450 * GB,
)
B200 = chip("NVIDIA B200 SXM", "Blackwell", 2250, 7672, 1000, link_bytes_per_s=900 * GB)
L40S = chip("NVIDIA L40S", "Ada Lovelace", 362, 864, 350, link="pcie", link_bytes_per_s=32 * GB)
A100_PCIE = chip(
    "NVIDIA A100 PCIe 80GB",
    "Ampere",
    312,
    1935,
    300,
    measured_flop_per_s={"bfloat16": 252.9e12},
    link="pcie",
    link_bytes_per_s=32 * GB,
)
RTX_3090 = chip(
    "NVIDIA GeForce RTX 3090",
    "Ampere",
    71,
    936,
    350,
    link="pcie",
    link_bytes_per_s=32 * GB,
    peer_access=False,
)
T4 = chip(
    "NVIDIA T4", "Turing", 65, 320, 70, dense_flop_per_s={"float16": 65e12, "float32": 8.1e12}
)


def cluster(
    accelerator: Accelerator = A100, *, cards: int = 1, nodes: int = 1, **facts: Any
) -> Cluster:
    """``nodes`` x ``cards`` of one accelerator on its own link."""
    defaults: dict[str, Any] = {
        "interconnect": accelerator.link if cards > 1 else "none",
        "intra_node_bytes_per_s": accelerator.link_bytes_per_s if cards > 1 else 0.0,
    }
    if nodes > 1:
        defaults |= {"inter_node": "infiniband-400", "inter_node_bytes_per_s": 50 * GB}
    return Cluster(
        accelerator=accelerator,
        num_nodes=nodes,
        accelerators_per_node=cards,
        **{**defaults, **facts},
    )


def _linear(name: str, rows: int, columns: int) -> Weight:
    return Weight(name=name, kind=WeightKind.LINEAR, shape=(rows, columns))


def _norm(name: str, size: int) -> Weight:
    return Weight(name=name, kind=WeightKind.NORM, shape=(size,))


def llama(
    *,
    layers: int = 32,
    hidden: int = 4096,
    intermediate: int = 14336,
    heads: int = 32,
    key_value_heads: int = 8,
    vocab: int = 32000,
) -> ModelArchitecture:
    """Mistral-7B's shape by default: 7,241,732,096 parameters."""
    head_dim = hidden // heads
    attention = Attention(
        weights=(
            _linear("self_attn.q_proj", hidden, hidden),
            _linear("self_attn.k_proj", key_value_heads * head_dim, hidden),
            _linear("self_attn.v_proj", key_value_heads * head_dim, hidden),
            _linear("self_attn.o_proj", hidden, hidden),
        ),
        num_attention_heads=heads,
        num_key_value_heads=key_value_heads,
        head_dim=head_dim,
        v_head_dim=head_dim,
    )
    feed_forward = FeedForward(
        weights=(
            _linear("mlp.gate_proj", intermediate, hidden),
            _linear("mlp.up_proj", intermediate, hidden),
            _linear("mlp.down_proj", hidden, intermediate),
        ),
        intermediate_size=intermediate,
        gated=True,
        activation="silu",
    )
    layer = Layer(
        class_name="LlamaDecoderLayer",
        mixer=attention,
        feed_forward=feed_forward,
        norms=(_norm("input_layernorm", hidden), _norm("post_attention_layernorm", hidden)),
    )
    return ModelArchitecture(
        name="llama-like",
        model_type="llama",
        hidden_size=hidden,
        vocab_size=vocab,
        embeddings=(
            Weight(name="model.embed_tokens", kind=WeightKind.EMBEDDING, shape=(vocab, hidden)),
        ),
        groups=(LayerGroup(layer=layer, count=layers, positions=tuple(range(layers))),),
        outer=(_norm("model.norm", hidden),),
        head=_linear("lm_head", vocab, hidden),
        max_position_embeddings=32768,
    )


FULL = TrainingRecipe(
    framework="trl",
    framework_version="1.16",
    objective=Objective.SFT,
    method=Method.FULL,
    adapter=None,
    quantization=None,
    frozen_dtype=DType.BFLOAT16,
    outer_dtype=DType.BFLOAT16,
    trainable_dtype=DType.BFLOAT16,
    compute_dtype=DType.BFLOAT16,
    autocast=False,
    hidden_dtype=DType.BFLOAT16,
    norm_dtype=DType.BFLOAT16,
    optimizer=Optimizer(
        name="adamw_torch_fused",
        family=OptimizerFamily.ADAMW,
        implementation=OptimizerImplementation.FUSED,
    ),
    gradient_checkpointing=Checkpointing.FULL,
    use_reentrant=False,
    attention=AttentionKernel.FLASH_2,
    loss=Loss(path=LossPath.FULL),
    kernels=Kernels(),
    per_device_train_batch_size=4,
    gradient_accumulation_steps=1,
    max_length=4096,
    packing=True,
)
LORA = replace(
    FULL,
    method=Method.LORA,
    adapter=Adapter(r=16, lora_alpha=32, target_modules=("q_proj", "k_proj", "v_proj", "o_proj")),
)
