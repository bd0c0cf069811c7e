"""Operations that are one kernel on CUDA and would come apart on another device.

Two kinds. An operation with a kernel of its own on CUDA and a composition for devices without one:
``tests/tracing/test_engine_device.py`` asks PyTorch's list of operations which those are. And an
operation whose composition asks whether its input lies on CUDA.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import library

# Kernels without a formula for their own gradient: let through to the device.
BACKWARDS: Final = ("silu_backward", "mish_backward")
# Kernels with a formula: the formula is used as soon as the device has a kernel.
FORWARDS: Final = ("_fused_rms_norm",)
_libraries: list[Any] = []


def install_one_kernel() -> None:
    """Register them on the device; once a process."""
    above = library.Library("aten", "IMPL", "AutogradPrivateUse1")
    below = library.Library("aten", "IMPL", "PrivateUse1")
    for name in BACKWARDS:
        above.impl(name, library.fallthrough_kernel)
    for name in FORWARDS:
        if hasattr(torch.ops.aten, name):
            below.impl(name, _never_run)
    above.impl("softmax.int", _softmax)
    above.impl("log_softmax.int", _log_softmax)
    _libraries.extend((above, below))


def _never_run(*args: Any, **kwargs: Any) -> Any:
    """Fake tensors are answered before they come to the device's kernel."""
    raise AssertionError(args, kwargs)


def _softmax(values: Any, dim: int, dtype: Any = None) -> Any:
    """From half to single precision in one kernel, and only from ``float16``.

    ``aten/src/ATen/native/SoftMax.cpp softmax`` (torch 2.9 to 2.13).
    """
    if values.dtype is torch.float16 and dtype is torch.float32:
        return torch.ops.aten._softmax(values, dim, True)  # noqa: SLF001
    return torch.ops.aten._softmax(_converted(values, dtype), dim, False)  # noqa: SLF001


def _log_softmax(values: Any, dim: int, dtype: Any = None) -> Any:
    """The same rule (``log_softmax`` in the same file)."""
    if values.dtype is torch.float16 and dtype is torch.float32:
        return torch.ops.aten._log_softmax(values, dim, True)  # noqa: SLF001
    return torch.ops.aten._log_softmax(_converted(values, dtype), dim, False)  # noqa: SLF001


def _converted(values: Any, dtype: Any) -> Any:
    return values if dtype is None else values.to(dtype)
