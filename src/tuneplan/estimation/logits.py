"""What whole logits cost: made, upcast, capped and shifted, and their cross entropy."""

from __future__ import annotations

from tuneplan.estimation.activations import activation
from tuneplan.estimation.layers import alive_at_peak
from tuneplan.estimation.linears import linear
from tuneplan.estimation.meter import Storage
from tuneplan.estimation.modules import Walk, cast, scale
from tuneplan.estimation.operations import OperationKind
from tuneplan.estimation.shadow import Tensor
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.recipe import DType, LossPath

_FP32 = DType.FLOAT32
# Reads and writes of a logit in ``cross_entropy``'s kernels. Forward: a row is read for its
# maximum, for its sum and once more, and written. Backward: zeros are written for ``nll_loss``;
# the row's gradient is read for its sum, then read again with the log-softmax, and written
# (aten/src/ATen/native/cuda/SoftMax.cu, NLLLoss.cu). Liger-Kernel's benchmarks of PyTorch's loss
# on an A100 (16,384 x 131,072, fp32) show 0.81 and 0.85 of the bandwidth at these counts.
SOFTMAX_ACCESSES = (4, 5)
# Compiled, the sum and the maximum share one pass, and the gradient is made without zeros.
_COMPILED_SOFTMAX_ACCESSES = (3, 2)


def model_returns(walk: Walk) -> None:
    """The model has returned; where the loop computes the loss, a new count begins."""
    if walk.recipe.loss.outside_model:
        meter = walk.tape.meter
        walk.returned = (meter.peak, alive_at_peak(meter))
        meter.returned_at = len(meter.events) if meter.events is not None else None
        meter.restart_peak()


def upcast_logits(
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
    held.append(ungraphed(logits))
    named: list[Storage] = []
    if settings.upcast_logits:
        if settings.holds_model_logits:
            named.append(logits.storage)
        logits = cast(walk, logits, _FP32, "logits", OperationKind.LOSS)
        if not settings.holds_model_logits:
            held[:] = [ungraphed(logits)]
    model_returns(walk)
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


def ungraphed(x: Tensor) -> Tensor:
    """The same bytes under a name that no graph hangs on."""
    return Tensor(x.storage, x.elements, x.dtype)


def trained_share(walk: Walk, holder: list[Tensor]) -> Tensor:
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


def cross_entropy(walk: Walk, logits: Tensor) -> Tensor:
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
    forward, back = _COMPILED_SOFTMAX_ACCESSES if compiled else SOFTMAX_ACCESSES
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
