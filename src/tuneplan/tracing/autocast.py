"""CUDA's autocast rules for a device that has none.

The lists are those of ``aten/src/ATen/autocast_mode.h`` (torch 2.9 to 2.13), the cache rule that
of ``autocast_mode.cpp cached_cast``: a half copy of an fp32 leaf that requires grad, and is no
view, is kept until the outermost autocast region ends.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from tuneplan.tracing.device import DEVICE

LOWER_PRECISION: Final = (
    "_convolution", "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d",
    "conv_transpose2d.input", "conv_transpose3d.input", "convolution", "prelu", "addmm", "addmv",
    "addr", "matmul", "einsum", "mm", "mv", "linalg_vecdot", "linear", "addbmm", "baddbmm", "bmm",
    "chain_matmul", "linalg_multi_dot", "_scaled_dot_product_flash_attention",
)  # fmt: skip
FLOAT32: Final = (
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p",
    "reciprocal", "rsqrt", "sinh", "tan", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar",
    "softplus", "layer_norm", "native_layer_norm", "rms_norm", "group_norm", "cosine_similarity",
    "nll_loss", "nll_loss2d", "kl_div", "l1_loss", "smooth_l1_loss", "huber_loss", "mse_loss",
    "binary_cross_entropy_with_logits", "dist", "pdist", "cdist", "renorm", "logsumexp",
)  # fmt: skip
FLOAT32_RESULT: Final = (
    "prod", "prod.dim_int", "softmax.int", "log_softmax.int", "cumprod", "cumsum",
    "linalg_vector_norm", "sum", "sum.dim_IntList",
)  # fmt: skip
WIDEST: Final = (
    "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "vdot", "grid_sampler",
    "index_put", "tensordot", "scatter_add",
)  # fmt: skip

_copies: dict[int, tuple[Any, Any]] = {}
_libraries: list[Any] = []


@cache
def install_autocast() -> None:
    """Register the rules on the device, once a process."""
    from torch import library

    every = library.Library("_", "IMPL", "AutocastPrivateUse1")
    every.fallback(library.fallthrough_kernel)
    aten = library.Library("aten", "IMPL", "AutocastPrivateUse1")
    for names, rule in (
        (LOWER_PRECISION, _to_half),
        (FLOAT32, _to_float32),
        (FLOAT32_RESULT, _float32_result),
        (WIDEST, _to_widest),
    ):
        for name in names:
            _register(aten, name, rule)
    _libraries.extend((every, aten))
    _speak_for_cuda()


def _register(library: Any, name: str, rule: Any) -> None:
    import torch

    packet, _, overload = name.partition(".")
    operation = getattr(getattr(torch.ops.aten, packet), overload or "default")
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)  # noqa: SLF001

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(keys):  # noqa: SLF001
            args, kwargs = rule(args, kwargs)
            return operation(*args, **kwargs)

    library.impl(name, kernel)


def _speak_for_cuda() -> None:
    """Libraries that ask for CUDA's autocast state get the device's."""
    import torch

    enabled, dtype_of, clear = (
        torch.is_autocast_enabled,
        torch.get_autocast_dtype,
        torch.clear_autocast_cache,
    )

    def is_enabled(device_type: str = DEVICE) -> bool:
        return bool(enabled(DEVICE if device_type == "cuda" else device_type))

    def dtype(device_type: str = DEVICE) -> Any:
        return dtype_of(DEVICE if device_type == "cuda" else device_type)

    def clear_copies() -> None:
        _copies.clear()
        clear()

    torch.is_autocast_enabled = is_enabled
    torch.get_autocast_dtype = dtype
    torch.get_autocast_gpu_dtype = dtype
    torch.clear_autocast_cache = clear_copies


def _eligible(value: Any) -> bool:
    import torch

    return (
        isinstance(value, torch.Tensor)
        and value.device.type == DEVICE
        and value.is_floating_point()
        and value.dtype is not torch.float64
    )


def _cast(value: Any, dtype: Any) -> Any:
    """``cached_cast`` of one argument (or of a list of tensors)."""
    import torch

    if isinstance(value, (list, tuple)):
        return type(value)(_cast(one, dtype) for one in value)
    if not _eligible(value) or value.dtype is dtype:
        return value
    cacheable = (
        dtype is not torch.float32
        and value.dtype is torch.float32
        and value.requires_grad
        and value.is_leaf
        and not value._is_view()  # noqa: SLF001
        and torch.is_autocast_cache_enabled()
    )
    if not cacheable:
        return value.to(dtype)
    known = _copies.get(id(value))
    if known is None:
        known = _copies[id(value)] = (value.to(dtype), value)
    return known[0]


def _all(args: Any, kwargs: Any, dtype: Any) -> tuple[Any, Any]:
    return (
        tuple(_cast(value, dtype) for value in args),
        {name: _cast(value, dtype) for name, value in kwargs.items()},
    )


def _to_half(args: Any, kwargs: Any) -> tuple[Any, Any]:
    import torch

    return _all(args, kwargs, torch.get_autocast_dtype(DEVICE))


def _to_float32(args: Any, kwargs: Any) -> tuple[Any, Any]:
    import torch

    return _all(args, kwargs, torch.float32)


def _float32_result(args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The operation casts inside, where nobody asked for a dtype."""
    import torch

    if not args or not _eligible(args[0]):
        return args, kwargs
    if kwargs.get("dtype") is not None or any(isinstance(one, torch.dtype) for one in args):
        return args, kwargs
    return tuple(one for one in args if one is not None), {**kwargs, "dtype": torch.float32}


def _to_widest(args: Any, kwargs: Any) -> tuple[Any, Any]:
    import torch

    values = [*args, *kwargs.values()]
    wide = any(_eligible(value) and value.dtype is torch.float32 for value in values)
    return _all(args, kwargs, torch.float32) if wide else (args, kwargs)
