"""From the last hidden state to the loss and back, on every path a framework takes.

With a vocabulary of 128k to 256k this is the peak of most jobs that materialise their logits.
"""

from __future__ import annotations

import math

import numpy as np

from tuneplan.estimation.connections import merge_connected
from tuneplan.estimation.layers import alive_at_peak
from tuneplan.estimation.linears import linear
from tuneplan.estimation.modules import Walk, cast, scale
from tuneplan.estimation.operations import Number, Operation, OperationKind, Stage
from tuneplan.estimation.pointwise import activation, norm
from tuneplan.estimation.recomputed_chunks import recomputed_chunks, tiled
from tuneplan.estimation.recording import Recording, record_head
from tuneplan.estimation.roles import Place, role_of
from tuneplan.estimation.sequence_parallel import whole_positions
from tuneplan.estimation.shadow import Meter, Storage, Tape, Tensor
from tuneplan.estimation.streams import alternates, merge_streams
from tuneplan.frozen import dataclass
from tuneplan.spec.architecture import ModelArchitecture, Weight, WeightKind
from tuneplan.spec.recipe import DType, LossPath, Objective, TrainingRecipe

_FP32 = DType.FLOAT32
_PREFERENCES = (Objective.DPO, Objective.KTO, Objective.ORPO, Objective.SIMPO)
# Reads and writes of a logit in ``cross_entropy``'s kernels. Forward: a row is read for its
# maximum, for its sum and once more, and written. Backward: zeros are written for ``nll_loss``;
# the row's gradient is read for its sum, then read again with the log-softmax, and written
# (aten/src/ATen/native/cuda/SoftMax.cu, NLLLoss.cu). Liger-Kernel's benchmarks of PyTorch's loss
# on an A100 (16,384 x 131,072, fp32) show 0.81 and 0.85 of the bandwidth at these counts.
_SOFTMAX_ACCESSES = (4, 5)
# Compiled, the sum and the maximum share one pass, and the gradient is made without zeros.
_COMPILED_SOFTMAX_ACCESSES = (3, 2)
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
        passes * (traffic + 4 * _SOFTMAX_ACCESSES[0] * logits),
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
    if not copies or not held or _takes_rows(walk):
        return
    made = [
        walk.tape.tensor(held[0].elements, _FP32, "logits of the outputs as float32")
        for _ in range(copies)
    ]
    held[:] = [made[0]]


def _returns(walk: Walk) -> None:
    """The model has returned; where the loop computes the loss, a new count begins."""
    if walk.recipe.loss.outside_model:
        meter = walk.tape.meter
        walk.returned = (meter.peak, alive_at_peak(meter))
        meter.returned_at = len(meter.events) if meter.events is not None else None
        meter.restart_peak()


def _full(walk: Walk, holder: list[Tensor], model: ModelArchitecture, held: list[Tensor]) -> Tensor:
    """Logits, an fp32 copy, perhaps a shifted copy, then ``F.cross_entropy``.

    Source: transformers ``modeling_llama.py LlamaForCausalLM.forward`` (4.31-4.45) and
    ``loss/loss_utils.py ForCausalLMLoss`` (4.46-5.24).
    """
    logits, named = _upcast_logits(walk, _trained_share(walk, holder), model, held)
    preferred = None
    if walk.recipe.objective is Objective.ORPO:
        preferred = _loss_of_preferred(walk, logits)
    if _takes_rows(walk):
        holder.append(logits)
        held.clear()
        del logits
        loss = _log_probabilities(walk, holder, held)
    else:
        loss = _cross_entropy(walk, logits)
        del logits
    del named
    return loss if preferred is None else _sum_of(walk, loss, preferred)


def _takes_rows(walk: Walk) -> bool:
    """Whether TRL takes log-probabilities of labels row by row from fp32 logits.

    Source: TRL 0.15 and later ``trainer/utils.py selective_log_softmax``; before, ``log_softmax``
    of all logits, which were upcast.
    """
    settings = walk.recipe.loss
    preference = walk.recipe.objective in _PREFERENCES
    return preference and not settings.upcast_logits and settings.output_fp32_copies > 0


