"""PyTorch's choice of attention kernel on CUDA, made again for a device that has none."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuneplan.tracing.windows import Windows

_FLASH_HEAD_DIM = 256


class AttentionRules:
    """Stands in for ``F.scaled_dot_product_attention``; counts the kernels it chose.

    Flash takes half precision, no mask, one head size up to 256 and compute capability 8 or more;
    the memory-efficient kernel takes masks and fp32 but no grouped keys; what neither takes is
    math (``aten/native/transformers/cuda/sdp_utils.cpp``, torch 2.13).

    Args:
        flash: The card has the flash kernel.
        expands: The program repeats grouped keys and values before the kernel, whatever it takes
            (a shim around the model's code, or a model of the program's own).
    """

    def __init__(self, *, flash: bool = True, expands: bool = False) -> None:
        self.flash = flash
        self.expands = expands
        self.chosen: dict[str, int] = {}
        self.windows: Windows | None = None

    def kernel(self, query: Any, key: Any, value: Any, mask: Any, *, grouped: bool) -> str:
        """``flash``, ``efficient`` or ``math``."""
        import torch

        half = query.dtype in (torch.float16, torch.bfloat16)
        same_width = query.shape[-1] == key.shape[-1] == value.shape[-1]
        small = same_width and query.shape[-1] <= _FLASH_HEAD_DIM
        same_heads = query.shape[-3] == key.shape[-3]
        # Keys of fewer heads that are not said to be grouped are left to broadcasting
        # (``sdp_utils_cpp.h check_batch_size_and_num_heads_dense``): Falcon's multi-query.
        if mask is None and half and small and self.flash and (same_heads or grouped):
            return "flash"
        return "efficient" if same_heads else "math"

    def __call__(
        self,
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,  # noqa: FBT001, FBT002 - the signature of PyTorch's function
        scale: float | None = None,
        enable_gqa: bool = False,  # noqa: FBT001, FBT002
    ) -> Any:
        """As PyTorch's function, with the kernel chosen by the rules for CUDA."""

        def run(query: Any, key: Any, value: Any) -> Any:
            return self._attend(
                query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa
            )

        if self.windows is None:
            return run(query, key, value)
        return self.windows.attend(run, query, key, value)

    def _attend(
        self,
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any,
        dropout_p: float,
        is_causal: bool,  # noqa: FBT001 - in the order of PyTorch's function
        scale: float | None,
        enable_gqa: bool,  # noqa: FBT001
    ) -> Any:
        import torch

        query, key, value = _cast(query, key, value)
        groups = query.shape[-3] // key.shape[-3]
        if self.expands and groups > 1:
            key, value = (one.repeat_interleave(groups, dim=-3) for one in (key, value))
        name = self.kernel(query, key, value, attn_mask, grouped=enable_gqa)
        self.chosen[name] = self.chosen.get(name, 0) + 1
        aten = torch.ops.aten
        if name == "math":
            return aten._scaled_dot_product_attention_math(  # noqa: SLF001
                query,
                key,
                value,
                attn_mask,
                dropout_p,
                is_causal,
                scale=scale,
                enable_gqa=enable_gqa,
            )[0]
        if name == "flash":
            return flash(query, key, value, dropout_p, scale, is_causal=is_causal)
        return _efficient(query, key, value, attn_mask, dropout_p, scale, is_causal=is_causal)


def _cast(*tensors: Any) -> tuple[Any, ...]:
    """Autocast's rule for the operation: all to the half dtype."""
    import torch

    device = tensors[0].device.type
    if not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return tuple(tensor.to(dtype) for tensor in tensors)


def flash(query: Any, key: Any, value: Any, dropout: float, scale: Any, *, is_causal: bool) -> Any:
    """PyTorch's flash kernel over ``[batch, heads, length, width]``."""
    import torch

    width = query.shape[-1]
    scale = 1.0 / math.sqrt(width) if scale is None else scale
    if width % 8:
        pad = 8 - width % 8
        query, key, value = (torch.nn.functional.pad(t, (0, pad)) for t in (query, key, value))
    out = torch.ops.aten._scaled_dot_product_flash_attention(  # noqa: SLF001
        query, key, value, dropout, is_causal, scale=scale
    )[0]
    return out[..., :width]


def _efficient(
    query: Any, key: Any, value: Any, mask: Any, dropout: float, scale: Any, *, is_causal: bool
) -> Any:
    import torch

    bias = None
    if mask is not None:
        bias = mask
        if mask.dtype is torch.bool:
            bias = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(
                mask.logical_not(), float("-inf")
            )
        if bias.shape[-1] % 16:
            bias = torch.nn.functional.pad(bias, (0, 16 - bias.shape[-1] % 16))
            bias = bias[..., : key.shape[-2]]
        bias = bias.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    out = torch.ops.aten._scaled_dot_product_efficient_attention(  # noqa: SLF001
        query,
        key,
        value,
        bias,
        True,
        dropout,
        is_causal,
        scale=scale,
    )
    return out[0]
