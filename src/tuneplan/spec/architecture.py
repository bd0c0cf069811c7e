"""A language model as groups of layers made of named modules.

Parameters, LoRA targets, quantised sizes, operations, saved tensors and communication are all
derived from this one description; nothing else in the project knows a model's shape. What layers
are made of is in ``blocks.py``, a single weight in ``weights.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from tuneplan.frozen import dataclass
from tuneplan.spec.blocks import Attention, FeedForward, MixtureOfExperts, Recurrence
from tuneplan.spec.weights import Weight, WeightKind


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
