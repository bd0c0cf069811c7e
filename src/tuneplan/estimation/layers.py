"""One layer, walked once: what it keeps, what it needs in passing, what it executes.

All layers of a group are equal, so one walk stands for all of them; ``memory`` puts the layers
together.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tuneplan.estimation import litgpt
from tuneplan.estimation.attention import attention
from tuneplan.estimation.connections import run_connected
from tuneplan.estimation.experts import experts
from tuneplan.estimation.feedforward import feed_forward
from tuneplan.estimation.linears import drop_out
from tuneplan.estimation.meter import Meter
from tuneplan.estimation.modules import Walk, add, scale, share
from tuneplan.estimation.norms import norm
from tuneplan.estimation.operations import Number, Operation, OperationKind, Stage
from tuneplan.estimation.recording import Recording, record_layer
from tuneplan.estimation.recurrence import recurrence
from tuneplan.estimation.roles import Place
from tuneplan.estimation.selective import split_kept
from tuneplan.estimation.sequence_parallel import positions_shared, whole_positions
from tuneplan.estimation.shadow import Tape, Tensor
from tuneplan.estimation.streams import run_streams
from tuneplan.frozen import dataclass
from tuneplan.spec.architecture import Layer
from tuneplan.spec.blocks import Attention, MixtureOfExperts
from tuneplan.spec.recipe import Checkpointing, DType, TrainingRecipe
from tuneplan.spec.weights import Weight

_SANDWICH = 4  # norms before and after both blocks
_WITH_EXPERTS_BESIDE = 7  # and three for experts beside the dense block (Gemma 4)
_POST_ONLY = frozenset({"post_attention_layernorm", "post_feedforward_layernorm"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerProfile:
    """What one layer does to memory, in bytes, and what it executes.

    Attributes:
        forward_peak: Most that is alive in its forward, its input included.
        kept: Alive after its forward until its backward, its output not included.
        backward_peak: Most that is alive in its backward (and recomputation): what it kept, the
            arriving gradient and everything in passing; gradients of its weights included.
        gradients: Gradients of its trained weights that stay.
        attributes: Part of what it keeps that lives as long as the graph
            (``Tape.keep_attribute``).
        key_values: Keys and values that only the model's forward holds, until its outputs die.
        cast_weights: Copies of trained fp32 weights that autocast caches until the forward ends.
        hidden: Its output.
        operations: Of one micro-batch: forward, recomputation, backward.
        at_forward_peak, at_backward_peak: ``(name, bytes)`` of what is alive, largest first;
            only when asked for.
        recording: What the layer asks of the allocator; only when asked for.
    """

    forward_peak: Number
    kept: Number
    backward_peak: Number
    gradients: Number
    cast_weights: Number
    hidden: Number
    attributes: Number = 0.0
    key_values: Number = 0.0
    operations: tuple[Operation, ...] = ()
    at_forward_peak: tuple[tuple[str, float], ...] = ()
    at_backward_peak: tuple[tuple[str, float], ...] = ()
    recording: Recording | None = None


def run_layer(walk: Walk, x: Tensor, layer: Layer) -> Tensor:
    """Forward of one layer in Hugging Face's order; ``x`` is given away by the caller."""
    if layer.streams > 1:
        litgpt.refuse_streams(walk.recipe, layer)
        connected = any(weight.name == "attn_hc.fn" for weight in layer.extra)
        return (run_connected if connected else run_streams)(walk, x, layer)
    norms = list(layer.norms)
    if layer.parallel:
        return _parallel_layer(walk, x, layer)
    names = {weight.leaf for weight in norms}
    post_only = names == _POST_ONLY
    sandwich = len(norms) in (_SANDWICH, _WITH_EXPERTS_BESIDE)
    blocks = [block for block in (layer.mixer, layer.feed_forward) if block is not None]
    for index, block in enumerate(blocks):
        before, after = _norms_of(norms, index, len(blocks), post_only=post_only, sandwich=sandwich)
        if isinstance(block, MixtureOfExperts) and len(norms) == _WITH_EXPERTS_BESIDE:
            hidden = _experts_beside(walk, x, block, norms)
        else:
            hidden = norm(walk, x, before) if before is not None else share(x)
            hidden = _block(walk, hidden, block)
        if after is not None:
            hidden = norm(walk, hidden, after)
        if layer.dropout:
            hidden = drop_out(walk, hidden, "block output")
        if layer.residual_scale:
            hidden = scale(walk, hidden, "block output")
        x = _residual(walk, x, hidden)
        del hidden
    return x


