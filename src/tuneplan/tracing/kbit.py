"""Stand-ins for bitsandbytes: what its 4-bit and 8-bit linears hold and allocate.

They stand in ``sys.modules``, so that PEFT's own bitsandbytes layers run on top of them. Sizes
after bitsandbytes 0.43.2 to 0.50.2: ``nn/modules.py Linear4bit.forward``, ``Int8Params``,
``autograd/_functions.py MatMul4Bit, MatMul8bitLt``, ``functional.py dequantize_4bit``,
``backends/cuda/ops.py``.
"""

from __future__ import annotations

import importlib.machinery
import sys
from abc import abstractmethod
from types import ModuleType, SimpleNamespace
from typing import Any, Final

import torch

from tuneplan.spec.recipe import Quantization

FOUR_BIT_SOURCE: Final = "bitsandbytes 0.50.2 nn/modules.py, autograd/_functions.py MatMul4Bit"
EIGHT_BIT_SOURCE: Final = (
    "bitsandbytes 0.50.2 autograd/_functions.py MatMul8bitLt, no input above the threshold"
)
_BLOCK: Final = 64
_NESTED_BLOCK: Final = 256
_OUTLIER_THRESHOLD: Final = 6.0  # transformers BitsAndBytesConfig llm_int8_threshold


def install_bitsandbytes() -> None:
    """Put the stand-in where PEFT looks for the library (before PEFT is imported)."""
    module = ModuleType("bitsandbytes")
    module.__spec__ = importlib.machinery.ModuleSpec("bitsandbytes", None)
    module.__version__ = "0.50.2"  # type: ignore[attr-defined]
    layers = ModuleType("bitsandbytes.nn")
    layers.Linear4bit = Linear4bit  # type: ignore[attr-defined]
    layers.Linear8bitLt = Linear8bitLt  # type: ignore[attr-defined]
    module.nn = layers  # type: ignore[attr-defined]
    sys.modules["bitsandbytes"] = module
    sys.modules["bitsandbytes.nn"] = layers


class QuantizedLinear(torch.nn.Linear):
    """A linear whose weight is packed; made by changing the class of a plain one."""

    weight: Any
    compute_dtype: Any = None

    @abstractmethod
    def quantize(
        self, quantization: Quantization, device: torch.device, dtype: torch.dtype
    ) -> None:
        """Hold the packed weight on the device.

        Args:
            quantization: How it is packed.
            device: Where it is held.
            dtype: Of the weight as it is loaded.
        """

    @abstractmethod
    def constants(self) -> tuple[torch.Tensor, ...]:
        """What is held beside the packed weight: scales and their kin."""


