"""The large single tensors of a job, each with the sum that gives its size.

Only what is asked for in one piece: what is large in sum but made of many pieces (the optimizer
states of an unsharded run) never stands behind one request.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tuneplan.diagnosis.oom_stage import Stage
from tuneplan.estimation.persistent import Persistent, held_weights, outer_weights
from tuneplan.estimation.roles import Place
from tuneplan.frozen import dataclass
from tuneplan.language import Message, message
from tuneplan.spec.architecture import Layer, ModelArchitecture
from tuneplan.spec.blocks import Attention, FeedForward
from tuneplan.spec.parallelism import Parallelism, Strategy
from tuneplan.spec.recipe import DType, Objective, TrainingRecipe
from tuneplan.spec.weights import Weight, WeightKind

_FP32: Final = 4
_LEAST: Final = 2**20  # smaller requests come out of blocks that the allocator holds anyway
_FORWARD: Final = (Stage.FIRST_FORWARD, Stage.FIRST_BACKWARD, Stage.EVALUATION, Stage.LATER)
_BACKWARD: Final = (Stage.FIRST_BACKWARD, Stage.LATER)
_STEP: Final = (Stage.OPTIMIZER_STEP, Stage.LATER)
_ANY: Final = tuple(Stage)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTensor:
    """A tensor of a job.

    Attributes:
        kind: Stable name, e.g. ``logits_fp32``.
        name: For people.
        formula: With numbers: ``4 x 2048 x 32000 x 4 B``.
        stages: Where it is asked for.
    """

    kind: str
    name: Message
    formula: str
    size_bytes: float
    stages: tuple[Stage, ...] = _ANY


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Sequences and tokens of the largest micro-batch, in training and in evaluation.

    Attributes:
        limit_length: The longest that the job allows, where the data is not known to be shorter.
        kept_batches: Evaluation batches whose logits may be kept in one tensor.
    """

    sequences: int
    length: int
    limit_length: int
    eval_sequences: int = 0
    kept_batches: int = 0


def tensors_of(
    model: ModelArchitecture,
    recipe: TrainingRecipe,
    parallelism: Parallelism,
    held: Persistent,
    batch: Batch,
) -> tuple[KnownTensor, ...]:
    """Every tensor of this job that may stand behind one large request."""
    found = [
        *_logits(model, recipe, batch),
        *_kept_logits(model, recipe, batch),
        *_activations(model, recipe, batch),
        *_sharded(model, recipe, parallelism, held),
        *_buckets(recipe, parallelism, held),
        *_weights(model, recipe),
    ]
    return tuple(one for one in found if one.size_bytes >= _LEAST)


def _widths(recipe: TrainingRecipe) -> tuple[tuple[str, int], ...]:
    """The computing type and fp32, as ``(name, bytes)``, each once."""
    compute = recipe.compute_dtype
    found = {DType.FLOAT32.value: _FP32, compute.value: compute.num_bytes}
    return tuple(sorted(found.items(), key=lambda item: -item[1]))


def _product(*factors: float) -> str:
    return " x ".join(f"{factor:g}" if factor < 1e6 else f"{factor:.0f}" for factor in factors)


def _lengths(batch: Batch) -> tuple[int, ...]:
    return tuple(dict.fromkeys((batch.length, batch.limit_length)))


def _logits(
    model: ModelArchitecture, recipe: TrainingRecipe, batch: Batch
) -> Iterator[KnownTensor]:
    if recipe.objective is Objective.RM:
        return
    vocabulary = model.head_weight.out_features
    training = tuple(dict.fromkeys((batch.sequences, 1)))  # a batch, or a sequence on its own
    for dtype, width in _widths(recipe):
        for rows, stages, kind in (
            *((rows, _FORWARD, "logits") for rows in training),
            (batch.eval_sequences, (Stage.EVALUATION,), "eval_logits"),
        ):
            for length in _lengths(batch) if rows else ():
                # A causal loss compares each position with the next: one position less.
                for positions in (length, length - 1):
                    yield KnownTensor(
                        kind=f"{kind}_{dtype}",
                        name=message(
                            f"tensor_{kind}",
                            "logits of an evaluation batch in {dtype}"
                            if kind == "eval_logits"
                            else "logits in {dtype} (or their softmax, or their gradient)",
                            dtype=dtype,
                        ),
                        formula=_product(rows, positions, vocabulary) + f" x {width} B",
                        size_bytes=float(rows) * positions * vocabulary * width,
                        stages=stages,
                    )


