"""A job as the allocator sees it: what is loaded, the scripts of its batches, what is trained."""

from __future__ import annotations

from collections.abc import Sequence

from tuneplan.estimation.optimizer_memory import TrainedTensor
from tuneplan.estimation.recording import Recording
from tuneplan.estimation.roles import Place, head_of, role_of
from tuneplan.estimation.standing_memory import keeps_embeddings, mask_bytes, workspace_bytes
from tuneplan.estimation.tensors import (
    LoadedTensor,
    adapter_tensors,
    loaded_tensors,
    trained_tensors,
)
from tuneplan.estimation.walking import Walked
from tuneplan.frozen import dataclass
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.parallelism import Offload, Parallelism, Strategy
from tuneplan.spec.recipe import TrainingRecipe

_ID_BYTES = 8
_FIRST_BUCKET_BYTES = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """How the weights come to the card.

    Attributes:
        reserved_bytes_per_weight, reserved_fraction_of_rest: The loader asks for one block of so
            many bytes per quantised weight and such a share of everything else, frees it, and
            loads into it. 0 = it does not.
        empties_cache: PEFT empties the cache after k-bit preparation (0.20 and later).
        threads: Half-precision tensors that are on the card at once while quantising.
    """

    reserved_bytes_per_weight: float = 0.0
    reserved_fraction_of_rest: float = 0.0
    empties_cache: bool = False
    threads: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """The scripts of one micro-batch of one length.

    Attributes:
        layers: Of every layer, bottom to top.
        input_sizes: What lives from the forward's start to the backward's end: token ids, labels
            and mask as the collator makes them, the mask that attention takes, embeddings that
            are scaled, what else stands before the layers.
        hidden_bytes: Of the first layer's input.
    """

    layers: tuple[Recording, ...]
    head: Recording
    input_sizes: tuple[int, ...]
    hidden_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Everything a replay plays.

    Attributes:
        tied: Head and embedding are one weight: their gradients are added into one.
        history: Micro-batches of other lengths that ran before: the worst order that is played.
            Only the last of them stands in a usual history.
    """

    recipe: TrainingRecipe
    loading: Loading
    loaded: tuple[LoadedTensor, ...]
    adapters: tuple[TrainedTensor, ...]
    trained: tuple[TrainedTensor, ...]
    others: tuple[int, ...]
    workspace_bytes: int
    embedding_gradient_bytes: int
    tied: bool
    batch: MicroBatch
    history: tuple[MicroBatch, ...] = ()


def can_replay(parallelism: Parallelism) -> bool:
    """Whether one card holds the whole job (sharding and offload are not replayed)."""
    alone = parallelism.strategy in (Strategy.SINGLE, Strategy.DDP)
    return alone and parallelism.offload is Offload.NONE


def job_of(
    walked: Walked,
    recipe: TrainingRecipe,
    parallelism: Parallelism,
    *,
    compute_capability: float | None = None,
    loading: Loading | None = None,
    history: Sequence[Walked] = (),
) -> Job:
    """The job of a recorded walk.

    ``history`` are recorded walks of the same job at other lengths.
    """
    model = walked.model
    embedding = model.token_embedding
    role = role_of(embedding, recipe, Place.OUTER)
    gradient = 0
    if role.trained or role.copied:
        width = (recipe.gradient_dtype or role.used_dtype).num_bytes
        gradient = embedding.num_parameters * width
    trained = trained_tensors(model, recipe)
    return Job(
        recipe=recipe,
        loading=loading or Loading(),
        loaded=tuple(loaded_tensors(model, recipe)),
        adapters=tuple(adapter_tensors(model, recipe)),
        trained=tuple(trained),
        others=_others(model, recipe, parallelism, trained),
        workspace_bytes=int(workspace_bytes(compute_capability) / 2),
        embedding_gradient_bytes=gradient,
        tied=head_of(model, recipe) is None,
        batch=_micro_batch(walked, recipe),
        history=tuple(_micro_batch(one, recipe) for one in history),
    )


def _others(
    model: ModelArchitecture,
    recipe: TrainingRecipe,
    parallelism: Parallelism,
    trained: Sequence[TrainedTensor],
) -> tuple[int, ...]:
    """A reference model, DDP's buckets, fp32 masters."""
    sizes: list[int] = []
    if recipe.reference_model:
        width = recipe.frozen_dtype.num_bytes
        sizes += [
            weight.num_parameters * width for _, weight, n in model.weights() for _ in range(n)
        ]
    if parallelism.strategy is Strategy.DDP:
        sizes += bucket_sizes(recipe, parallelism.ddp_bucket_bytes, trained)
    if recipe.optimizer.master_weights:
        sizes += [4 * tensor.elements for tensor in trained]
    return tuple(size for size in sizes if size)


def bucket_sizes(
    recipe: TrainingRecipe, cap_bytes: int, trained: Sequence[TrainedTensor]
) -> list[int]:
    """DDP's flat gradients: last parameters first, closed when a cap is reached, 1 MiB at first.

    Source: PyTorch ``torch/csrc/distributed/c10d/reducer.cpp compute_bucket_assignment_by_size``,
    ``nn/parallel/distributed.py`` (first bucket: ``_DEFAULT_FIRST_BUCKET_BYTES``).
    """
    sizes: list[int] = []
    filled, cap = 0, _FIRST_BUCKET_BYTES
    for tensor in reversed(trained):
        filled += tensor.elements * (recipe.gradient_dtype or tensor.dtype).num_bytes
        if filled >= cap:
            sizes.append(filled)
            filled, cap = 0, cap_bytes
    return [*sizes, filled]


def _micro_batch(walked: Walked, recipe: TrainingRecipe) -> MicroBatch:
    tokens = float(walked.tokens)
    layers: list[tuple[int, Recording]] = []
    seen: dict[tuple[int, ...], int] = {}
    for group, profile in walked.groups:
        start = seen.get(group.positions, 0)
        positions = group.positions[start : start + group.count] or range(
            len(layers), len(layers) + group.count
        )
        seen[group.positions] = start + group.count
        if profile.recording is None:
            raise ValueError("the walk was not recorded")
        layers += [(position, profile.recording) for position in positions]
    layers.sort(key=lambda item: item[0])
    if walked.head.recording is None:
        raise ValueError("the walk was not recorded")
    inputs = [int(tokens * _ID_BYTES)] * 3
    mask = mask_bytes(walked.model, recipe, float(walked.sequences), float(walked.length))
    if mask:
        inputs.append(int(mask))
    hidden = tokens * walked.model.hidden_size * walked.recipe.hidden_dtype.num_bytes
    hidden *= walked.model.streams
    if walked.entry.kept:
        inputs.append(int(walked.entry.kept))
    if keeps_embeddings(walked.model, recipe):
        inputs.append(int(hidden))
    return MicroBatch(
        layers=tuple(recording for _, recording in layers),
        head=walked.head.recording,
        input_sizes=tuple(inputs),
        hidden_bytes=int(hidden),
    )