def _experts_beside(walk: Walk, x: Tensor, block: MixtureOfExperts, norms: list[Weight]) -> Tensor:
    """A dense block and experts, which read the residual stream; each output has a norm.

    The router reads it through a norm of its own.
    Source: transformers 5.24 ``models/gemma4/modeling_gemma4.py Gemma4TextDecoderLayer``.
    """
    assert block.shared is not None  # noqa: S101 - the dense block is described so
    before, after_dense, after_experts, before_experts = norms[2], *norms[4:]
    dense = norm(walk, feed_forward(walk, norm(walk, x, before), block.shared), after_dense)
    chosen = norm(walk, x, before_experts)
    routed = experts(walk, chosen, replace(block, shared=None), norm(walk, x, before_experts))
    del chosen
    return add(walk, dense, norm(walk, routed, after_experts), "dense block and experts")


def _norms_of(
    norms: list[Weight], index: int, num_blocks: int, *, post_only: bool, sandwich: bool
) -> tuple[Weight | None, Weight | None]:
    """The norm before and after the ``index``-th block of a layer."""
    if sandwich:
        return norms[2 * index], norms[2 * index + 1]
    if post_only:
        return None, norms[index]
    if num_blocks == 1 or len(norms) == 1:
        return (norms[0] if norms and index == 0 else None), None
    return (norms[index] if index < len(norms) else None), None


def _block(walk: Walk, x: Tensor, block: object) -> Tensor:
    if walk.sequence_ranks == 1:
        return _whole_block(walk, x, block)
    x = whole_positions(walk, x)
    out = _whole_block(walk, x, block)
    del x
    return positions_shared(walk, out)


def _whole_block(walk: Walk, x: Tensor, block: object) -> Tensor:
    if isinstance(block, Attention):
        return attention(walk, x, block)
    if isinstance(block, MixtureOfExperts):
        return experts(walk, x, block)
    if hasattr(block, "conv_kernel"):
        return recurrence(walk, x, block)  # type: ignore[arg-type]
    return feed_forward(walk, x, block)  # type: ignore[arg-type]


def _residual(walk: Walk, x: Tensor, hidden: Tensor) -> Tensor:
    return add(walk, x, hidden, "hidden states")


def _parallel_layer(walk: Walk, x: Tensor, layer: Layer) -> Tensor:
    """Attention and feed-forward read the same input and are added together (GPT-NeoX, Phi)."""
    first = norm(walk, x, layer.norms[0])
    second = norm(walk, x, layer.norms[1]) if len(layer.norms) > 1 else share(first)
    mixed = _block(walk, first, layer.mixer)
    del first
    if layer.dropout:
        mixed = drop_out(walk, mixed, "attention output")
    fed = _block(walk, second, layer.feed_forward)
    del second
    if layer.dropout:
        fed = drop_out(walk, fed, "feed-forward output")
    both = add(walk, mixed, fed, "attention and feed-forward")
    del mixed, fed
    return _residual(walk, x, both)


