"""From the last hidden state to the loss and back, on every path a framework takes.

With a vocabulary of 128k to 256k this is the peak of most jobs that materialise their logits.
"""

from __future__ import annotations

from tuneplan.estimation.chunked_losses import chunked_loss
from tuneplan.estimation.connections import merge_connected
from tuneplan.estimation.fused_linear_loss import fused_linear_loss
from tuneplan.estimation.layers import alive_at_peak
from tuneplan.estimation.logits import SOFTMAX_ACCESSES, cross_entropy, trained_share, upcast_logits
from tuneplan.estimation.meter import Meter
from tuneplan.estimation.modules import Walk
from tuneplan.estimation.norms import norm
from tuneplan.estimation.operations import Number, Operation, OperationKind, Stage
from tuneplan.estimation.preference_losses import (
    log_probabilities,
    loss_of_preferred,
    sum_of_losses,
    takes_rows,
)
from tuneplan.estimation.recording import Recording, record_head
from tuneplan.estimation.roles import Place
from tuneplan.estimation.sequence_parallel import whole_positions
from tuneplan.estimation.shadow import Tape, Tensor
from tuneplan.estimation.streams import alternates, merge_streams
from tuneplan.frozen import dataclass
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.recipe import DType, LossPath, Objective, TrainingRecipe
from tuneplan.spec.weights import WeightKind