def _log_probabilities(walk: Walk, holder: list[Tensor], held: list[Tensor]) -> Tensor:
    """``gather`` less ``logsumexp`` of each row: keeps the fp32 logits, which are the outputs'.

    Forward and backward make passing tensors of one row; all rows' gradients are then stacked.
    A reference runs beside the policy's graph (DPO, KTO).
    Source: PyTorch ``ReduceOps.cpp logsumexp_out_impl``, ``FunctionsManual.cpp
    logsumexp_backward``, ``unbind_backward``.
    """
    logits = holder.pop()
    tape, elements, rows = walk.tape, logits.elements, walk.sequences
    half = logits.dtype
    logits = cast(walk, logits, _FP32, "logits", OperationKind.LOSS)
    held[:] = [_plain(logits)]
    passing = [tape.tensor(elements / rows, _FP32, "row of logits, shifted")]
    passing.clear()
    traffic = 6 * logits.size
    tape.elementwise("log-softmax", traffic, launches=6.0 * _count(rows), kind=OperationKind.LOSS)
    if walk.recipe.objective in (Objective.DPO, Objective.KTO):
        narrow = tape.tensor(elements, half, "logits of the reference")
        passing.append(tape.tensor(elements, _FP32, "logits of the reference as float32"))
        del narrow
        passing.append(tape.tensor(elements / rows, _FP32, "row of the reference's logits"))
        tape.elementwise("log-softmax", traffic, launches=6.0, kind=OperationKind.LOSS)
        passing.clear()
    loss = tape.tensor(1.0, _FP32, "loss")

    def backward(grad: Tensor) -> tuple[Tensor]:
        del grad
        found = [tape.tensor(elements * (1 - 1 / rows), _FP32, "gradients of other rows")]
        passing = [tape.tensor(elements / rows, _FP32, "gradient of a row") for _ in range(3)]
        found.append(passing.pop())
        passing.clear()
        stacked = tape.tensor(elements, _FP32, "gradient of logits")
        found.clear()
        scattered = tape.tensor(elements, _FP32, "gradient of labels' logits")
        tape.elementwise(
            "log-softmax", 12 * stacked.size, launches=6.0 * _count(rows), kind=OperationKind.LOSS
        )
        del scattered
        return (stacked,)

    return tape.link(loss, (logits,), (logits,), backward)


def _count(rows: Number) -> float:
    return float(np.mean(rows))


def _loss_of_preferred(walk: Walk, logits: Tensor) -> Tensor:
    """ORPO's language loss of the preferred half of the rows, on a contiguous copy of them.

    It is made before the log-probabilities of all rows, so what it keeps is there in their
    backward. Source: TRL 0.8 to 0.28 ``trainer/orpo_trainer.py concatenated_forward``.
    """
    tape, elements, dtype = walk.tape, logits.elements, logits.dtype
    if walk.recipe.loss.output_fp32_copies:
        dtype = _FP32
    out = tape.tensor(elements / 2, dtype, "logits of preferred rows")
    tape.elementwise("select", 2 * out.size, kind=OperationKind.LOSS)

    def backward(grad: Tensor) -> tuple[Tensor]:
        tape.elementwise("select", 3 * grad.size, launches=2.0, kind=OperationKind.LOSS)
        del grad
        return (tape.tensor(elements, logits_dtype, "gradient of logits, padded"),)

    logits_dtype = logits.dtype
    rows = tape.link(out, (logits,), (), backward)
    del out, logits
    return _cross_entropy(walk, rows)


def _sum_of(walk: Walk, one: Tensor, other: Tensor) -> Tensor:
    """Two losses added."""
    out = walk.tape.tensor(1.0, _FP32, "loss")

    def backward(grad: Tensor) -> tuple[Tensor, Tensor]:
        return grad, grad

    return walk.tape.link(out, (one, other), (), backward)


