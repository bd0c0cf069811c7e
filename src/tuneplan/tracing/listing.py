"""What a trace executed, what stood in for something, and what it leaves out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from tuneplan.frozen import dataclass
from tuneplan.language import Message, message
from tuneplan.tracing.recording import Recording
from tuneplan.tracing.wire import Traced, TraceRequest

# By the name of the operation without its overload; the first part that occurs in it decides.
_CLASSES: Final = (
    ("attention", ("scaled_dot_product", "flash_attn", "flash_attention", "sdpa")),
    ("matmul", ("mm", "bmm", "addmm", "baddbmm", "linear", "grouped_mm", "einsum", "matmul")),
    ("convolution", ("convolution", "conv1d", "conv2d", "conv3d")),
    ("optimizer", ("_foreach_", "_fused_adam", "_fused_sgd", "lerp", "addcmul", "addcdiv")),
    ("loss", ("log_softmax", "nll_loss", "cross_entropy")),
    ("normalization", ("layer_norm", "rms_norm", "rsqrt", "group_norm", "softmax")),
    ("embedding", ("embedding",)),
    ("view", ("view", "expand", "transpose", "permute", "slice", "select", "squeeze", "alias",
              "as_strided", "detach", "split", "unbind", "t", "reshape", "chunk", "unfold",
              "diagonal", "real", "imag", "lift_fresh")),
    ("copy", ("_to_copy", "copy", "clone", "contiguous", "cat", "stack", "repeat",
              "constant_pad_nd", "index", "gather", "scatter", "masked_fill", "where", "roll")),
    ("make", ("empty", "zeros", "ones", "full", "arange", "new_empty", "new_zeros", "scalar_tensor",
              "empty_like", "zeros_like", "ones_like", "full_like", "fill", "zero")),
    ("reduction", ("sum", "mean", "amax", "amin", "max", "min", "cumsum", "norm", "topk", "argmax",
                   "linalg_vector_norm", "var", "prod", "sort", "any", "all")),
)  # fmt: skip
_IN_NAMES: Final = ("attention", "optimizer", "loss", "normalization", "embedding", "convolution")


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationClass:
    """Calls of one class of operations in both steps, their arithmetic and their traffic."""

    name: str
    count: int
    flops: int
    bytes_moved: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """A name, how often, and a sentence."""

    name: str
    reason: Message
    count: int | None = None


def trained_elements(recording: Recording) -> int:
    """Numbers in the weights that are trained, where one rank holds them all."""
    first = next(at for at, phase, _ in recording.marks if phase == "forward")
    return sum(
        math.prod(block.shape)
        for block in recording.blocks
        if block.kind == "trained_weight" and (block.died < 0 or block.died > first)
    )


def class_of(operation: str) -> str:
    """The class of ``aten.mm.default``."""
    name = operation.split(".")[1] if "." in operation else operation
    bare = name.removesuffix("_backward").removesuffix("_")
    for kind, names in _CLASSES:
        if bare in names or bare.removesuffix("_copy") in names:
            return kind
        if kind in _IN_NAMES and any(part in name for part in names):
            return kind
    return "elementwise"


def operations(recording: Recording) -> tuple[OperationClass, ...]:
    """Operations by class, most arithmetic first, then most calls."""
    found: dict[str, list[int]] = {}
    for name, figures in recording.operations.items():
        sums = found.setdefault(class_of(name), [0, 0, 0])
        for position, one in enumerate(figures):
            sums[position] += one
    classes = [
        OperationClass(name=name, count=count, flops=flops, bytes_moved=moved)
        for name, (count, flops, moved) in found.items()
    ]
    return tuple(sorted(classes, key=lambda one: (-one.flops, -one.bytes_moved, -one.count)))


def stand_ins(traced: Traced) -> tuple[Remark, ...]:
    """What ran in the place of a kernel or a library, with how often it was called."""
    return tuple(_stand_ins(traced.recordings[0]))


def _stand_ins(recording: Recording) -> Iterator[Remark]:
    yield Remark(
        name="device",
        reason=message(
            "stands_in_device",
            "tensors have shapes and lifetimes but no bytes; blocks are given out by a model of "
            "PyTorch's CUDA caching allocator",
        ),
    )
    for name, source in recording.stand_ins.items():
        yield Remark(
            name=name,
            reason=message("stands_in", "{name}: {source}", name=name, source=source),
        )
    for name, count in recording.notes.items():
        kind, _, which = name.partition("_")
        if kind == "attention":
            reason = message(
                "stands_in_attention",
                "calls of attention that take the {which} kernel on this card: what it keeps and "
                "allocates inside is counted by its source",
                which=which,
            )
        else:
            reason = message("stands_in_note", "counted while tracing: {name}", name=name)
        yield Remark(name=name, reason=reason, count=count)


def not_modelled(request: TraceRequest, traced: Traced) -> tuple[Remark, ...]:
    """What a real run has and the trace leaves out."""
    return tuple(_not_modelled(request, traced))


def _not_modelled(request: TraceRequest, traced: Traced) -> Iterator[Remark]:
    yield Remark(
        name="context",
        reason=message(
            "leaves_out_context",
            "the CUDA context and loaded libraries lie outside the allocator: their size is that "
            "of the catalogue, or assumed",
        ),
    )
    for said in traced.slow_paths:
        yield Remark(
            name="slow_path",
            reason=message(
                "leaves_out_kernel", "a kernel that is not installed here: {said}", said=said
            ),
        )
    if request.parallelism.world_size > 1:
        yield Remark(
            name="communication",
            reason=message(
                "leaves_out_communication",
                "one rank is traced (DDP's gradient buckets are added by formula): NCCL's own "
                "buffers are not counted",
            ),
        )
    if request.recipe.quantization is not None:
        yield Remark(
            name="threaded_loading",
            reason=message(
                "leaves_out_loading",
                "several threads load the weights, in an order that differs from run to run: "
                "reserved memory moves by some per cent with it",
            ),
        )
    if request.architecture.vision is not None and not request.images:
        yield Remark(
            name="images",
            reason=message(
                "leaves_out_images",
                "images: rows are text alone, and the tower is held but not run; "
                "--image HEIGHTxWIDTH traces it",
            ),
        )
    if request.shorter is not None and len(traced.recordings) < 2:
        yield Remark(
            name="length_history",
            reason=message(
                "leaves_out_history",
                "batches of other lengths before the longest one: at another length what is made "
                "and dropped came in another order",
            )
            if not request.images
            else message(
                "leaves_out_history_of_images",
                "batches of other lengths before the longest one: a shorter row has no room for "
                "these images, or what is made and dropped came in another order",
            ),
        )
    if request.recipe.gradient_accumulation_steps > 2:
        yield Remark(
            name="micro_batches",
            reason=message(
                "leaves_out_micro_batches",
                "of the micro-batches of a step two are run: the others repeat the second",
            ),
        )
