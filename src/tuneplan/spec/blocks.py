"""What a layer is made of: attention or a linear-time mixer, a feed-forward or routed experts."""

from __future__ import annotations

from enum import StrEnum

from tuneplan.frozen import dataclass
from tuneplan.spec.weights import Weight


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
