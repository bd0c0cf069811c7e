"""A stand-in for AutoGPTQ's linears: 4-bit integers with a scale and a zero point for 128 of them.

Sizes and steps after AutoGPTQ 0.4 to 0.7: ``nn_modules/qlinear/qlinear_cuda_old.py QuantLinear``
(PyTorch operations, taken while training) and ``qlinear_tritonv2.py`` (one kernel expands).
"""

from __future__ import annotations

from typing import Any, Final

import torch

from tuneplan.spec.recipe import Quantization
from tuneplan.tracing.kbit import QuantizedLinear

GPTQ_SOURCE: Final = "AutoGPTQ 0.7 nn_modules/qlinear/qlinear_cuda_old.py, qlinear_tritonv2.py"


class GptqLinear(QuantizedLinear):
    """Integers packed along the inputs, expanded to fp16 for every product."""

    def quantize(
        self, quantization: Quantization, device: torch.device, dtype: torch.dtype
    ) -> None:
        """Hold packed integers, zero points, scales and the inputs' groups, as they are stored."""
        del dtype
        inputs, outputs = self.in_features, self.out_features
        self.group = quantization.block_size
        groups = -(-inputs // self.group)
        per_int = 32 // quantization.bits

        def integers(*shape: int) -> torch.Tensor:
            return torch.empty(shape, dtype=torch.int32, device=device)

        self.zeros = integers(groups, outputs // per_int)
        self.scales = torch.empty((groups, outputs), dtype=torch.float16, device=device)
        self.group_index = integers(inputs)
        self.shifts = integers(1, per_int)
        self.mask = 2**quantization.bits - 1
        self.narrow = torch.int16 if quantization.bits == 8 else torch.int8
        self.one_kernel = quantization.one_kernel
        self.weight = torch.nn.Parameter(integers(inputs // per_int, outputs), requires_grad=False)

    def constants(self) -> tuple[torch.Tensor, ...]:
        """Scales, packed zero points, the group of each input, the shifts that unpack."""
        return self.scales, self.zeros, self.group_index, self.shifts

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Rows in fp16 times the expanded matrix, the result in fp16."""
        rows = x.reshape(-1, x.shape[-1]).half()
        if self.one_kernel:
            out: torch.Tensor = _Product.apply(rows, self)  # type: ignore[no-untyped-call]
        else:
            out = torch.matmul(rows, self._unpacked())
        out = out.half().reshape(*x.shape[:-1], self.out_features)
        return out if self.bias is None else out + self.bias

    def expanded(self) -> torch.Tensor:
        """The matrix, made by one kernel."""
        shape = (self.in_features, self.out_features)
        return torch.empty(shape, dtype=torch.float16, device=self.weight.device)

    def _unpacked(self) -> torch.Tensor:
        """The matrix, made step by step."""
        zeros = self._shifted(self.zeros.unsqueeze(2), (-1, -1, self.shifts.shape[1]), 0)
        zeros = (zeros + 1).reshape(self.scales.shape[0], 1, -1)
        weight = self._shifted(self.weight.data.unsqueeze(1), (-1, self.shifts.shape[1], -1), -1)
        weight = weight.reshape(self.scales.shape[0], -1, self.out_features)
        weight = self.scales.unsqueeze(1) * (weight - zeros)
        return weight.reshape(self.in_features, self.out_features)

    def _shifted(self, packed: torch.Tensor, shape: tuple[int, ...], at: int) -> torch.Tensor:
        """Every integer of a packed one in a narrow element of its own."""
        whole = torch.bitwise_right_shift(packed.expand(shape), self.shifts.unsqueeze(at))
        narrow = whole.to(self.narrow)
        del whole
        return narrow.bitwise_and_(self.mask)


class _Product(torch.autograd.Function):
    """A product whose matrix is expanded again in the backward."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, layer: GptqLinear) -> torch.Tensor:
        ctx.layer = layer
        return torch.matmul(rows, layer.expanded())

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # type: ignore[override]
        gradient = None
        if ctx.needs_input_grad[0]:
            gradient = torch.matmul(grad, ctx.layer.expanded().t())
        return gradient, None