class Linear4bit(QuantizedLinear):
    """A linear over packed 4-bit weights, expanded for every product."""

    def quantize(
        self, quantization: Quantization, device: torch.device, dtype: torch.dtype
    ) -> None:
        """Hold packed weights and their scales; the half weight passes through the device."""
        staged = torch.empty(self.weight.shape, dtype=dtype, device=device)
        elements = self.weight.numel()
        blocks = -(-elements // _BLOCK)
        storage = getattr(torch, str(quantization.storage_dtype))
        rows = -(-elements // (2 * storage.itemsize))
        self.absmax = torch.empty(blocks, dtype=torch.float32, device=device)
        packed = torch.empty((rows, 1), dtype=storage, device=device)
        self.code = torch.empty(16, dtype=torch.float32, device=device)
        self.nested: tuple[torch.Tensor, ...] = ()
        if quantization.double_quant:
            nested = -(-blocks // _NESTED_BLOCK)
            self.absmax = torch.empty(blocks, dtype=torch.uint8, device=device)
            self.nested = (
                torch.empty(nested, dtype=torch.float32, device=device),
                torch.empty(256, dtype=torch.float32, device=device),
                torch.empty((), dtype=torch.float32, device=device),
            )
        del staged
        self.shape = (self.out_features, self.in_features)
        self.weight = torch.nn.Parameter(packed, requires_grad=False)
        self.weight.compress_statistics = quantization.double_quant
        self.weight.quant_type = str(quantization.type)
        self.dequantized_dtype = getattr(torch, str(quantization.dequantized_dtype))
        self.keeps_inputs = quantization.keeps_inputs

    def constants(self) -> tuple[torch.Tensor, ...]:
        """Scales and the table of 16 values; with double quantisation the scales' own."""
        return self.absmax, self.code, *self.nested

    def dequantized(self, dtype: torch.dtype, *, in_place: bool) -> torch.Tensor:
        """The matrix in half precision.

        Nested scales are expanded to fp32 and shifted: in place by ``dequantize_4bit``, into a
        second tensor by the forward's ``_dequant_linear_fallback`` (0.50).
        """
        scales: list[torch.Tensor] = []
        if self.nested:
            device = self.weight.device
            scales.append(torch.empty(self.absmax.shape, dtype=torch.float32, device=device))
            if in_place:
                scales[0] += self.nested[2]
            else:
                scales.append(scales[0] + self.nested[2])
        whole = torch.empty(self.shape, dtype=self.dequantized_dtype, device=self.weight.device)
        return whole.to(dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As bitsandbytes: cast in, expand, multiply, cast out."""
        source = x.dtype
        if self.bias is not None and self.bias.dtype is not x.dtype:
            self.bias.data = self.bias.data.to(x.dtype)
        if self.compute_dtype is not None:
            x = x.to(self.compute_dtype)
        bias = None if self.bias is None else self.bias.to(x.dtype)
        return _Product4bit.apply(x, bias, self).to(source)  # type: ignore[no-untyped-call]


class _Product4bit(torch.autograd.Function):
    """``MatMul4Bit``."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, bias: Any, layer: Linear4bit) -> torch.Tensor:
        ctx.layer, ctx.has_bias = layer, bias is not None
        ctx.tensors = x if layer.keeps_inputs and ctx.needs_input_grad[0] else None
        return torch.nn.functional.linear(x, layer.dequantized(x.dtype, in_place=False), bias)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # type: ignore[override]
        gradient = None
        if ctx.needs_input_grad[0]:
            gradient = torch.matmul(grad, ctx.layer.dequantized(grad.dtype, in_place=True))
        bias = grad.sum(0) if ctx.has_bias and ctx.needs_input_grad[1] else None
        return gradient, bias, None


class Linear8bitLt(QuantizedLinear):
    """LLM.int8(): a byte a weight and an fp32 scale a row; inputs are quantised by row too."""

    index = None

    def quantize(
        self, quantization: Quantization, device: torch.device, dtype: torch.dtype
    ) -> None:
        """Hold int8 weights; the weight passes through the device as it is loaded and in fp16."""
        del quantization
        staged = torch.empty(self.weight.shape, dtype=dtype, device=device).to(torch.float16)
        shape = (self.out_features, self.in_features)  # a Conv1D's weight is turned
        rows = torch.empty(shape, dtype=torch.int8, device=device)
        scales = torch.empty(self.out_features, dtype=torch.float32, device=device)
        del staged
        self.state = SimpleNamespace(
            has_fp16_weights=False, threshold=_OUTLIER_THRESHOLD, CB=rows, SCB=scales
        )
        self.weight = torch.nn.Parameter(rows, requires_grad=False)

    def constants(self) -> tuple[torch.Tensor, ...]:
        """A scale for each row."""
        return (self.state.SCB,)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As bitsandbytes; the input's dtype is that of the product."""
        if self.bias is not None and self.bias.dtype is not x.dtype:
            self.bias.data = self.bias.data.to(x.dtype)
        out: torch.Tensor = _Product8bit.apply(x, self.bias, self)  # type: ignore[no-untyped-call]
        return out


class _Product8bit(torch.autograd.Function):
    """``MatMul8bitLt`` with frozen weights, where no input is an outlier.

    The input is kept as an attribute of the graph's node, not as a saved tensor: checkpointing
    without reentrance does not see it.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, bias: Any, layer: Linear8bitLt) -> torch.Tensor:
        ctx.layer, ctx.shape = layer, x.shape
        ctx.has_bias = bias is not None
        rows = x.reshape(-1, x.shape[-1])
        quantized, scales = _quantized_rows(rows)
        # No column exceeds the threshold; the mask that tells is gone when the product begins.
        out = torch.empty((rows.shape[0], layer.out_features), dtype=torch.int32, device=x.device)
        half = torch.empty_like(out, dtype=torch.float16)
        if bias is not None and bias.dtype is not torch.float16:
            half.add_(bias)
        result = half.to(x.dtype)
        del quantized, scales, out, half
        ctx.tensors = rows if ctx.needs_input_grad[0] else None
        return result.reshape(*x.shape[:-1], layer.out_features)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # type: ignore[override]
        state, dtype = ctx.layer.state, grad.dtype
        bias = grad.sum(0) if ctx.has_bias and ctx.needs_input_grad[1] else None
        gradient = None
        if ctx.needs_input_grad[0]:
            flat = grad.reshape(-1, grad.shape[-1]).contiguous()
            scales = state.SCB.unsqueeze(1).mul(1.0 / 127.0)
            expanded = state.CB.to(dtype, copy=True).mul_(scales)
            gradient = torch.matmul(flat, expanded).view(ctx.shape)
        return gradient, bias, None


def _quantized_rows(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """``int8_vectorwise_quant``: an fp16 copy, scales, bytes, then a mask of what is too large."""
    half = rows.to(torch.float16)
    scales = torch.empty(rows.shape[0], dtype=torch.float32, device=rows.device)
    quantized = torch.empty(rows.shape, dtype=torch.int8, device=rows.device)
    outliers = half.abs() >= _OUTLIER_THRESHOLD
    del outliers
    return quantized, scales