def _kept_logits(
    model: ModelArchitecture, recipe: TrainingRecipe, batch: Batch
) -> Iterator[KnownTensor]:
    """A Trainer with metrics joins the logits of every evaluation batch to those before.

    Source: transformers ``trainer_pt_utils.py nested_concat``, ``EvalLoopContainer.add``.
    """
    vocabulary = model.head_weight.out_features
    for count in range(2, batch.kept_batches + 1):
        for dtype, width in _widths(recipe):
            each = float(batch.eval_sequences) * batch.length * vocabulary * width
            yield KnownTensor(
                kind=f"kept_logits_{dtype}",
                name=message(
                    "tensor_kept_logits",
                    "logits of evaluation batches, kept for metrics, in {dtype}",
                    dtype=dtype,
                ),
                formula=f"{count} x "
                + _product(batch.eval_sequences, batch.length, vocabulary)
                + f" x {width} B",
                size_bytes=count * each,
                stages=(Stage.EVALUATION,),
            )


def _activations(
    model: ModelArchitecture, recipe: TrainingRecipe, batch: Batch
) -> Iterator[KnownTensor]:
    rows = batch.sequences
    seen: set[tuple[str, int]] = set()
    for group in model.groups:
        for kind, name, width_of_token in _widths_of_layer(model, group.layer):
            if (kind, width_of_token) in seen:
                continue
            seen.add((kind, width_of_token))
            for length in _lengths(batch):
                for dtype, width in _widths(recipe):
                    yield KnownTensor(
                        kind=f"{kind}_{dtype}",
                        name=message(
                            "tensor_activation", "{name} in {dtype}", name=name, dtype=dtype
                        ),
                        formula=_product(rows, length, width_of_token) + f" x {width} B",
                        size_bytes=float(rows) * length * width_of_token * width,
                        stages=_FORWARD,
                    )
        mixer = group.layer.mixer
        if not isinstance(mixer, Attention) or ("scores", mixer.num_attention_heads) in seen:
            continue
        seen.add(("scores", mixer.num_attention_heads))
        if recipe.attention.keeps_scores:
            yield from _scores(recipe, batch, mixer.num_attention_heads)


def _scores(recipe: TrainingRecipe, batch: Batch, heads: int) -> Iterator[KnownTensor]:
    for length in _lengths(batch):
        for dtype, width in _widths(recipe):
            yield KnownTensor(
                kind=f"attention_scores_{dtype}",
                name=message(
                    "tensor_scores", "attention scores of one layer in {dtype}", dtype=dtype
                ),
                formula=_product(batch.sequences, heads, length, length) + f" x {width} B",
                size_bytes=float(batch.sequences) * heads * length * length * width,
                stages=_FORWARD,
            )


def _widths_of_layer(model: ModelArchitecture, layer: Layer) -> Iterator[tuple[str, Message, int]]:
    yield "hidden_states", message("hidden_states", "hidden states"), model.hidden_size
    feed_forward, mixer = layer.feed_forward, layer.mixer
    if isinstance(feed_forward, FeedForward):
        inside = feed_forward.intermediate_size
        yield "mlp_activation", message("mlp_activation", "activation inside the MLP"), inside
        if feed_forward.gated:
            fused = message("mlp_gate_up", "output of the fused gate and up projection")
            yield "mlp_gate_up", fused, 2 * inside
    if isinstance(mixer, Attention) and mixer.query_size != model.hidden_size:
        yield "queries", message("queries", "queries of one layer"), mixer.query_size


def _sharded(
    model: ModelArchitecture, recipe: TrainingRecipe, parallelism: Parallelism, held: Persistent
) -> Iterator[KnownTensor]:
    """Flat tensors of ZeRO and FSDP: partitions, gathered layers, flat parameters."""
    if not parallelism.shards_optimizer:
        return
    zero = parallelism.strategy in (Strategy.ZERO1, Strategy.ZERO2, Strategy.ZERO3)
    shards, half = parallelism.shards, recipe.compute_dtype.num_bytes
    if zero and held.num_trained:
        yield KnownTensor(
            kind="optimizer_partition_fp32",
            name=message(
                "tensor_partition",
                "fp32 optimizer partition of one rank (masters, a moment, or a temporary as large)",
            ),
            formula=f"{held.num_trained} x 4 B / {shards}",
            size_bytes=held.num_trained * 4 / shards,
            stages=(Stage.LOAD, *_STEP),
        )
        yield KnownTensor(
            kind="flat_weights",
            name=message("tensor_flat", "all trained weights, laid flat"),
            formula=f"{held.num_trained} x {half} B",
            size_bytes=float(held.num_trained * half),
            stages=(Stage.LOAD, *_STEP),
        )
        yield KnownTensor(
            kind="weight_partition",
            name=message("tensor_weight_partition", "half-precision partition of one rank"),
            formula=f"{held.num_trained} x {half} B / {shards}",
            size_bytes=held.num_trained * half / shards,
        )
    if parallelism.shards_parameters:
        yield from _units(model, recipe, shards)