def profile_layer(
    layer: Layer,
    recipe: TrainingRecipe,
    *,
    hidden_size: int,
    sequences: Number,
    length: Number,
    place: Place = Place.LAYER,
    record: bool = False,
    wants_gradient: bool = True,
    input_wants_gradient: bool = True,
    accumulating: bool = False,
    sequence_ranks: int = 1,
) -> LayerProfile:
    """Walk one layer forward and backward under the recipe's checkpointing.

    The product of ``sequences`` and ``length`` is the micro-batch's tokens; arrays of one shape
    count many micro-batches at once. ``record`` also says what is alive at the peaks (slower);
    with ``accumulating`` weight gradients exist already and new ones are added to them;
    ``wants_gradient`` is False where nothing before or in this layer is trained,
    ``input_wants_gradient`` where nothing before it is; ``sequence_ranks`` share the positions
    between the blocks.
    """
    tokens = sequences * length
    elements = tokens * hidden_size * layer.streams / sequence_ranks
    checkpointed = recipe.gradient_checkpointing is not Checkpointing.NONE

    def walk_on(tape: Tape) -> Walk:
        return Walk(
            tape, recipe, tokens, sequences, length, place, sequence_ranks=sequence_ranks
        )  # fmt: skip

    def start(tape: Tape) -> Tensor:
        if wants_gradient and input_wants_gradient:
            return tape.leaf(elements, recipe.hidden_dtype, "layer input")
        return tape.tensor(elements, recipe.hidden_dtype, "layer input")

    meter = Meter(record=record)
    tape = Tape(meter, grad=wants_gradient and not checkpointed)
    tape.accumulating = accumulating
    tape.keeps_attributes = wants_gradient and not (checkpointed and recipe.use_reentrant)
    outputs = [_forward(walk_on(tape), start(tape), layer)]
    meter.mark()
    hidden, output_key = outputs[0].size, id(outputs[0].storage)
    operations = list(tape.operations)
    forward_peak, at_forward = meter.peak, alive_at_peak(meter)
    with_key_values = meter.current
    collected = [id(storage) for storage in tape.key_values]
    tape.key_values.clear()
    meter.mark()
    key_values = with_key_values - meter.current
    if not wants_gradient or not (checkpointed or outputs[0].node):
        # Nothing in it is trained and no gradient goes through it: autograd makes no graph.
        return LayerProfile(
            forward_peak=forward_peak,
            kept=0.0,
            backward_peak=0.0,
            gradients=0.0,
            cast_weights=0.0,
            hidden=hidden,
            key_values=key_values,
            operations=tuple(operations),
            at_forward_peak=at_forward,
            recording=record_layer(meter, None, output_key, collected),
        )
    attributes = tape.attribute_bytes
    first, again = meter, None
    if not checkpointed:
        kept = meter.current - hidden
        meter.restart_peak()
        backward = _backward(tape, outputs.pop(), meter)
    else:
        outputs.clear()
        kept = attributes
        if recipe.gradient_checkpointing is not Checkpointing.OFFLOAD:
            kept = kept + elements * recipe.hidden_dtype.num_bytes
        if recipe.gradient_checkpointing is Checkpointing.SELECTIVE:
            kept = kept + split_kept(operations, layer)[0]
        meter = again = Meter(record=record)
        tape = Tape(meter, grad=True, stage=Stage.RECOMPUTE)
        tape.accumulating = accumulating
        tape.keeps_attributes = recipe.use_reentrant
        backward = _recomputed(walk_on(tape), start(tape), layer)
        if recipe.gradient_checkpointing is Checkpointing.SELECTIVE:
            backward = backward[0], _without_kept(backward[1], layer)
    operations += backward[1]
    if recipe.gradient_checkpointing is Checkpointing.OFFLOAD:
        operations += _host_copies(elements * recipe.hidden_dtype.num_bytes, recipe.hidden_dtype)
    return LayerProfile(
        forward_peak=forward_peak,
        kept=kept,
        backward_peak=meter.peak,
        gradients=backward[0],
        cast_weights=_cast_weights(layer, recipe, place),
        hidden=hidden,
        attributes=attributes,
        key_values=key_values,
        operations=tuple(operations),
        at_forward_peak=at_forward,
        at_backward_peak=alive_at_peak(meter, since=meter.restarted_at),
        recording=record_layer(first, again, output_key, collected),
    )


def _without_kept(operations: list[Operation], layer: Layer) -> list[Operation]:
    """The recomputation without what was kept, then the backward."""
    recomputed = [one for one in operations if one.stage is Stage.RECOMPUTE]
    rest = [one for one in operations if one.stage is not Stage.RECOMPUTE]
    return [*split_kept(recomputed, layer)[1], *rest]


def _host_copies(size: Number, dtype: DType) -> list[Operation]:
    """The kept layer input on its way to the host and back."""
    return [
        Operation("layer input", OperationKind.HOST_COPY, stage, dtype, bytes_moved=size)
        for stage in (Stage.FORWARD, Stage.BACKWARD)
    ]


