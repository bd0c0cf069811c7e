"""One named weight of a model: what it is used for, its shape, its bias.

Names are Hugging Face's (``self_attn.q_proj``), relative to the layer for layer modules.
"""

from __future__ import annotations

import math
from enum import StrEnum

from tuneplan.frozen import dataclass


def leaf_of(name: str) -> str:
    """Last part of a module's name; of a list's member with the name of the list before it."""
    parts = name.rsplit(".", 2)
    return ".".join(parts[-2:]) if parts[-1].isdigit() else parts[-1]


class WeightKind(StrEnum):
    """What a weight is used for, which decides who may adapt, quantise or shard it."""

    LINEAR = "linear"  # shape (out_features, in_features)
    EXPERTS = "experts"  # stacked linears, shape (num_experts, out_features, in_features)
    ROUTER = "router"  # a linear that bitsandbytes and PEFT usually leave alone
    EMBEDDING = "embedding"  # shape (rows, features)
    NORM = "norm"  # shape (features,)
    CONV = "conv"
    OTHER = "other"  # bare parameters: A_log, sinks, router bias, gates


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """One named weight, with its bias if it has one.

    Attributes:
        name: Hugging Face's path relative to the owner, without ``.weight``.
        kind: See ``WeightKind``.
        shape: As stored.
        bias: Whether a bias of ``shape[0]`` elements stands beside it (``shape[:2]`` for experts).
        has_weight: False for a norm without learned weight.
        layer_norm: Of a norm: whether it subtracts the mean (one with a bias always does).
        buffer: True for what is counted by the hub but never trained (e.g. router bias buffers).
        fp32_scale: A norm that applies its weight in fp32, before casting back (Gemma, OLMo 2).
        own_class: A linear of a class of its own (``FalconLinear``), not ``nn.Linear`` itself.
        takes_lora: False for a linear beside which PEFT's LoRA fails: it returns several tensors
            (routers of Llama 4 and Phi-3.5-MoE) or reads its input in groups (DeepSeek V4).
    """

    name: str
    kind: WeightKind
    shape: tuple[int, ...]
    bias: bool = False
    has_weight: bool = True
    layer_norm: bool = False
    buffer: bool = False
    fp32_scale: bool = False
    own_class: bool = False
    takes_lora: bool = True

    @property
    def num_weight_elements(self) -> int:
        """Elements of the weight without its bias."""
        return math.prod(self.shape) if self.has_weight else 0

    @property
    def num_bias_elements(self) -> int:
        """Elements of the bias, 0 without one."""
        if not self.bias:
            return 0
        return math.prod(self.shape[:2]) if self.kind is WeightKind.EXPERTS else self.shape[0]

    @property
    def num_parameters(self) -> int:
        """Elements of weight and bias."""
        return self.num_weight_elements + self.num_bias_elements

    @property
    def in_features(self) -> int:
        """Width of what a linear (or each expert) reads."""
        return self.shape[-1]

    @property
    def out_features(self) -> int:
        """Width of what a linear (or each expert) writes."""
        return self.shape[-2]

    @property
    def leaf(self) -> str:
        """Last part of the name: what ``target_modules`` matches."""
        return leaf_of(self.name)