def _upcast_logits(
    walk: Walk, x: Tensor, model: ModelArchitecture, held: list[Tensor]
) -> tuple[Tensor, list[Storage]]:
    """Logits as the loss reads them, and what the model's forward still holds meanwhile."""
    settings = walk.recipe.loss
    logits = linear(walk, x, model.head_weight)
    del x
    if model.logit_scale:
        logits = scale(walk, logits, "logits", OperationKind.LOSS)
    if model.logit_softcap and settings.path is LossPath.FULL:
        logits = _soft_capped(walk, logits)
    held.append(_plain(logits))
    named: list[Storage] = []
    if settings.upcast_logits:
        if settings.holds_model_logits:
            named.append(logits.storage)
        logits = cast(walk, logits, _FP32, "logits", OperationKind.LOSS)
        if not settings.holds_model_logits:
            held[:] = [_plain(logits)]
    _returns(walk)
    if settings.shifted_copy:
        named.append(logits.storage)
        logits = _shifted(walk, logits)
    return logits, named


def _soft_capped(walk: Walk, logits: Tensor) -> Tensor:
    """Divided, their tangent (kept), multiplied; unsloth's fused loss does it in its kernel.

    Source: transformers ``models/gemma2/modeling_gemma2.py Gemma2ForCausalLM.forward``; unsloth
    ``kernels/cross_entropy_loss.py``.
    """
    logits = scale(walk, logits, "logits", OperationKind.LOSS)
    logits = activation(walk, logits, "tanh")
    return scale(walk, logits, "capped logits", OperationKind.LOSS)


def _plain(x: Tensor) -> Tensor:
    """The same bytes under a name that no graph hangs on."""
    return Tensor(x.storage, x.elements, x.dtype)


def _trained_share(walk: Walk, holder: list[Tensor]) -> Tensor:
    """The hidden states whose logits are computed (``logits_to_keep``), all of them by default.

    Where masked tokens are skipped, those with labels are a copy, however many they are (TRL 1.15
    ``trainer/utils.py add_fused_lm_head``: ``hidden_states[mask]``).
    """
    x = holder.pop()
    share = walk.recipe.loss.trained_fraction
    if share >= 1.0 and not walk.recipe.loss.skips_masked:
        return x
    tape, elements, dtype = walk.tape, x.elements, x.dtype
    out = tape.tensor(elements * share, dtype, "hidden states with labels")
    tape.elementwise("select", 2 * out.size)

    def backward(grad: Tensor) -> tuple[Tensor]:
        del grad
        tape.elementwise("select", 2 * elements * dtype.num_bytes)
        return (tape.tensor(elements, dtype, "gradient of last hidden state"),)

    return tape.link(out, (x,), (), backward)


def _shifted(walk: Walk, logits: Tensor) -> Tensor:
    """``logits[..., :-1, :].contiguous()``; backward pads with zeros in a new tensor."""
    tape, elements, dtype = walk.tape, logits.elements, logits.dtype
    out = tape.tensor(elements, dtype, "shifted logits")
    tape.elementwise("shift", 2 * logits.size, kind=OperationKind.LOSS)

    def backward(grad: Tensor) -> tuple[Tensor]:
        tape.elementwise("shift", 3 * grad.size, launches=2.0, kind=OperationKind.LOSS)
        return (tape.tensor(elements, dtype, "gradient of logits, padded"),)

    return tape.link(out, (logits,), (), backward)


