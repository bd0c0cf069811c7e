"""The part of a model that one rank holds under tensor, pipeline and expert parallelism.

A rank's part is a model like any other, with narrower matrices and fewer layers, so everything
that counts a model counts the part: weights, kept tensors, operations, communication.

Tensor: queries, keys, values, gates and upward products by columns, output and downward products
by rows, embedding and head by vocabulary; norms and the biases after row products whole (Shoeybi
et al. 2019, section 3; Megatron-LM ``core/tensor_parallel/layers.py``). Key-value heads are
repeated where there are fewer of them than ranks. Expert: each rank holds an equal share of the
experts. Pipeline: consecutive layers, the embedding on the first stage, head and loss on the last,
a copy of a tied embedding on both (Narayanan et al. 2021, section 2.2).
"""

from __future__ import annotations

import math
from dataclasses import replace
from enum import StrEnum

from tuneplan.frozen import dataclass
from tuneplan.language import Message, message
from tuneplan.spec.architecture import Layer, LayerGroup, ModelArchitecture
from tuneplan.spec.blocks import Attention, FeedForward, MixtureOfExperts
from tuneplan.spec.parallelism import Parallelism
from tuneplan.spec.weights import Weight, WeightKind


class Position(StrEnum):
    """Where in the pipeline a stage stands."""

    ONLY = "only"
    FIRST = "first"
    MIDDLE = "middle"
    LAST = "last"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What one rank of a stage holds.

    Attributes:
        count: Stages like this one.
        has_head: Whether final norm, head and loss run here.
    """

    position: Position
    model: ModelArchitecture
    count: int = 1

    @property
    def has_head(self) -> bool:
        """Whether final norm, head and loss run here."""
        return self.position in (Position.ONLY, Position.LAST)


def obstacle(model: ModelArchitecture, parallelism: Parallelism) -> Message | None:
    """Why a model cannot be split so, or None."""
    name = _no_formula(model)
    if name is not None:
        return message(
            "split_without_formula",
            "models with {part} have no formula under tensor, pipeline, context or expert "
            "parallelism yet",
            part=name,
        )
    mixers = [g.layer.mixer for g in model.groups if isinstance(g.layer.mixer, Attention)]
    for mixer in mixers:
        if mixer.num_attention_heads % parallelism.tensor:
            return message(
                "heads_do_not_divide",
                "{heads} attention heads do not divide over {ranks} tensor ranks",
                heads=mixer.num_attention_heads,
                ranks=parallelism.tensor,
            )
    if parallelism.pipeline * parallelism.virtual_stages > model.num_layers:
        return message(
            "too_many_stages",
            "{layers} layers cannot fill {stages} pipeline stages",
            layers=model.num_layers,
            stages=parallelism.pipeline * parallelism.virtual_stages,
        )
    return _experts_obstacle(model, parallelism)


def _no_formula(model: ModelArchitecture) -> str | None:
    layers = [group.layer for group in model.groups]
    if model.vision is not None:
        return "a vision tower"
    if model.streams > 1:
        return "several residual streams"
    if any(layer.mixer is not None and not isinstance(layer.mixer, Attention) for layer in layers):
        return "recurrent layers"
    if any(layer.extra for layer in layers):
        return "weights beside attention and feed-forward"
    return None


def _experts_obstacle(model: ModelArchitecture, parallelism: Parallelism) -> Message | None:
    if parallelism.expert == 1:
        return None
    mixtures = [
        group.layer.feed_forward
        for group in model.groups
        if isinstance(group.layer.feed_forward, MixtureOfExperts)
    ]
    if not mixtures:
        return message("no_experts_to_split", "the model has no experts to spread over ranks")
    for mixture in mixtures:
        if mixture.num_experts % parallelism.expert:
            return message(
                "experts_do_not_divide",
                "{experts} experts do not divide over {ranks} expert ranks",
                experts=mixture.num_experts,
                ranks=parallelism.expert,
            )
    return None


def stages_of(model: ModelArchitecture, parallelism: Parallelism) -> tuple[Stage, ...]:
    """One rank's part of every kind of stage, in the order of the pipeline."""
    part = split_tensors(model, parallelism)
    stages = parallelism.pipeline
    if stages == 1:
        return (Stage(position=Position.ONLY, model=part),)
    layers = math.ceil(model.num_layers / stages)
    first = replace(part, groups=_cut(part, 0, layers), outer=(), head=_none(part, "lm_head"))
    last = replace(
        part,
        embeddings=(_none(part, part.token_embedding.name, WeightKind.EMBEDDING),),
        groups=_cut(part, model.num_layers - layers, model.num_layers),
        head=part.head_weight,
    )
    found = [Stage(position=Position.FIRST, model=first)]
    if stages > 2:
        middle = replace(
            part,
            embeddings=last.embeddings,
            groups=_cut(part, layers, 2 * layers),
            outer=(),
            head=first.head,
        )
        found.append(Stage(position=Position.MIDDLE, model=middle, count=stages - 2))
    return (*found, Stage(position=Position.LAST, model=last))


def _none(model: ModelArchitecture, name: str, kind: WeightKind = WeightKind.LINEAR) -> Weight:
    """A matrix without rows: what stands on another stage."""
    return Weight(name=name, kind=kind, shape=(0, model.hidden_size))


