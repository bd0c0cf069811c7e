"""Heads and losses that make logits a chunk at a time, and again in the backward."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from tuneplan.estimation.modules import Walk
from tuneplan.estimation.operations import Number, OperationKind
from tuneplan.estimation.roles import Role, role_of
from tuneplan.estimation.shadow import Tensor
from tuneplan.frozen import dataclass
from tuneplan.spec.recipe import DType
from tuneplan.spec.weights import Weight

_FP32 = DType.FLOAT32


@dataclass(frozen=True, slots=True)
class _Head:
    """The head as a chunk meets it.

    Attributes:
        held: dtype of its weight (of the trained copy, where there is one).
        operand: dtype of its products.
        matrix: Elements of the weight.
        passes_fp32: The weight is cast to fp32 before the product (``Loss.fp32_head``).
        cached: Autocast casts the trained weight once for all chunks
            (``aten/src/ATen/autocast_mode.cpp cached_cast``), so gradients are summed in half.
    """

    weight: Weight
    held: DType
    operand: DType
    matrix: float
    trained: bool
    passes_fp32: bool
    cached: bool

    def casts(self, source: DType) -> list[DType]:
        """What a tensor of ``source`` is cast to, one after the other, to be an operand."""
        made = []
        for dtype in (*((_FP32,) if self.passes_fp32 else ()), self.operand):
            if dtype is not source:
                made.append(dtype)
            source = dtype
        return made

    @property
    def cast_traffic(self) -> float:
        """Bytes that the casts of the weight move for one chunk."""
        steps = [self.held, *self.casts(self.held)]
        widths = [a.num_bytes + b.num_bytes for a, b in pairwise(steps)]
        return self.matrix * sum(widths)


def _head_of(walk: Walk, x: Tensor, weight: Weight) -> _Head:
    recipe = walk.recipe
    role: Role = role_of(weight, recipe, walk.place)
    fp32, trained = recipe.loss.fp32_head, role.trained or role.copied
    is_leaf = not recipe.loss.skips_masked  # TRL multiplies with a transposed view
    return _Head(
        weight=weight,
        held=role.used_dtype,
        operand=recipe.compute_dtype if recipe.autocast else _FP32 if fp32 else x.dtype,
        matrix=float(weight.out_features * weight.in_features),
        trained=trained,
        passes_fp32=fp32,
        cached=recipe.autocast and trained and is_leaf and role.used_dtype is _FP32,
    )


def recomputed_chunks(walk: Walk, x: Tensor, weight: Weight) -> Tensor:
    """Chunks of tokens, each under a checkpoint of its own: one chunk's logits exist at a time.

    Forward: what the product needs of the head, logits, their fp32 copy, its log-softmax. The half
    logits die before the softmax where the code names the fp32 copy in their place; where autocast
    makes the copy they do not. Backward: the same again, then (without the logits, which nothing
    keeps) the log-softmax, the picked labels' gradient, that of the logits and the two products.
    The gradient of a trained head waits while the other chunks run; where it is the view of a
    product, the second one is added into a third matrix (``input_buffer.cpp``).
    Source: TRL 1.7 to 1.14 ``trainer/sft_trainer.py _chunk`` (its entropy makes two more fp32
    tensors), PyTorch 2.13 ``derivatives.yaml`` (``_log_softmax``: result).
    """
    tape, head = walk.tape, _head_of(walk, x, weight)
    elements, source = x.elements, x.dtype
    tokens = elements / weight.in_features
    rows = _rows_of_chunk(walk, tokens)
    chunks = float(np.mean(tokens / rows))
    shared = None
    if head.cached:
        shared = tape.tensor(head.matrix, head.operand, f"lm_head weight as {head.operand}")
    _one_forward(walk, replace(head, held=head.operand) if shared else head, rows, source)
    del shared
    tape.matmul("lm_head", tokens, weight.out_features, weight.in_features, head.operand)
    logits = tokens * weight.out_features
    casts = chunks * head.cast_traffic
    tape.elementwise("cross entropy", 14 * logits, launches=8 * chunks, kind=OperationKind.LOSS)
    _cast_head(walk, casts, chunks)
    loss = tape.tensor(1.0, _FP32, "loss")

    def backward(grad: Tensor) -> tuple[Tensor]:
        del grad
        result = tape.tensor(elements, source, "gradient of last hidden state")
        waiting = None
        if head.trained and chunks > 1:
            dtype = head.operand if head.cached else head.held
            waiting = tape.tensor(head.matrix, dtype, "gradient of lm_head, other chunks")
        kept = _one_forward(walk, head, rows, source, keeps=True)
        _one_backward(walk, head, rows, kept, adds=waiting is not None)
        inputs, outputs = weight.in_features, weight.out_features
        tape.matmul("lm_head", tokens, outputs, inputs, head.operand)
        tape.matmul("lm_head input gradient", tokens, inputs, outputs, head.operand)
        tape.elementwise(
            "cross entropy", 32 * logits, launches=16 * chunks, kind=OperationKind.LOSS
        )
        _cast_head(walk, (2 if head.trained else 1) * casts, chunks)
        if head.trained:
            tape.matmul("lm_head weight", outputs, inputs, tokens, head.operand)
            dtype = walk.recipe.gradient_dtype or head.held
            if waiting is not None and waiting.dtype is dtype:
                waiting = None  # it becomes the gradient
            tape.weight_gradient(head.matrix, dtype, "lm_head")
        del waiting
        return (result,)

    return tape.link(loss, (x,), (x,), backward, trains=head.trained)


def _cast_head(walk: Walk, traffic: float, launches: float) -> None:
    if traffic:
        walk.tape.elementwise("cast weight", traffic, launches=launches, casting=traffic)


def _one_forward(
    walk: Walk, head: _Head, rows: Number, source: DType, *, keeps: bool = False
) -> list[Tensor]:
    """A chunk's product and softmax; what the graph keeps: its operands and the log-softmax.

    The first forward ``keeps`` nothing (``torch/utils/checkpoint.py`` packs it away).
    """
    tape, settings = walk.tape, walk.recipe.loss
    size = rows * head.weight.out_features
    tokens = rows * head.weight.in_features
    copies = [
        tape.tensor(tokens, dtype, f"chunk of hidden states as {dtype}")
        for dtype in head.casts(source)
    ]
    matrices = [
        tape.tensor(head.matrix, dtype, f"lm_head weight as {dtype}")
        for dtype in head.casts(head.held)
    ]
    logits = tape.tensor(size, head.operand, "chunk of logits")
    del matrices[: -1 if keeps else None], copies[: -1 if keeps else None]
    wide = logits
    if head.operand is not _FP32 and (settings.upcast_logits or walk.recipe.autocast):
        wide = tape.tensor(size, _FP32, "chunk of logits as float32")
        if not head.passes_fp32:
            del logits  # the copy has taken its name
    chances = tape.tensor(size, wide.dtype, "chunk of log-softmax")
    if settings.skips_masked:
        if head.operand is not _FP32 and head.passes_fp32:
            del wide  # made by autocast, inside
        entropy = [tape.tensor(size, _FP32, "entropy of a chunk") for _ in range(2)]
        del entropy
    return [*matrices, *copies, chances]


def _one_backward(walk: Walk, head: _Head, rows: Number, kept: list[Tensor], *, adds: bool) -> None:
    """From a chunk's log-softmax to the gradients of its two operands."""
    tape = walk.tape
    size = rows * head.weight.out_features
    chances = kept.pop()
    scattered = tape.tensor(size, chances.dtype, "chunk of log-softmax gradient")
    result = tape.tensor(size, chances.dtype, "chunk of logits' gradient")
    del chances, scattered
    if result.dtype is not head.operand:
        result = tape.tensor(size, head.operand, "chunk of logits' gradient, cast")
    operand = tape.tensor(rows * head.weight.in_features, head.operand, "gradient of a chunk")
    if head.trained:
        narrow = tape.tensor(head.matrix, head.operand, "gradient of lm_head, one chunk")
        kept.clear()
        del result
        steps = [_FP32, head.held] if head.passes_fp32 else [head.held]
        for dtype in () if head.cached else steps:
            if narrow.dtype is not dtype:
                narrow = tape.tensor(head.matrix, dtype, f"gradient of lm_head as {dtype}")
        if adds and not head.passes_fp32:
            total = tape.tensor(head.matrix, narrow.dtype, "gradient of lm_head, sum of chunks")
            del total
        del narrow
    del operand