def _cross_entropy(walk: Walk, logits: Tensor) -> Tensor:
    """``log_softmax`` (kept) and ``nll_loss``, whose backward makes a full zero-filled gradient.

    Source: PyTorch ``derivatives.yaml`` (``_log_softmax``: result), ``cuda/NLLLoss2d.cu``.
    """
    if walk.recipe.loss.path is LossPath.FUSED_CROSS_ENTROPY:
        return _fused_cross_entropy(walk, logits)
    tape, elements, dtype = walk.tape, logits.elements, logits.dtype
    inner = _FP32 if walk.recipe.autocast else dtype
    logits = cast(walk, logits, inner, "logits", OperationKind.LOSS)
    chances = tape.tensor(elements, inner, "log-softmax of logits")
    size = chances.size
    compiled = walk.recipe.kernels.compiled
    forward, back = _COMPILED_SOFTMAX_ACCESSES if compiled else _SOFTMAX_ACCESSES
    tape.elementwise("log-softmax", forward * size, launches=3.0, kind=OperationKind.LOSS)
    loss = tape.tensor(1.0, _FP32, "loss")

    def backward(grad: Tensor) -> tuple[Tensor]:
        scattered = tape.tensor(elements, inner, "gradient of log-softmax")
        result = tape.tensor(elements, inner, "gradient of logits")
        tape.elementwise("log-softmax", back * size, launches=4.0, kind=OperationKind.LOSS)
        del scattered, grad
        return (result,)

    return tape.link(loss, (logits,), (chances,), backward)


def _fused_cross_entropy(walk: Walk, logits: Tensor) -> Tensor:
    """One kernel over full logits; its backward writes the gradient over them.

    Source: unsloth ``kernels/cross_entropy_loss.py`` (and fms-acceleration's copy).
    """
    tape, elements, dtype = walk.tape, logits.elements, logits.dtype
    size = logits.size
    tape.elementwise("cross entropy", size, kind=OperationKind.LOSS)
    loss = tape.tensor(1.0, _FP32, "loss")
    kept = [logits.storage]

    def backward(grad: Tensor) -> tuple[Tensor]:
        del grad
        tape.elementwise("cross entropy", 2 * size, kind=OperationKind.LOSS)
        return (Tensor(kept.pop(), elements, dtype),)

    return tape.link(loss, (logits,), (), backward)


def _fused_linear(
    walk: Walk, holder: list[Tensor], model: ModelArchitecture, held: list[Tensor]
) -> Tensor:
    """Head and loss in one function that makes its gradients in the forward, chunk by chunk.

    A chunk is the next power of two of ``T / ceil(V / h)`` rows; alive per chunk: half logits, an
    fp32 copy, a half copy and its scaled copy.
    Source: Liger-Kernel ``ops/fused_linear_cross_entropy.py`` (0.2); its published timings on an
    A100 (8,192 to 32,768 x 4,096 x 128,256) are these products and bytes within 6 %.
    """
    del held
    tape, recipe, head = walk.tape, walk.recipe, model.head_weight
    x = _trained_share(walk, holder)
    role = role_of(head, recipe, walk.place)
    compute = recipe.compute_dtype if recipe.autocast else x.dtype
    x = cast(walk, x, compute, "last hidden state")
    elements, vocab, hidden = x.elements, head.out_features, head.in_features
    tokens = elements / hidden
    rows = _chunk_rows(tokens, vocab, hidden)
    saved = [tape.tensor(elements, compute, "gradient of last hidden state")]
    if role.trained or role.copied:
        saved.append(
            tape.tensor(float(vocab * hidden), compute, "gradient of head, made in the forward")
        )
    chunk = [
        tape.tensor(rows * vocab, compute, "chunk of logits"),
        tape.tensor(rows * vocab, _FP32, "chunk of logits as float32"),
        tape.tensor(rows * vocab, compute, "chunk of logits' gradient"),
        tape.tensor(rows * vocab, compute, "chunk of logits' gradient, scaled"),
    ]
    chunks = float(np.mean(np.ceil(tokens / rows)))
    tape.matmul("lm_head", tokens, vocab, hidden, compute)
    tape.matmul("lm_head input gradient", tokens, hidden, vocab, compute)
    if role.trained or role.copied:
        tape.matmul("lm_head weight", vocab, hidden, tokens, compute)
    # Half logits cast to fp32 (6 B), read twice and overwritten with their gradient (12 B), which
    # is cast back (6 B); a trained head's gradient is summed up chunk by chunk (read and written).
    cast_traffic = 12 * tokens * vocab if compute is not _FP32 else 0.0
    sums = 0.0
    if role.trained or role.copied:
        sums = 2.0 * chunks * vocab * hidden * compute.num_bytes
    tape.elementwise(
        "cross entropy",
        12 * tokens * vocab + cast_traffic + sums,
        launches=10 * chunks,
        kind=OperationKind.LOSS,
        casting=cast_traffic,
    )
    del chunk
    loss = tape.tensor(1.0, _FP32, "loss")
    storages = [tensor.storage for tensor in saved]
    dtype = recipe.gradient_dtype or role.used_dtype
    del saved

    def backward(grad: Tensor) -> tuple[Tensor]:
        del grad
        if len(storages) > 1:
            storages.pop()
            tape.weight_gradient(float(vocab * hidden), dtype, "lm_head")
        return (Tensor(storages.pop(), elements, compute),)

    return tape.link(loss, (x,), (), backward, trains=True)