def _units(model: ModelArchitecture, recipe: TrainingRecipe, shards: int) -> Iterator[KnownTensor]:
    outer = sum(weight.num_parameters for weight, _ in outer_weights(model, recipe))
    layers = {group.layer.num_parameters for group in model.groups}
    of_layer = message("of_one_layer", "of one layer")
    of_root = message("of_the_root", "of embeddings, final norm and head")
    units = [(count, "layer", of_layer) for count in sorted(layers, reverse=True)]
    units.append((outer, "root", of_root))
    for count, kind, what in units:
        for dtype, width in _widths(recipe):
            yield KnownTensor(
                kind=f"gathered_{kind}_{dtype}",
                name=message(
                    "tensor_gathered",
                    "parameters {what}, gathered whole in {dtype} (or their gradient)",
                    what=what,
                    dtype=dtype,
                ),
                formula=f"{count} x {width} B",
                size_bytes=float(count * width),
            )
            yield KnownTensor(
                kind=f"flat_parameter_{kind}_{dtype}",
                name=message(
                    "tensor_flat_parameter",
                    "one rank's shard of the flat parameter {what} in {dtype} (or its gradient or "
                    "moment)",
                    what=what,
                    dtype=dtype,
                ),
                formula=f"{count} x {width} B / {shards}",
                size_bytes=count * width / shards,
            )


def _buckets(
    recipe: TrainingRecipe, parallelism: Parallelism, held: Persistent
) -> Iterator[KnownTensor]:
    if parallelism.strategy not in (Strategy.ZERO1, Strategy.ZERO2, Strategy.ZERO3):
        return
    sizes = {
        "reduce": min(parallelism.reduce_bucket_elements, held.num_trained),
        "allgather": min(parallelism.allgather_bucket_elements, held.num_trained),
    }
    for kind, elements in sizes.items():
        for dtype, width in _widths(recipe):
            yield KnownTensor(
                kind=f"{kind}_bucket_{dtype}",
                name=message(
                    "tensor_bucket", "DeepSpeed's {kind} bucket in {dtype}", kind=kind, dtype=dtype
                ),
                formula=f"{elements} x {width} B",
                size_bytes=float(elements * width),
                stages=(Stage.LOAD, *_BACKWARD, *_STEP),
            )


def _weights(model: ModelArchitecture, recipe: TrainingRecipe) -> Iterator[KnownTensor]:
    """One weight each: as loaded, its fp32 copy, its expanded form where it is quantised."""
    seen: set[tuple[str, tuple[int, ...], int]] = set()
    for held in held_weights(model, recipe):
        weight, role = held.weight, held.role
        found = [(role.dtype.num_bytes, "weight", _ANY)]
        if role.quantized and recipe.quantization is not None:
            expanded = recipe.quantization.dequantized_dtype.num_bytes
            found = [(expanded, "dequantized", _ANY)]
        if recipe.frozen_dtype.num_bytes != role.dtype.num_bytes:
            found.append((recipe.frozen_dtype.num_bytes, "weight", (Stage.LOAD,)))
        if role.trained or role.copied:
            found.append((_FP32, "weight_fp32", _ANY))
        for width, kind, stages in found:
            key = (weight.leaf, weight.shape, width)
            if key in seen:
                continue
            seen.add(key)
            yield _weight(weight, width, kind, stages, held.place)


def _weight(
    weight: Weight, width: int, kind: str, stages: tuple[Stage, ...], place: Place
) -> KnownTensor:
    return KnownTensor(
        kind=kind,
        name=message(
            f"tensor_{kind}",
            {
                "weight": "the weight {leaf}{role}, or its gradient",
                "weight_fp32": "the weight {leaf}{role} in fp32, its gradient or a moment",
                "dequantized": "the weight {leaf}{role}, expanded from its quantised form",
            }[kind],
            leaf=weight.leaf,
            role=_role(weight, place),
        ),
        formula=_product(*weight.shape) + f" x {width} B",
        size_bytes=float(weight.num_weight_elements * width),
        stages=stages,
    )


_FUSED: Final = ("gate_up_proj", "dense_h_to_4h", "w1w3", "fc1")


def _role(weight: Weight, place: Place) -> Message | str:
    """What a weight is for, where its name does not say so."""
    if weight.kind is WeightKind.EXPERTS:
        return message("role_experts", " (all experts of a layer)")
    if place is Place.HEAD:
        return message("role_head", " (output head)")
    if weight.kind is WeightKind.EMBEDDING:
        return message("role_embedding", " (embedding)")
    if any(word in weight.name for word in _FUSED) and weight.shape[0] > 4 * weight.shape[-1]:
        return message("role_gate_up", " (gate and up fused, MLP)")
    if ".mlp" in f".{weight.name}" or "feed_forward" in weight.name:
        return message("role_mlp", " (MLP)")
    return ""