def _rows_of_chunk(walk: Walk, tokens: Number) -> Number:
    settings = walk.recipe.loss
    if settings.num_chunks:
        return tokens / settings.num_chunks
    rows = settings.chunk_tokens or 256
    return np.minimum(tokens, rows) if isinstance(tokens, np.ndarray) else min(tokens, float(rows))


def tiled(walk: Walk, x: Tensor, weight: Weight) -> Tensor:
    """Log-probabilities from tiles of tokens x vocabulary entries; gradients summed in fp32.

    One buffer in the compute dtype holds each tile in turn, as wide as a tile also where the
    vocabulary is smaller; the backward turns it into the logits' gradient in place. The fp32 sums
    are cast at the end, while buffer and sums are still there.
    Source: TRL 1.15 and 1.16 ``kernels/chunked_logprob.py ChunkedLogProbFunction`` (a CUDA
    ``addmm`` adds a half product to an fp32 sum, torch 2.8 and later).
    """
    tape, settings, head = walk.tape, walk.recipe.loss, _head_of(walk, x, weight)
    elements, source = x.elements, x.dtype
    tokens = elements / weight.in_features
    rows = _rows_of_chunk(walk, tokens)
    columns = min(settings.chunk_vocabulary, weight.out_features)
    logits = tokens * weight.out_features

    def buffers() -> list[Tensor]:
        made = [tape.tensor(rows * settings.chunk_vocabulary, head.operand, "tile of logits")]
        if source is not head.operand:
            part = rows * weight.in_features
            made.append(tape.tensor(part, head.operand, "hidden states of a tile, cast"))
        if head.held is not head.operand:
            part = float(columns * weight.in_features)
            made.append(tape.tensor(part, head.operand, "lm_head weight of a tile, cast"))
        return made

    tiles = buffers()
    tape.matmul("lm_head", tokens, weight.out_features, weight.in_features, head.operand)
    chunks = float(np.mean(tokens / rows))
    tape.elementwise("cross entropy", 14 * logits, launches=8 * chunks, kind=OperationKind.LOSS)
    del tiles
    loss = tape.tensor(1.0, _FP32, "loss")

    def backward(grad: Tensor) -> tuple[Tensor]:
        del grad
        result = tape.tensor(elements, _FP32, "gradient of last hidden state as float32")
        of_head = None
        if head.trained:
            of_head = tape.tensor(head.matrix, _FP32, "gradient of lm_head as float32")
        tiles = buffers()
        inputs, outputs = weight.in_features, weight.out_features
        tape.matmul("lm_head", tokens, outputs, inputs, head.operand)
        tape.matmul("lm_head input gradient", tokens, inputs, outputs, head.operand)
        launches = 16 * chunks
        tape.elementwise("cross entropy", 32 * logits, launches=launches, kind=OperationKind.LOSS)
        wide = result
        if source is not _FP32:
            result = tape.tensor(elements, source, "gradient of last hidden state")
        if of_head is not None:
            tape.matmul("lm_head weight", outputs, inputs, tokens, head.operand)
            dtype = walk.recipe.gradient_dtype or head.held
            if dtype is _FP32:
                of_head = None  # the sum itself becomes the gradient
            tape.weight_gradient(head.matrix, dtype, "lm_head")
        del tiles, wide, of_head
        return (result,)

    return tape.link(loss, (x,), (x,), backward, trains=head.trained)
