"""Stand-ins for bitsandbytes: what its 4-bit linears hold and allocate.

They stand in ``sys.modules``, so that PEFT's own bitsandbytes layers run on top of them. Sizes
after bitsandbytes 0.43.2 to 0.50.2: ``nn/modules.py Linear4bit.forward``,
``autograd/_functions.py MatMul4Bit``, ``functional.py dequantize_4bit``.
"""

from __future__ import annotations

import importlib.machinery
import sys
from types import ModuleType
from typing import Any, Final

import torch

from tuneplan.spec.recipe import Quantization

_BLOCK: Final = 64
_NESTED_BLOCK: Final = 256


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


class Linear4bit(torch.nn.Linear):
    """A linear over packed 4-bit weights, expanded for every product."""

    weight: torch.nn.Parameter

    def quantize(
        self, quantization: Quantization, device: torch.device, dtype: torch.dtype
    ) -> None:
        """Hold packed weights and their scales; the half weight passes through the device."""
        staged = torch.empty(self.weight.shape, dtype=dtype, device=device)
        elements = self.weight.numel()
        blocks = -(-elements // _BLOCK)
        packed = torch.empty((-(-elements // 2), 1), dtype=torch.uint8, device=device)
        self.absmax = torch.empty(blocks, dtype=torch.float32, device=device)
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
        self.weight.compress_statistics = quantization.double_quant  # type: ignore[attr-defined]
        self.weight.quant_type = str(quantization.type)  # type: ignore[attr-defined]
        self.dequantized_dtype = getattr(torch, str(quantization.dequantized_dtype))
        self.keeps_inputs = quantization.keeps_inputs
        self.compute_dtype: Any = None

    def dequantized(self, dtype: torch.dtype) -> torch.Tensor:
        """The matrix in half precision."""
        if self.nested:
            scales = torch.empty(self.absmax.shape, dtype=torch.float32, device=self.weight.device)
            scales += self.nested[2]
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
        ctx.tensors = x if layer.keeps_inputs else None
        return torch.nn.functional.linear(x, layer.dequantized(x.dtype), bias)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # type: ignore[override]
        gradient = None
        if ctx.needs_input_grad[0]:
            gradient = torch.matmul(grad, ctx.layer.dequantized(grad.dtype))
        bias = grad.sum(0) if ctx.has_bias and ctx.needs_input_grad[1] else None
        return gradient, bias, None


class Linear8bitLt(torch.nn.Linear):
    """Named so that PEFT can ask whether a layer is one; not traced yet."""
