"""What CUDA kernels allocate in passing, which no operation returns."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

# torch 2.x ``cuda/CUDABlas`` workspaces: compute capability below 9, and 9.
CUBLAS_WORKSPACE_BYTES: Final = {False: 8_519_680, True: 32 * 2**20 + 2**17}
PRODUCTS: Final = frozenset(
    {"mm", "bmm", "addmm", "baddbmm", "addbmm", "mv", "addmv", "_scaled_mm", "_grouped_mm"}
)
# Shapes of queries whose batch stands for as many calls, one after the other (``windows``).
ONE_BY_ONE: Final[set[tuple[int, ...]]] = set()
Sizes = tuple[tuple[int, ...], tuple[int, ...]]


def _bytes(tensor: Any) -> int:
    return int(math.prod(tensor.shape) * tensor.element_size())


def _softmax_backward(args: Any, kwargs: Any) -> Sizes:
    """``tmp = grad * output``, once the result has its memory (a structured kernel's output).

    ``aten/src/ATen/native/cuda/SoftMax.cu softmax_backward_cuda_out``.
    """
    del kwargs
    return (), (_bytes(args[0]),)


def _flash_backward(args: Any, kwargs: Any) -> Sizes:
    """Row sums, the fp32 query gradient, and per-head key and value gradients where grouped.

    ``aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp mha_bwd``.
    """
    del kwargs
    query, key = args[1:3]
    batch, heads, length, width = query.shape
    batch = 1 if tuple(query.shape) in ONE_BY_ONE else batch
    rounded = -(-length // 128) * 128
    wide = -(-width // 32) * 32
    sizes = [4 * batch * heads * rounded, 4 * batch * rounded * heads * wide]
    if key.shape[1] != heads:
        size = batch * heads * key.shape[2] * width * query.element_size()
        sizes += [size, size]
    return tuple(sizes), ()


def _efficient_backward(args: Any, kwargs: Any) -> Sizes:
    """Row sums, and an fp32 query gradient where it cannot be written at once.

    ``aten/src/ATen/native/transformers/cuda/attention_backward.cu _efficient_attention_backward``
    and ``mem_eff_attention/kernel_backward.h workspace_elements_gq``.
    """
    del kwargs
    query = args[1]
    batch, heads, length, width = query.shape
    batch = 1 if tuple(query.shape) in ONE_BY_ONE else batch
    sizes = [4 * batch * heads * -(-length // 32) * 32]
    if query.element_size() == 2 and width > 64:
        sizes.append(4 * batch * heads * -(-length // 64) * 64 * width)
    return tuple(sizes), ()


def _embedding_backward(args: Any, kwargs: Any) -> Sizes:
    """Beyond 3072 tokens: sorted indices, then where runs begin, and fp32 sums of runs of ten.

    ``aten/src/ATen/native/cuda/Embedding.cu embedding_dense_backward_cuda`` and
    ``EmbeddingBackwardKernel.cu embedding_backward_cuda_kernel`` (torch 1.12 and later). The
    sorting's own workspace is small beside them and left out.
    """
    del kwargs
    grad, indices, num_weights = args[:3]
    tokens, width = math.prod(indices.shape), grad.shape[-1]
    if tokens <= 3072:
        return (), ()
    index = indices.element_size()
    segments = min(tokens, num_weights)
    partial = tokens // 10 + segments
    sums = partial * width * max(grad.element_size(), 4)
    return (tokens * index,) * 2, (
        tokens * index,
        segments * index,
        segments * index,
        partial * index,
        sums,
    )


def _safe_softmax(args: Any, kwargs: Any) -> Sizes:
    """Which scores are minus infinity, one byte each, and which rows have no other.

    ``aten/src/ATen/native/transformers/attention.cpp _safe_softmax`` (seen in the allocations of
    torch 2.13 on a CPU; the code is that of every device).
    """
    del kwargs
    scores = args[0]
    return (), (int(scores.numel()), int(scores.numel() // scores.shape[-1]))


def _logsumexp(args: Any, kwargs: Any) -> Sizes:
    """``(values - max).exp_()`` before the sum, as large as the values.

    ``aten/src/ATen/native/ReduceOps.cpp logsumexp_out_impl`` (seen in the allocations of torch 2.13
    on a CPU; the code is that of every device).
    """
    del kwargs
    return (), (_bytes(args[0]),)


# Of operations that PyTorch composes of others, on whatever device.
COMPOSED: Final[dict[str, Callable[[Any, Any], Sizes]]] = {
    "_safe_softmax": _safe_softmax,
    "logsumexp": _logsumexp,
}

HIDDEN: Final[dict[str, Callable[[Any, Any], Sizes]]] = {
    "_softmax_backward_data": _softmax_backward,
    "embedding_dense_backward": _embedding_backward,
    "_scaled_dot_product_flash_attention_backward": _flash_backward,
    "_scaled_dot_product_efficient_attention_backward": _efficient_backward,
}


def _grouped_product(function: Any, args: Any, kwargs: Any) -> Any:
    """PyTorch's shape function refuses what its CUDA kernel takes: dtypes other than bf16.

    ``aten/src/ATen/native/cuda/GroupedBlas.cpp _grouped_mm_cuda`` (torch 2.10 and later) loops
    over the groups then, into one output.
    """
    import torch

    left, right = args[0], args[1]
    if left.dtype is torch.bfloat16:
        return function(*args, **kwargs)
    offsets = args[2] if len(args) > 2 else kwargs.get("offs")
    rows, columns = left.shape[-2], right.shape[-1]
    shape = [rows, columns]
    if offsets is not None and left.dim() == right.dim():
        shape = [offsets.shape[0], rows, columns]
    return left.new_empty(shape)


# Backwards that fill zeros: in place, but for tensors that Python handles out of place
# (``torch/csrc/autograd/FunctionsManual.cpp index_backward, gather_backward,
# value_selecting_reduction_backward``; ``TensorAdvancedIndexing.cpp index_select_backward``: all
# ask ``areAnyTensorSubclassLike``; seen in the allocations of torch 2.13 on a CPU).
FILLED_IN_PLACE: Final = ("index_put", "index_add", "scatter_add", "scatter")
_FILLING: Final = tuple(
    f"{name}Backward" for name in ("Index", "Gather", "IndexSelect", "Topk", "Max", "Min", "Sort")
)


def _fill(function: Any, args: Any, kwargs: Any) -> Any:
    """The first argument filled, where a backward has just made it of zeros."""
    import torch

    node = torch._C._current_autograd_node()  # noqa: SLF001
    recomputes = torch.is_grad_enabled()
    if node is None or recomputes or not node.name().startswith(_FILLING):
        return function(*args, **kwargs)
    packet, _, overload = function.__name__.partition(".")
    in_place = getattr(getattr(torch.ops.aten, f"{packet}_"), overload or "default")
    return in_place(*args, **kwargs)


SUBSTITUTES: Final[dict[str, Callable[[Any, Any, Any], Any]]] = {
    "_grouped_mm": _grouped_product,
    **dict.fromkeys(FILLED_IN_PLACE, _fill),
}