def _forward(walk: Walk, x: Tensor, layer: Layer) -> Tensor:
    holder = [x]
    del x
    return run_layer(walk, holder.pop(), layer)


def _backward(tape: Tape, out: Tensor, meter: Meter) -> tuple[Number, list[Operation]]:
    tape.operations = []
    tape.stage = Stage.BACKWARD
    grad = tape.tensor(out.elements, out.dtype, "arriving gradient")
    holder = [out, grad]
    del out, grad
    result = tape.run_backward(holder.pop(0), holder.pop(0))
    left = tape.attribute_bytes + (result.size if result is not None else 0.0)
    meter.end(result)
    return meter.current - left, tape.operations


def _recomputed(walk: Walk, x: Tensor, layer: Layer) -> tuple[Number, list[Operation]]:
    """Recompute, then go backward.

    Reentrant checkpointing holds the output until the backward of the segment is over;
    non-reentrant stops when the last kept tensor exists again
    (``torch/utils/checkpoint.py``, torch 2.1 and later).
    """
    tape, meter, reentrant = walk.tape, walk.tape.meter, walk.recipe.use_reentrant
    grad = tape.tensor(x.elements, x.dtype, "arriving gradient")
    begin = meter.position
    out = _forward(walk, Tensor(x.storage, x.elements, x.dtype, x.node), layer)
    tape.key_values.clear()
    operations, held = tape.operations, out.storage
    if reentrant:
        meter.mark()
    else:
        num_operations, peak, last_save = tape.at_last_save
        early = tape.before_unpacking(out, grad.elements, grad.dtype)
        meter.mark(last_save + meter.was_alive(begin, early, "gradients on their way"))
        peak = peak + early
        operations = operations[:num_operations]
        held = tape.tensor(0.0, out.dtype, "output").storage
        out = Tensor(held, out.elements, out.dtype, out.node)
        meter.restart_peak()
        meter.peak = (
            np.maximum(meter.peak, peak) if isinstance(peak, np.ndarray) else max(meter.peak, peak)
        )
        meter.restarted_at = 0
    tape.operations = []
    tape.stage = Stage.BACKWARD
    holder = [out, grad]
    kept = x.storage  # checkpointing names the input until the backward of the segment is over
    del out, grad, x
    meter.mark()
    result = tape.run_backward(holder.pop(0), holder.pop(0))
    left = tape.attribute_bytes + held.size + kept.size
    left = left + (result.size if result is not None else 0.0)
    meter.end(result)
    return meter.current - left, [*operations, *tape.operations]


def _cast_weights(layer: Layer, recipe: TrainingRecipe, place: Place) -> float:
    """bf16 copies of trained fp32 linears that autocast's cache holds until the forward ends.

    Without checkpointing the graph keeps them anyway: they are among what the layer keeps.
    Source: ``aten/src/ATen/autocast_mode.cpp cached_cast`` (fp32 leaves that require grad).
    """
    if recipe.gradient_checkpointing is Checkpointing.NONE:
        return 0.0
    if not recipe.autocast or recipe.method.uses_adapter:
        return 0.0
    if recipe.trainable_dtype is not DType.FLOAT32 or place is Place.VISION:
        return 0.0
    linears = sum(
        weight.num_weight_elements for weight in layer.weights() if len(weight.shape) >= 2
    )
    return float(linears * recipe.compute_dtype.num_bytes)


def alive_at_peak(meter: Meter, since: int = 0) -> tuple[tuple[str, float], ...]:
    """What is alive when the recorded total is largest, summed by name, largest first.

    Only moments from the ``since``-th event on count.
    """
    if meter.events is None:
        return ()
    total = best = 0.0
    best_at = -1
    for index, (_, change, _) in enumerate(meter.events):
        total += change
        if index + 1 >= since and total > best:
            best, best_at = total, index
    alive: dict[int, tuple[str, float]] = {}
    for key, change, name in meter.events[: best_at + 1]:
        if change >= 0:
            alive[key] = (name, change)
        else:
            alive.pop(key, None)
    summed: dict[str, float] = {}
    for name, size in alive.values():
        summed[name] = summed.get(name, 0.0) + size
    return tuple(sorted(summed.items(), key=lambda item: -item[1]))
