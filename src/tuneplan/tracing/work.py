"""FLOPs and bytes of an operation, from its arguments alone.

FLOPs are those of matrix products, convolutions and attention (a multiply-add is two; causal
attention counts the half that its kernel runs). Everything else is bound by the bytes it moves:
what it reads, as far as it is distinct in memory, and what it writes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import torch

from tuneplan.estimation.operations import OperationKind

Figures = tuple[int, int, int]  # calls, FLOPs, bytes

_MAKES_ONLY: Final = frozenset(
    {"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "lift_fresh"}
)
_WRITES_ONLY: Final = frozenset(
    {"fill_", "zero_", "copy_", "normal_", "uniform_", "bernoulli_", "random_", "_foreach_zero_"}
)
# The argument that is read only where indices point.
_GATHERED: Final[Mapping[str, int]] = {
    "embedding": 0, "index": 0, "index_select": 0, "gather": 0, "nll_loss_forward": 0,
    "nll_loss_backward": 1,
}  # fmt: skip


def work_of(
    packet: str,
    written: tuple[bool, ...],
    args: Any,
    out: Any,
) -> tuple[int, int]:
    """FLOPs and bytes of one call.

    Args:
        packet: The operation without namespace and overload.
        written: Of each argument, whether it is written to.
        args: The arguments.
        out: What was returned.
    """
    count = _FLOPS.get(packet)
    flops = 0 if count is None else count(args, out)
    if packet in _MAKES_ONLY:
        return flops, 0
    wrote = sum(_size(one) for one in _new(args, out))
    wrote += sum(
        _size(tensor)
        for value, write in zip(args, written, strict=False)
        if write
        for tensor in _tensors(value)
    )
    if not wrote:
        return flops, 0
    read = 0
    for at, value in enumerate(args):
        if packet in _WRITES_ONLY and at == 0:
            continue
        size = sum(_size(tensor) for tensor in _tensors(value))
        if _GATHERED.get(packet) == at:
            size = min(size, sum(_size(one) for one in _tensors(out)))
            size = 0 if packet == "nll_loss_backward" else size
        read += size
    return flops, read + wrote


def _new(args: Any, out: Any) -> Iterator[Any]:
    """What was returned and lies on no argument."""
    given = {tensor.untyped_storage()._cdata for tensor in _tensors(args)}  # noqa: SLF001
    for tensor in _tensors(out):
        if tensor.untyped_storage()._cdata not in given:  # noqa: SLF001
            yield tensor


def _tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors(one)


def _size(tensor: Any) -> int:
    """Bytes of the elements that are distinct in memory."""
    distinct = (n for n, step in zip(tensor.shape, tensor.stride(), strict=True) if step or n < 2)
    return int(math.prod(distinct) * tensor.element_size())


def _product(args: Any, out: Any) -> int:
    """The summed dimension is the last of the left factor."""
    return int(2 * math.prod(out.shape) * args[0].shape[-1])


def _sum_and_product(args: Any, out: Any) -> int:
    return int(2 * math.prod(out.shape) * args[1].shape[-1])


def _batches_summed(args: Any, out: Any) -> int:
    del out
    return int(2 * math.prod(args[1].shape) * args[2].shape[-1])


def _grouped(args: Any, out: Any) -> int:
    """Rows are spread over the groups: each is multiplied with one matrix."""
    del out
    left, right = args[0], args[1]
    if left.dim() == 3 and right.dim() == 2:
        return int(2 * left.shape[-2] * left.shape[-1] * right.shape[-1])
    return int(2 * math.prod(left.shape) * right.shape[-1])


def _grouped_backward(args: Any, out: Any) -> int:
    """Of rows and matrices both, as transformers' fallback computes them."""
    return 2 * _grouped(args, out)


def _convolution(args: Any, out: Any) -> int:
    return int(2 * math.prod(out.shape) * math.prod(args[1].shape[1:]))


def _convolution_backward(args: Any, out: Any) -> int:
    one = 2 * math.prod(args[0].shape) * math.prod(args[2].shape[1:])
    return int(one * sum(gradient is not None for gradient in out[:2]))


