"""From the embeddings to the first layer's input, where that is more than one table.

Gemma 3n (and Gemma 4 with inputs per layer) look up a second table, project the embeddings onto
one vector per layer, and open further residual streams; DeepSeek V4 repeats them for each stream,
BLOOM normalises them. Everything else enters its layers with the embeddings themselves, which are
the first layer's input.
Source: transformers 5.24 ``models/gemma3n/modeling_gemma3n.py`` (``Gemma3nTextModel.forward``,
``project_per_layer_inputs``), ``models/deepseek_v4`` (``DeepseekV4Model.forward``),
``models/bloom`` (``BloomModel.forward``).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tuneplan.estimation.layers import alive_at_peak
from tuneplan.estimation.linears import drop_out, linear
from tuneplan.estimation.meter import Meter
from tuneplan.estimation.modules import Walk, add, scale, share
from tuneplan.estimation.norms import norm
from tuneplan.estimation.operations import Number, Operation, Stage
from tuneplan.estimation.roles import Place, role_of
from tuneplan.estimation.shadow import Tape, Tensor
from tuneplan.estimation.streams import (
    alternates,
    embeddings_dtype,
    of_magnitude,
    square_root_of_mean,
    stack,
)
from tuneplan.frozen import dataclass
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.recipe import Checkpointing, DType, TrainingRecipe
from tuneplan.spec.weights import Weight, WeightKind

_PROJECTION = "per_layer_model_projection"
_SORTED_FROM = 3072  # tokens from which an embedding's backward sorts them


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryProfile:
    """What stands before the layers, in bytes.

    Attributes:
        forward_peak: Most that is alive, all streams included.
        kept: Alive until the backward reaches it, the first layer's input not included.
        named: What only the model's forward names, until its layers are through.
        input_gradient: Gradient of the layers' own embeddings, which grows from layer to layer.
        backward_peak: Most that is alive in its backward, arriving gradients included.
        gradients: Gradients of its trained weights (the token embedding's not included).
    """

    forward_peak: Number = 0.0
    kept: Number = 0.0
    named: Number = 0.0
    input_gradient: Number = 0.0
    backward_peak: Number = 0.0
    gradients: Number = 0.0
    operations: tuple[Operation, ...] = ()
    at_forward_peak: tuple[tuple[str, float], ...] = ()
    at_backward_peak: tuple[tuple[str, float], ...] = ()


def has_entry(model: ModelArchitecture) -> bool:
    """Whether more than the embeddings stands before the layers."""
    projects = any(weight.leaf == _PROJECTION for weight in model.outer)
    sums = model.embedding_dropout or bool(_positions(model))
    return model.streams > 1 or projects or sums or embedding_norm(model) is not None


def _positions(model: ModelArchitecture) -> list[Weight]:
    """Tables of learned positions, whose rows are added to the embeddings."""
    return [
        table
        for table in model.embeddings[1:]
        if table.kind is WeightKind.EMBEDDING and table.in_features == model.hidden_size
    ]


def embedding_norm(model: ModelArchitecture) -> Weight | None:
    """The norm that the embeddings run through before the first layer (BLOOM)."""
    return next((weight for weight in model.embeddings if weight.kind is WeightKind.NORM), None)


def keeps_fp32_streams(model: ModelArchitecture) -> bool:
    """Whether autocast makes the residual stream fp32 before the first layer.

    It computes powers (AltUp's magnitudes) and LayerNorm in fp32, and sums stay as wide as their
    widest part (``aten/src/ATen/autocast_mode.h``).
    """
    first = embedding_norm(model)
    return alternates(model) or (first is not None and (first.layer_norm or first.bias))


def entry_weights(model: ModelArchitecture) -> list[Weight]:
    """Weights outside the layers whose output reaches the first layer."""
    before = [
        weight
        for weight in model.outer
        if weight.leaf.startswith(("altup_projections", "per_layer_"))
    ]
    return [*model.embeddings, *before] if has_entry(model) else list(model.embeddings)


def profile_entry(
    model: ModelArchitecture,
    recipe: TrainingRecipe,
    *,
    sequences: Number,
    length: Number,
    record: bool = False,
    accumulating: bool = False,
) -> EntryProfile:
    """Walk what stands before the layers, forward and backward."""
    if not has_entry(model):
        return EntryProfile()
    meter = Meter(record=record)
    tape = Tape(meter, grad=_wants_gradient(model, recipe))
    tape.accumulating = accumulating
    walk = Walk(tape, recipe, sequences * length, sequences, length, Place.OUTER)
    found: list[Tensor] = []
    own, streams = _enter(walk, model, found)
    forward_peak, at_forward = meter.peak, alive_at_peak(meter)
    with_names = meter.current
    found.clear()
    named = with_names - meter.current
    # The layers count their first input in the dtype of the stream; here it has its own.
    by_layers = streams.elements * recipe.hidden_dtype.num_bytes
    kept = meter.current - (streams.size if model.streams > 1 else by_layers)
    operations = list(tape.operations)
    if streams.node is None:
        return EntryProfile(
            forward_peak=forward_peak,
            kept=kept,
            named=named,
            operations=tuple(operations),
            at_forward_peak=at_forward,
        )
    tape.operations, tape.stage = [], Stage.BACKWARD
    input_gradient = own.size if own.node is not None else 0.0
    sizes = [(one.elements, one.dtype) for one in (streams, own)]
    grads: list[Tensor] = []
    root = tape.link(
        tape.tensor(0.0, recipe.hidden_dtype, "outputs"),
        (streams, own),
        (),
        lambda _grad: (grads.pop(0), grads.pop(0)),
    )
    del streams, own
    meter.restart_peak()
    grads += [tape.tensor(*size, "arriving gradient") for size in sizes]
    holder = [root, tape.tensor(0.0, recipe.hidden_dtype, "gradient of outputs")]
    del root
    tape.run_backward(holder.pop(0), holder.pop(0))
    gradients: Number = 0.0
    for storage in tape.persistent:
        gradients = gradients + storage.size
    return EntryProfile(
        forward_peak=forward_peak,
        kept=kept,
        named=named,
        input_gradient=input_gradient,
        backward_peak=meter.peak,
        gradients=gradients,
        operations=(*operations, *tape.operations),
        at_forward_peak=at_forward,
        at_backward_peak=alive_at_peak(meter, meter.restarted_at),
    )


def _wants_gradient(model: ModelArchitecture, recipe: TrainingRecipe) -> bool:
    """Something here is trained, or the embeddings want a gradient for checkpointing's sake."""
    if recipe.gradient_checkpointing is not Checkpointing.NONE:
        return True
    roles = [role_of(weight, recipe, Place.OUTER) for weight in entry_weights(model)]
    return any(role.trained or role.adapted or role.copied for role in roles)


def _enter(walk: Walk, model: ModelArchitecture, found: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The layers' own embeddings and the first layer's input; ``found``: what stays named."""
    named = {weight.leaf: weight for weight in model.outer}
    if _PROJECTION not in named and model.streams == 1:
        return _summed(walk, model, found)
    if _PROJECTION not in named:
        return _repeated(walk, model, found)
    embedded = _looked_up(walk, model.embeddings[0], wanted=True)
    found.append(embedded)
    projected = linear(walk, share(embedded), named[_PROJECTION])
    table = _looked_up(walk, model.embeddings[1], wanted=False)
    normal = norm(walk, projected, named["per_layer_projection_norm"])
    del projected
    both = add(walk, normal, table, "layers' own embeddings")
    own = scale(walk, both, "layers' own embeddings")
    del normal, both, table
    if model.streams == 1:
        return own, share(embedded)
    magnitude = square_root_of_mean(walk, embedded)
    for stream in range(model.streams - 1):
        idle = linear(walk, share(embedded), named[f"altup_projections.{stream}"])
        found.append(of_magnitude(walk, idle, magnitude))
        del idle
    return own, stack(walk, found)


def _summed(walk: Walk, model: ModelArchitecture, found: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Embeddings plus learned positions, normalised or dropped out; no embeddings of layers."""
    x = _looked_up(walk, model.embeddings[0], wanted=True, scaled=False)
    found.append(x)
    for table in _positions(model):
        rows = _looked_up(walk, table, wanted=False, scaled=False, tokens=walk.length)
        found.append(rows)
        x = add(walk, x, rows, "embeddings with positions")
        del rows
    first = embedding_norm(model)
    if first is not None:
        x = norm(walk, x, first)
    if model.embedding_dropout:
        x = drop_out(walk, x, "embeddings")
    return walk.tape.tensor(0.0, x.dtype, "nothing"), share(x)


def _repeated(walk: Walk, model: ModelArchitecture, found: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The embeddings in every stream (``DeepseekV4Model.forward``); no embeddings of layers."""
    tape = walk.tape
    embedded = _looked_up(walk, model.embeddings[0], wanted=True, scaled=False)
    found.append(embedded)
    elements, dtype = embedded.elements, embedded.dtype
    out = tape.tensor(elements * model.streams, dtype, "embeddings in every stream")
    tape.elementwise("repeat", embedded.size + out.size)

    def backward(grad: Tensor) -> tuple[Tensor]:
        tape.elementwise("sum", 1.25 * grad.size)
        del grad
        return (tape.tensor(elements, dtype, "gradient of embeddings"),)

    return tape.tensor(0.0, dtype, "nothing"), tape.link(out, (embedded,), (), backward)


def _looked_up(
    walk: Walk,
    table: Weight,
    *,
    wanted: bool,
    scaled: bool = True,
    tokens: Number | None = None,
) -> Tensor:
    """Rows of a table, scaled; ``wanted``: a gradient is asked for where checkpointing needs one.

    A trained table of its own leaves a dense gradient; the token embedding's is counted elsewhere
    (it may be the head's too).
    """
    tape, recipe = walk.tape, walk.recipe
    role = role_of(table, recipe, Place.OUTER)
    trained = role.trained or role.copied
    rows = walk.tokens if tokens is None else tokens
    dtype, elements = embeddings_dtype(recipe), rows * table.in_features
    raw = tape.tensor(elements, dtype, f"{table.leaf}, not scaled")
    tape.elementwise("look up", 2 * raw.size)
    if trained:
        raw = tape.link(raw, (), (), _gradient_of_table(walk, table, wanted=wanted), trains=True)
    out = scale(walk, raw, table.leaf) if scaled else raw
    del raw
    if wanted and not trained and recipe.gradient_checkpointing is not Checkpointing.NONE:
        # ``enable_input_require_grads`` (transformers ``modeling_utils.py``): a leaf, which the
        # graph holds.
        held = [out.storage]

        def reached(grad: Tensor) -> tuple[()]:
            held.clear()
            del grad
            return ()

        out = tape.link(out, (), (out,), reached, trains=True)
    return out


def _gradient_of_table(walk: Walk, table: Weight, *, wanted: bool) -> Callable[[Tensor], tuple[()]]:
    tape, tokens, width = walk.tape, walk.tokens, table.in_features
    role = role_of(table, walk.recipe, Place.OUTER)
    dtype = walk.recipe.gradient_dtype or role.used_dtype

    def backward(grad: Tensor) -> tuple[()]:
        if not wanted:
            sums = np.asarray(tokens / 10 + np.minimum(tokens, table.shape[0])) * width
            sums = np.where(np.asarray(tokens) > _SORTED_FROM, sums, 0.0)
            size = sums if isinstance(tokens, np.ndarray) else float(sums)
            passing = tape.tensor(size, DType.FLOAT32, f"sums of {table.leaf}'s gradient")
            tape.weight_gradient(float(table.num_parameters), dtype, table.leaf)
            del passing
        del grad
        return ()

    return backward