def _chunk_rows(tokens: Number, vocab: int, hidden: int) -> Number:
    target = np.ceil(np.asarray(tokens) / math.ceil(vocab / hidden))
    rows = np.exp2(np.ceil(np.log2(np.maximum(target, 1.0))))
    return rows if isinstance(tokens, np.ndarray) else float(rows)


def _chunked(
    walk: Walk, holder: list[Tensor], model: ModelArchitecture, held: list[Tensor]
) -> Tensor:
    """Head and loss over chunks of tokens.

    Where chunks are recomputed, only one is alive at a time. Otherwise the logits of all chunks
    exist together (torchtune before 0.7) and may each keep their log-softmax too (LitGPT).
    Source: TRL 1.10 ``trainer/sft_trainer.py`` (chunked NLL), torchtune 0.4
    ``modules/loss/ce_chunked_output_loss.py``, LitGPT ``utils.py chunked_cross_entropy``.
    """
    settings, head = walk.recipe.loss, model.head_weight
    if settings.keeps_logits or settings.keeps_softmax:
        return _kept_chunks(walk, holder, head, held)
    x = _trained_share(walk, holder)
    return tiled(walk, x, head) if settings.chunk_vocabulary else recomputed_chunks(walk, x, head)


def _kept_chunks(walk: Walk, holder: list[Tensor], head: Weight, held: list[Tensor]) -> Tensor:
    """The logits of all chunks exist; each chunk has its own cross entropy.

    autograd runs the losses of all chunks before it goes on to the head (nodes made later come
    first), and what a chunk's loss kept makes room for its gradient.
    """
    settings = walk.recipe.loss
    walk.chunked = True
    logits = linear(walk, _trained_share(walk, holder), head)
    share = _share_of_chunk(walk)
    if not settings.keeps_logits:
        one = walk.tape.tensor(logits.elements * share, logits.dtype, "chunk of logits")
        logits = Tensor(one.storage, logits.elements, logits.dtype, logits.node)
        del one
    elif settings.upcast_logits and not settings.holds_model_logits:
        logits = _cast_chunks(walk, logits, share)
    held.append(_plain(logits))
    _returns(walk)
    if settings.keeps_softmax:
        return _softmax_chunks(walk, logits, share)
    return _one_kernel_chunks(walk, logits, share)


def _share_of_chunk(walk: Walk) -> Number:
    """One chunk as a share of the micro-batch: chunks are cut along the sequence."""
    settings = walk.recipe.loss
    if settings.num_chunks:
        return 1 / settings.num_chunks
    share = (settings.chunk_tokens or 256) / walk.length
    return np.minimum(1.0, share) if isinstance(share, np.ndarray) else min(1.0, share)