def _cut(model: ModelArchitecture, first: int, end: int) -> tuple[LayerGroup, ...]:
    """The layers at positions ``first`` to ``end - 1``."""
    groups, start = [], 0
    for group in model.groups:
        positions = group.positions or tuple(range(start, start + group.count))
        start += group.count
        kept = tuple(position for position in positions if first <= position < end)
        if kept:
            groups.append(replace(group, count=len(kept), positions=kept))
    return tuple(groups)


def split_tensors(model: ModelArchitecture, parallelism: Parallelism) -> ModelArchitecture:
    """The model as one tensor and expert rank holds it, all layers of it."""
    tensor, expert = parallelism.tensor, parallelism.expert
    if tensor == 1 and expert == 1:
        return model
    groups = tuple(
        replace(group, layer=_layer(group.layer, tensor, expert)) for group in model.groups
    )
    if tensor == 1:
        return replace(model, groups=groups)
    multiple = parallelism.pads_vocabulary_to * tensor
    rows = math.ceil(model.vocab_size / multiple) * multiple // tensor
    token, *others = model.embeddings
    width = model.vocab_size if token.shape[0] == model.vocab_size else token.shape[0]
    head = model.head
    return replace(
        model,
        vocab_size=rows,
        embeddings=(_rows(token, rows if width == model.vocab_size else width), *others),
        groups=groups,
        head=None if head is None else _rows(head, rows),
    )


def _rows(weight: Weight, rows: int) -> Weight:
    return replace(weight, shape=(rows, *weight.shape[1:]))


def _layer(layer: Layer, tensor: int, expert: int) -> Layer:
    mixer = layer.mixer
    if tensor > 1 and isinstance(mixer, Attention):
        mixer = _attention(mixer, tensor)
    feed_forward = layer.feed_forward
    if isinstance(feed_forward, MixtureOfExperts):
        feed_forward = _experts(feed_forward, tensor, expert)
    elif tensor > 1 and feed_forward is not None:
        feed_forward = _feed_forward(feed_forward, tensor)
    return replace(layer, mixer=mixer, feed_forward=feed_forward)


def _attention(mixer: Attention, tensor: int) -> Attention:
    heads = mixer.num_attention_heads // tensor
    key_heads = max(1, mixer.num_key_value_heads // tensor)
    linears = [weight for weight in mixer.weights if weight.kind is WeightKind.LINEAR]
    split = replace(mixer, num_attention_heads=heads, num_key_value_heads=key_heads)
    by_name = {linears[-1].name: _columns(linears[-1], tensor)}
    for index, weight in enumerate(linears[:-1]):
        rows = _projection_rows(weight, index, len(linears) - 1, mixer, split)
        by_name[weight.name] = _rows(weight, rows)
    if mixer.latent is not None:
        whole = ("q_a_proj", "kv_a_proj_with_mqa")
        by_name |= {weight.name: weight for weight in linears if weight.leaf in whole}
    weights = tuple(by_name.get(weight.name, weight) for weight in mixer.weights)
    return replace(split, weights=weights)


def _projection_rows(
    weight: Weight, index: int, num_projections: int, mixer: Attention, split: Attention
) -> int:
    """Rows of a projection: of queries, of keys or values, or of all three at once."""
    rows = weight.out_features
    if mixer.latent is None and num_projections == 1:
        rest = rows - mixer.query_size - mixer.key_size - mixer.value_size
        own = split.query_size + split.key_size + split.value_size
        return own + rest * split.num_attention_heads // mixer.num_attention_heads
    if mixer.latent is None and index:
        return rows * split.num_key_value_heads // mixer.num_key_value_heads
    return rows * split.num_attention_heads // mixer.num_attention_heads


def _columns(weight: Weight, ranks: int) -> Weight:
    """A matrix whose columns are shared out."""
    *rows, columns = weight.shape
    return replace(weight, shape=(*rows, math.ceil(columns / ranks)))


def _feed_forward(block: FeedForward, tensor: int) -> FeedForward:
    linears = [weight for weight in block.weights if weight.kind is WeightKind.LINEAR]
    by_name = {weight.name: _rows(weight, weight.shape[0] // tensor) for weight in linears[:-1]}
    by_name[linears[-1].name] = _columns(linears[-1], tensor)
    return replace(
        block,
        weights=tuple(by_name.get(weight.name, weight) for weight in block.weights),
        intermediate_size=math.ceil(block.intermediate_size / tensor),
    )


def _experts(block: MixtureOfExperts, tensor: int, expert: int) -> MixtureOfExperts:
    stacked = [weight for weight in block.weights if weight.kind is WeightKind.EXPERTS]
    by_name = {}
    for weight in stacked:
        experts, rows, columns = weight.shape
        down = weight is stacked[-1]
        shape = (
            experts // expert,
            rows if down else rows // tensor,
            columns // tensor if down else columns,
        )
        by_name[weight.name] = replace(weight, shape=shape)
    shared = block.shared
    if shared is not None and tensor > 1:
        shared = _feed_forward(shared, tensor)
    return replace(
        block,
        weights=tuple(by_name.get(weight.name, weight) for weight in block.weights),
        num_experts=block.num_experts // expert,
        intermediate_size=math.ceil(block.intermediate_size / tensor),
        shared=shared,
    )
