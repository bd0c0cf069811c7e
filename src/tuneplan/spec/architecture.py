"""A language model as groups of layers made of named modules.

Parameters, LoRA targets, quantised sizes, operations, saved tensors and communication are all
derived from this one description; nothing else in the project knows a model's shape.
Names are Hugging Face's (``self_attn.q_proj``), relative to the layer for layer modules.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any

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


class AttentionKind(StrEnum):
    """Which keys a query sees."""

    FULL = "full"
    SLIDING = "sliding"
    CHUNKED = "chunked"
    SPARSE = "sparse"  # DeepSeek sparse attention: an indexer picks the keys


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Sizes that multi-head latent attention adds (DeepSeek-V2 paper, section 2.1)."""

    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Softmax attention: multi-head, grouped-query, multi-query or latent.

    Attributes:
        weights: Projections (q, k, v, o or fused), in the order they run, then q/k norms.
        head_dim: Of queries and keys; ``v_head_dim`` of values (equal except for latent attention).
        window: Keys a query sees where ``kind`` is sliding or chunked.
        rotary: Whether positions enter by rotation.
        joins_rotary: Whether the turned and the other features of queries are joined in a new
            tensor, one block a head, whose layout the flash kernel's output takes on.
        query_key_norm: Whether queries and keys are normalised per head.
        softcap: Whether scores are soft-capped (then SDPA's flash kernel cannot be used).
        sinks: Whether a learned sink per head joins the softmax.
        output_gate: Whether the output is gated before the output projection.
        fp32_sinks: Whether sinks stay fp32 whatever the model's dtype, and with them the scores.
        pooled: Tokens that one further key stands for (DeepSeek V4's compressor), 0 without such.
        tail_rotary: Last features of each head that positions turn in fp32, of queries, keys and
            (back) the output; only with ``output_groups`` (DeepSeek V4).
        output_groups: Groups of heads that the first of two output projections takes apart, 0
            where there is one projection.
        value_norm: Whether values are normalised too, by a norm without a weight.
        lends_key_values: Whether later layers read this one's keys and values (Gemma 3n, Gemma 4).
        borrows_key_values: Whether keys and values are those of an earlier layer.
    """

    weights: tuple[Weight, ...]
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    v_head_dim: int
    kind: AttentionKind = AttentionKind.FULL
    window: int | None = None
    rotary: bool = True
    joins_rotary: bool = False
    query_key_norm: bool = False
    softcap: bool = False
    sinks: bool = False
    output_gate: bool = False
    fp32_sinks: bool = False
    pooled: int = 0
    tail_rotary: int = 0
    output_groups: int = 0
    value_norm: bool = False
    lends_key_values: bool = False
    borrows_key_values: bool = False
    latent: LatentAttention | None = None

    @property
    def query_size(self) -> int:
        """Width of all queries of a token."""
        return self.num_attention_heads * self.head_dim

    @property
    def key_size(self) -> int:
        """Width of all keys of a token as computed (before any expansion to the query heads)."""
        return self.num_key_value_heads * self.head_dim

    @property
    def value_size(self) -> int:
        """Width of all values of a token."""
        return self.num_key_value_heads * self.v_head_dim

    @property
    def output_size(self) -> int:
        """Width of the attention output of a token, before the output projection."""
        return self.num_attention_heads * self.v_head_dim


class RecurrenceKind(StrEnum):
    """Linear-time mixers."""

    MAMBA2 = "mamba2"
    GATED_DELTA = "gated_delta"  # Qwen3-Next, Qwen3.5, Kimi
    LIGHTNING = "lightning"  # MiniMax-Text-01


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """A linear-attention or state-space mixer.

    Attributes:
        num_heads: Value (output) heads.
        num_key_heads: Key heads (groups for Mamba-2).
        key_head_dim: State size per head for Mamba-2.
        value_head_dim: Channels per head.
        conv_kernel: Taps of the short convolution, 0 without one.
        conv_channels: Channels that run through it.
        chunk_size: Tokens per chunk of the parallel form.
    """

    weights: tuple[Weight, ...]
    kind: RecurrenceKind
    num_heads: int
    num_key_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_kernel: int = 0
    conv_channels: int = 0
    chunk_size: int = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedForward:
    """A dense feed-forward block.

    Attributes:
        weights: gate, up, down (or fused gate_up, down; or up, down where not gated).
        gated: ``down(act(gate(x)) * up(x))`` rather than ``down(act(up(x)))``.
        activation: Hugging Face's ``hidden_act`` (``silu``, ``gelu_pytorch_tanh``, ...).
        sparse: Whether only the gate's largest values reach the activation (Gemma 3n).
    """

    weights: tuple[Weight, ...]
    intermediate_size: int
    gated: bool
    activation: str
    sparse: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureOfExperts:
    """Routed experts, with or without shared ones.

    Attributes:
        weights: Router (and its bias), then the experts' weights (kind ``EXPERTS``), then what
            the shared expert's gate needs. The shared expert itself is ``shared``.
        intermediate_size: Of one routed expert.
        latent_size: Width the experts read and write where it differs from the hidden size.
        every_token: Every expert runs on every token, weighted by mostly zero scores (Llama 4).
    """

    weights: tuple[Weight, ...]
    num_experts: int
    num_experts_per_tok: int
    intermediate_size: int
    gated: bool
    activation: str
    shared: FeedForward | None = None
    latent_size: int | None = None
    every_token: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One decoder (or encoder) layer.

    Attributes:
        class_name: Hugging Face's class (what FSDP wraps), e.g. ``LlamaDecoderLayer``.
        mixer: Attention or recurrence; None for layers that have only a feed-forward.
        feed_forward: None for layers that have only a mixer.
        norms: All normalisations of the residual stream, in the order they run.
        parallel: Whether mixer and feed-forward read the same input (GPT-NeoX, Phi, Falcon).
        extra: Anything else that holds parameters (indexers, hyper-connections, ...).
        residual_scale: Whether a block's output is multiplied before it joins the residual stream.
        dropout: Whether a block's output is dropped out before it joins the residual stream.
        streams: Residual streams, of which one runs through the blocks (Gemma 3n's AltUp), or
            which are collapsed into one before each block (DeepSeek V4's hyper-connections).
    """

    class_name: str
    mixer: Attention | Recurrence | None
    feed_forward: FeedForward | MixtureOfExperts | None
    norms: tuple[Weight, ...]
    parallel: bool = False
    extra: tuple[Weight, ...] = ()
    residual_scale: bool = False
    dropout: bool = False
    streams: int = 1

    def weights(self) -> Iterator[Weight]:
        """Every weight of the layer once."""
        yield from self.norms
        if self.mixer is not None:
            yield from self.mixer.weights
        if self.feed_forward is not None:
            yield from self.feed_forward.weights
            if isinstance(self.feed_forward, MixtureOfExperts) and self.feed_forward.shared:
                yield from self.feed_forward.shared.weights
        yield from self.extra

    @property
    def num_parameters(self) -> int:
        """All parameters of the layer."""
        return sum(weight.num_parameters for weight in self.weights())


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGroup:
    """``count`` equal layers; ``positions`` says where they stand in the stack (0-based)."""

    layer: Layer
    count: int
    prefix: str = "model.layers"
    positions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionTower:
    """An image encoder in front of the language model.

    Attributes:
        outer: Patch embedding, positions, norms, projector or merger.
        patch_size: Pixels per patch side; ``merge_size`` patches a side become one visual token.
    """

    class_name: str
    hidden_size: int
    groups: tuple[LayerGroup, ...]
    outer: tuple[Weight, ...]
    patch_size: int
    merge_size: int = 1
    temporal_patch_size: int = 1
    window_size: int | None = None

    @property
    def num_parameters(self) -> int:
        """Parameters of tower and projector."""
        return sum(group.count * group.layer.num_parameters for group in self.groups) + sum(
            weight.num_parameters for weight in self.outer
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelArchitecture:
    """A whole model.

    Attributes:
        name: Catalogue name or what the user called it.
        model_type: Hugging Face's ``model_type``.
        embeddings: Token embedding first, then learned positions and the like.
        groups: Groups of equal layers.
        outer: Final norm and whatever else stands outside layers, embeddings and head.
        head: The output projection; None where it is tied to the token embedding.
        head_bias: Elements of a bias on a tied head.
        stored_dtype: dtype of the published weights (Hugging Face ``torch_dtype``).
        embedding_scale, logit_scale: Whether embeddings (logits) are multiplied by a number outside
            their module (Gemma's embedding does it inside).
        embedding_dropout: Whether embeddings are dropped out before the first layer (GPT-2).
        mask_buffer_bytes: Of a causal mask over all positions that the model holds (GPT-BigCode).
        hf_config: The configuration fields that build this model with ``transformers``.
        assumed_fields: Names of dimensions that were filled in, not stated (bare sizes).
        source: Where the description comes from.
    """

    name: str
    model_type: str
    hidden_size: int
    vocab_size: int
    embeddings: tuple[Weight, ...]
    groups: tuple[LayerGroup, ...]
    outer: tuple[Weight, ...]
    head: Weight | None
    max_position_embeddings: int
    vision: VisionTower | None = None
    stored_dtype: str = "bfloat16"
    embedding_scale: bool = False
    logit_softcap: bool = False
    logit_scale: bool = False
    embedding_dropout: bool = False
    mask_buffer_bytes: int = 0
    hf_id: str | None = None
    hf_config: Mapping[str, Any] = field(default_factory=dict, hash=False, compare=False)
    assumed_fields: tuple[str, ...] = ()
    source: str = ""

    def weights(self) -> Iterator[tuple[str, Weight, int]]:
        """``(full name pattern, weight, how many of them)`` over the whole model."""
        for weight in self.embeddings:
            yield weight.name, weight, 1
        if self.vision is not None:
            for weight in self.vision.outer:
                yield weight.name, weight, 1
            for group in self.vision.groups:
                for weight in group.layer.weights():
                    yield f"{group.prefix}.*.{weight.name}", weight, group.count
        for group in self.groups:
            for weight in group.layer.weights():
                yield f"{group.prefix}.*.{weight.name}", weight, group.count
        for weight in self.outer:
            yield weight.name, weight, 1
        if self.head is not None:
            yield self.head.name, self.head, 1

    @property
    def num_layers(self) -> int:
        """Layers of the language model."""
        return sum(group.count for group in self.groups)

    @property
    def streams(self) -> int:
        """Residual streams that run through the layers."""
        return max((group.layer.streams for group in self.groups), default=1)

    @property
    def tie_word_embeddings(self) -> bool:
        """Whether the head is the token embedding."""
        return self.head is None

    @property
    def token_embedding(self) -> Weight:
        """The token embedding."""
        return self.embeddings[0]

    @property
    def head_weight(self) -> Weight:
        """The head, or a linear of the token embedding's shape where that is the head."""
        if self.head is not None:
            return self.head
        return Weight(name="lm_head", kind=WeightKind.LINEAR, shape=self.token_embedding.shape)

    @property
    def total_parameters(self) -> int:
        """All parameters, tied ones once."""
        return sum(count * weight.num_parameters for _, weight, count in self.weights())

    @property
    def active_parameters(self) -> int:
        """Total less the routed experts that a token does not visit (embeddings included)."""
        unused = 0
        for group in self.groups:
            mixture = group.layer.feed_forward
            if isinstance(mixture, MixtureOfExperts):
                experts = sum(
                    w.num_parameters for w in mixture.weights if w.kind is WeightKind.EXPERTS
                )
                idle = mixture.num_experts - mixture.num_experts_per_tok
                unused += group.count * experts * idle // mixture.num_experts
        return self.total_parameters - unused