def _cast_chunks(walk: Walk, logits: Tensor, share: Number) -> Tensor:
    """Lightning's precision plugin turns what the model returns into fp32 (``convert_output``)."""
    tape, source, elements = walk.tape, logits.dtype, logits.elements
    out = tape.tensor(elements, _FP32, "logits of all chunks as float32")
    traffic = elements * (source.num_bytes + _FP32.num_bytes)
    launches = float(np.mean(1 / share))
    kind = OperationKind.LOSS
    tape.elementwise("cast", traffic, kind=kind, casting=traffic, launches=launches)

    def backward(grad: Tensor) -> tuple[Tensor]:
        passing = tape.tensor(elements * share, source, "chunk of gradient, cast")
        del grad, passing
        tape.elementwise("cast", traffic, kind=kind, casting=traffic, launches=launches)
        return (tape.tensor(elements, source, "gradient of logits"),)

    return tape.link(out, (logits,), (), backward)


def _softmax_chunks(walk: Walk, logits: Tensor, share: Number) -> Tensor:
    """``F.cross_entropy`` of each chunk: its log-softmax stays until its backward."""
    tape, elements, dtype = walk.tape, logits.elements, logits.dtype
    inner = _FP32 if walk.recipe.loss.upcast_logits or walk.recipe.autocast else dtype
    launches = 4 * float(np.mean(1 / share))
    over = [tape.tensor(elements, inner, "log-softmax of chunks").storage]
    passing = None
    if inner is not dtype:
        passing = tape.tensor(elements * share, inner, "chunk of logits as float32")
    traffic = elements * (2 * inner.num_bytes + (6 if inner is not dtype else 0))
    tape.elementwise("cross entropy", traffic, launches=launches, kind=OperationKind.LOSS)
    del passing
    loss = tape.tensor(1.0, _FP32, "loss")

    def backward(grad: Tensor) -> tuple[Tensor]:
        del grad
        one = tape.tensor(elements * share, inner, "chunk of log-softmax gradient")
        two = tape.tensor(elements * share, inner, "chunk of logits' gradient")
        pieces = over.pop()
        del one, two
        if inner is not dtype:
            del pieces
            at_once = elements if walk.recipe.loss.keeps_logits else elements * share
            pieces = tape.tensor(at_once, dtype, "gradient of logits").storage
        traffic = elements * (4 * inner.num_bytes + 2 * dtype.num_bytes)
        tape.elementwise(
            "cross entropy", traffic, launches=1.25 * launches, kind=OperationKind.LOSS
        )
        return (Tensor(pieces, elements, dtype),)

    return tape.link(loss, (logits,), (), backward)


def _one_kernel_chunks(walk: Walk, logits: Tensor, share: Number) -> Tensor:
    """A compiled cross entropy: keeps the half logits, and each gradient takes their place.

    Source: torchtune 0.4 ``modules/loss/ce_chunked_output_loss.py apply_compile_strategy``.
    """
    tape, elements, dtype = walk.tape, logits.elements, logits.dtype
    kind, chunks = OperationKind.LOSS, float(np.mean(1 / share))
    tape.elementwise("cross entropy", 2 * logits.size, launches=2 * chunks, kind=kind)
    loss = tape.tensor(1.0, _FP32, "loss")
    over = [logits.storage]

    def backward(grad: Tensor) -> tuple[Tensor]:
        del grad
        one = tape.tensor(elements * share, dtype, "chunk of logits' gradient")
        tape.elementwise(
            "cross entropy", 2 * elements * dtype.num_bytes, launches=chunks, kind=kind
        )
        del one
        return (Tensor(over.pop(), elements, dtype),)

    return tape.link(loss, (logits,), (), backward)


_PATHS = {
    LossPath.FULL: _full,
    LossPath.FUSED_CROSS_ENTROPY: _full,
    LossPath.FUSED_LINEAR: _fused_linear,
    LossPath.CHUNKED: _chunked,
}