_FP32 = DType.FLOAT32
# Training metrics that compute the loss of all logits once more, in fp32 and without a graph:
# Composer's LanguageCrossEntropy and LanguagePerplexity (composer/metrics/nlp.py), which
# llm-foundry's models carry unless ``use_train_metrics`` is off.
_METRIC_PASSES = {"llm-foundry": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadProfile:
    """What final norm, head and loss do to memory, in bytes.

    Attributes:
        forward_peak, backward_peak: Most that is alive, the last hidden state included.
        loss_peak: Most that is alive after the model returned, where the loop computes the loss.
        gradients: Gradients of trained weights that stay (head, final norm).
        held_logits: Logits that the training loop keeps until the next step's.
        attributes: What the head keeps as long as the graph lives (``Tape.keep_attribute``).
        recording: What the head asks of the allocator; only when asked for.
    """

    forward_peak: Number
    backward_peak: Number
    gradients: Number
    held_logits: Number
    loss_peak: Number = 0.0
    attributes: Number = 0.0
    operations: tuple[Operation, ...] = ()
    at_forward_peak: tuple[tuple[str, float], ...] = ()
    at_loss_peak: tuple[tuple[str, float], ...] = ()
    at_backward_peak: tuple[tuple[str, float], ...] = ()
    recording: Recording | None = None


def profile_head(
    model: ModelArchitecture,
    recipe: TrainingRecipe,
    *,
    sequences: Number,
    length: Number,
    record: bool = False,
    wants_gradient: bool = True,
    accumulating: bool = False,
    sequence_ranks: int = 1,
) -> HeadProfile:
    """Walk final norm, head and loss forward and backward."""
    tokens = sequences * length
    meter = Meter(record=record)
    tape = Tape(meter, grad=True)
    tape.accumulating = accumulating
    walk = Walk(
        tape, recipe, tokens, sequences, length, Place.HEAD, sequence_ranks=sequence_ranks
    )  # fmt: skip
    elements = tokens * model.hidden_size * model.streams / sequence_ranks
    x = (
        tape.leaf(elements, recipe.hidden_dtype, "last hidden state")
        if wants_gradient
        else tape.tensor(elements, recipe.hidden_dtype, "last hidden state")
    )
    walk.place = Place.OUTER
    if model.streams > 1:
        x = (merge_streams if alternates(model) else merge_connected)(walk, x, model)
    final = [weight for weight in model.outer if weight.kind is WeightKind.NORM]
    if final:
        x = norm(walk, x, final[-1])
    walk.place = Place.HEAD
    if sequence_ranks > 1:
        x = whole_positions(walk, x)
    held: list[Tensor] = []
    # The model's forward still names the normalised hidden states while the loss is computed.
    named = x.storage
    holder = [x]
    del x
    loss = _PATHS[recipe.loss.path](walk, holder, model, held)
    _record_metrics(walk, model)
    del named
    _copy_outputs(walk, held)
    if not recipe.keeps_outputs:
        held.clear()
    forward_peak, at_forward = meter.peak, alive_at_peak(meter, meter.restarted_at)
    loss_peak: Number = 0.0
    at_loss: tuple[tuple[str, float], ...] = ()
    if walk.returned is not None:
        loss_peak, at_loss = forward_peak, at_forward
        forward_peak, at_forward = walk.returned
    held_size, held_key = (held[0].size, id(held[0].storage)) if held else (0.0, None)
    meter.restart_peak()
    meter.mark()
    tape.stage = Stage.BACKWARD
    gradients: Number = 0.0
    if loss.node is not None:
        outputs = [loss, tape.tensor(1.0, _FP32, "loss gradient")]
        del loss
        result = tape.run_backward(outputs.pop(0), outputs.pop(0))
        left = held_size + tape.attribute_bytes + (result.size if result is not None else 0.0)
        gradients = meter.current - left
        meter.end(result)
    return HeadProfile(
        forward_peak=forward_peak,
        backward_peak=meter.peak,
        gradients=gradients,
        held_logits=held_size,
        loss_peak=loss_peak,
        attributes=tape.attribute_bytes,
        operations=tuple(tape.operations),
        at_forward_peak=at_forward,
        at_loss_peak=at_loss,
        at_backward_peak=alive_at_peak(meter, meter.restarted_at),
        recording=record_head(meter, held_key),
    )


def _record_metrics(walk: Walk, model: ModelArchitecture) -> None:
    passes = _METRIC_PASSES.get(walk.recipe.kernels.model_code, 0)
    if not passes:
        return
    logits = walk.tokens * model.vocab_size
    traffic = logits * (walk.recipe.compute_dtype.num_bytes + 4)
    walk.tape.elementwise(
        "metrics",
        passes * (traffic + 4 * SOFTMAX_ACCESSES[0] * logits),
        launches=4.0 * passes,
        kind=OperationKind.LOSS,
        casting=passes * traffic,
    )


def _copy_outputs(walk: Walk, held: list[Tensor]) -> None:
    """The fp32 copies that the trainer makes of the returned logits, beside what the loss keeps.

    They die with the outputs, before the backward, unless the loop keeps those.
    Source: accelerate ``utils/operations.py ConvertOutputsToFp32``.
    """
    copies = walk.recipe.loss.output_fp32_copies
    if not copies or not held or takes_rows(walk):
        return
    made = [
        walk.tape.tensor(held[0].elements, _FP32, "logits of the outputs as float32")
        for _ in range(copies)
    ]
    held[:] = [made[0]]


def _full(walk: Walk, holder: list[Tensor], model: ModelArchitecture, held: list[Tensor]) -> Tensor:
    """Logits, an fp32 copy, perhaps a shifted copy, then ``F.cross_entropy``.

    Source: transformers ``modeling_llama.py LlamaForCausalLM.forward`` (4.31-4.45) and
    ``loss/loss_utils.py ForCausalLMLoss`` (4.46-5.24).
    """
    logits, named = upcast_logits(walk, trained_share(walk, holder), model, held)
    preferred = None
    if walk.recipe.objective is Objective.ORPO:
        preferred = loss_of_preferred(walk, logits)
    if takes_rows(walk):
        holder.append(logits)
        held.clear()
        del logits
        loss = log_probabilities(walk, holder, held)
    else:
        loss = cross_entropy(walk, logits)
        del logits
    del named
    return loss if preferred is None else sum_of_losses(walk, loss, preferred)


_PATHS = {
    LossPath.FULL: _full,
    LossPath.FUSED_CROSS_ENTROPY: _full,
    LossPath.FUSED_LINEAR: fused_linear_loss,
    LossPath.CHUNKED: chunked_loss,
}
