"""What a loss over chunks of tokens costs, whether its chunks are recomputed or all kept."""

from __future__ import annotations

import numpy as np

from tuneplan.estimation.linears import linear
from tuneplan.estimation.logits import model_returns, trained_share, ungraphed
from tuneplan.estimation.modules import Walk
from tuneplan.estimation.operations import Number, OperationKind
from tuneplan.estimation.recomputed_chunks import recomputed_chunks, tiled
from tuneplan.estimation.shadow import Tensor
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.recipe import DType
from tuneplan.spec.weights import Weight

_FP32 = DType.FLOAT32


def chunked_loss(
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
    x = trained_share(walk, holder)
    return tiled(walk, x, head) if settings.chunk_vocabulary else recomputed_chunks(walk, x, head)


def _kept_chunks(walk: Walk, holder: list[Tensor], head: Weight, held: list[Tensor]) -> Tensor:
    """The logits of all chunks exist; each chunk has its own cross entropy.

    autograd runs the losses of all chunks before it goes on to the head (nodes made later come
    first), and what a chunk's loss kept makes room for its gradient.
    """
    settings = walk.recipe.loss
    walk.chunked = True
    logits = linear(walk, trained_share(walk, holder), head)
    share = _share_of_chunk(walk)
    if not settings.keeps_logits:
        one = walk.tape.tensor(logits.elements * share, logits.dtype, "chunk of logits")
        logits = Tensor(one.storage, logits.elements, logits.dtype, logits.node)
        del one
    elif settings.upcast_logits and not settings.holds_model_logits:
        logits = _cast_chunks(walk, logits, share)
    held.append(ungraphed(logits))
    model_returns(walk)
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