def _scores(query: Any, key: Any, *, causal: bool) -> float:
    """Pairs of a query and a key that attention computes, over batch and heads."""
    pairs = math.prod(query.shape[:-1]) * key.shape[-2]
    return pairs / 2 if causal else float(pairs)


def _attention(causal_at: int) -> Callable[[Any, Any], int]:
    def flops(args: Any, out: Any) -> int:
        del out
        query, key, value = args[:3]
        causal = len(args) > causal_at and bool(args[causal_at])
        return int(2 * _scores(query, key, causal=causal) * (query.shape[-1] + value.shape[-1]))

    return flops


def _attention_backward(causal_at: int) -> Callable[[Any, Any], int]:
    """Scores again, and the gradients of scores, values, keys and queries."""

    def flops(args: Any, out: Any) -> int:
        del out
        query, key, value = args[1:4]
        causal = len(args) > causal_at and bool(args[causal_at])
        widths = 3 * query.shape[-1] + 2 * value.shape[-1]
        return int(2 * _scores(query, key, causal=causal) * widths)

    return flops


_FLOPS: Final[Mapping[str, Callable[[Any, Any], int]]] = {
    "mm": _product,
    "bmm": _product,
    "mv": _product,
    "_scaled_mm": _product,
    "addmm": _sum_and_product,
    "baddbmm": _sum_and_product,
    "addmv": _sum_and_product,
    "addbmm": _batches_summed,
    "_grouped_mm": _grouped,
    "grouped_mm_fallback": _grouped,
    "grouped_mm_fallback_backward": _grouped_backward,
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "_scaled_dot_product_flash_attention": _attention(4),
    "_scaled_dot_product_efficient_attention": _attention(6),
    "_scaled_dot_product_flash_attention_backward": _attention_backward(11),
    "_scaled_dot_product_efficient_attention_backward": _attention_backward(11),
}

_KINDS: Final[Mapping[str, OperationKind]] = {
    "mm": OperationKind.MATMUL, "bmm": OperationKind.MATMUL,
    "mv": OperationKind.MATMUL, "addmv": OperationKind.MATMUL,
    "addmm": OperationKind.MATMUL, "baddbmm": OperationKind.MATMUL, "addbmm": OperationKind.MATMUL,
    "_scaled_mm": OperationKind.MATMUL, "convolution": OperationKind.MATMUL,
    "convolution_backward": OperationKind.MATMUL,
    "_grouped_mm": OperationKind.GROUPED_MATMUL,
    "grouped_mm_fallback": OperationKind.GROUPED_MATMUL,
    "grouped_mm_fallback_backward": OperationKind.GROUPED_MATMUL,
    "_log_softmax": OperationKind.LOSS, "_log_softmax_backward_data": OperationKind.LOSS,
    "nll_loss_forward": OperationKind.LOSS, "nll_loss_backward": OperationKind.LOSS,
    "embedding": OperationKind.EMBEDDING, "embedding_dense_backward": OperationKind.EMBEDDING,
}  # fmt: skip


def kind_of(name: str) -> OperationKind:
    """The class by which the estimate prices an operation (``aten.mm.default``)."""
    packet = name.split(".")[1]
    if packet in _KINDS:
        return _KINDS[packet]
    if "attention" in packet:
        return OperationKind.ATTENTION
    if "dequant" in packet:
        return OperationKind.DEQUANTIZE
    if packet.startswith(("_foreach_", "_fused_", "_amp_")):
        return OperationKind.OPTIMIZER
    return OperationKind.ELEMENTWISE


def by_kind(operations: Mapping[str, Figures]) -> dict[OperationKind, Figures]:
    """Calls, FLOPs and bytes by the classes of ``estimation.operations``.

    Low-rank side paths are matrix products here; calls that move nothing (views) are left out.
    """
    found: dict[OperationKind, Figures] = {}
    for name, figures in operations.items():
        if not (figures[1] or figures[2]):
            continue
        before = found.get(kind_of(name), (0, 0, 0))
        found[kind_of(name)] = (
            before[0] + figures[0],
            before[1] + figures[1],
            before[2] + figures[2],
        )
    return found
