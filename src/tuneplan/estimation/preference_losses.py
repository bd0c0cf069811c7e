"""What TRL's preference objectives (DPO, KTO, ORPO, SimPO) make of the logits."""

from __future__ import annotations

import numpy as np

from tuneplan.estimation.logits import cross_entropy, ungraphed
from tuneplan.estimation.modules import Walk, cast
from tuneplan.estimation.operations import Number, OperationKind
from tuneplan.estimation.shadow import Tensor
from tuneplan.spec.recipe import DType, Objective

_FP32 = DType.FLOAT32
_PREFERENCES = (Objective.DPO, Objective.KTO, Objective.ORPO, Objective.SIMPO)


def takes_rows(walk: Walk) -> bool:
    """Whether TRL takes log-probabilities of labels row by row from fp32 logits.

    Source: TRL 0.15 and later ``trainer/utils.py selective_log_softmax``; before, ``log_softmax``
    of all logits, which were upcast.
    """
    settings = walk.recipe.loss
    preference = walk.recipe.objective in _PREFERENCES
    return preference and not settings.upcast_logits and settings.output_fp32_copies > 0


def log_probabilities(walk: Walk, holder: list[Tensor], held: list[Tensor]) -> Tensor:
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
    held[:] = [ungraphed(logits)]
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


def loss_of_preferred(walk: Walk, logits: Tensor) -> Tensor:
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
    return cross_entropy(walk, rows)


def sum_of_losses(walk: Walk, one: Tensor, other: Tensor) -> Tensor:
    """Two losses added."""
    out = walk.tape.tensor(1.0, _FP32, "loss")

    def backward(grad: Tensor) -> tuple[Tensor, Tensor]:
        return grad, grad

    return walk.tape.link(out, (one, other), (), backward)
