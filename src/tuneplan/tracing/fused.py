"""Stand-ins for fused Triton kernels: the buffers that their Python wrappers allocate and keep.

Kernels are given whole tensors and write into them; what is allocated around them, saved for the
backward and written in place is all there is to memory. Sources stand at each function.
"""

from __future__ import annotations

import math
from typing import Any, Final

import torch

LIGER: Final = "liger-kernel 0.8.5"
_MULTIPROCESSORS: Final = {7: 40, 8: 108, 9: 132}  # of a T4, an A100, an H100


class FusedCrossEntropy(torch.autograd.Function):
    """A cross entropy whose backward writes the gradient over the logits.

    Keeps the logits, an fp32 log-sum-exp for each row (and each 65,536 columns) and the labels.
    Source: unsloth ``kernels/cross_entropy_loss.py``, fms-acceleration's copy of it.
    """

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """A loss for each row, in fp32."""
        rows, vocabulary = logits.shape
        parts = -(-vocabulary // 65536)
        losses = torch.empty(rows, dtype=torch.float32, device=logits.device)
        shape = (rows,) if parts == 1 else (rows, parts)
        sums = torch.empty(shape, dtype=torch.float32, device=logits.device)
        ctx.save_for_backward(logits, sums, labels)
        return losses

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # type: ignore[override]
        """The logits' own storage."""
        del grad
        return ctx.saved_tensors[0], None


class FusedLinearCrossEntropy(torch.autograd.Function):
    """Head and loss in one: gradients are made in the forward, a chunk of tokens at a time.

    A chunk is the next power of two of ``tokens / ceil(vocabulary / hidden)`` rows. Where the
    product's operands have one dtype, all chunks use one buffer, which becomes their gradient.
    Source: liger-kernel 0.8.5 ``ops/fused_linear_cross_entropy.py``.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor
    ) -> torch.Tensor:
        """The sum of losses; keeps the gradients of the input and of a trained weight."""
        (tokens, width), vocabulary = hidden.shape, weight.shape[0]
        rows = min(_power_of_two(math.ceil(tokens / math.ceil(vocabulary / width))), tokens)
        wants_input, wants_weight = ctx.needs_input_grad[:2]
        of_input = torch.zeros_like(hidden)
        of_weight = torch.zeros_like(weight) if wants_weight and wants_input else None
        losses = torch.zeros(tokens, dtype=torch.float32, device=hidden.device)
        buffer = _chunk_buffer(hidden, weight, rows)
        for start in range(0, tokens, rows):
            part = hidden[start : start + rows]
            if buffer is not None:
                logits = buffer[: part.shape[0]]
                torch.mm(part, weight.t(), out=logits)
            else:
                logits = part @ weight.t()
            losses[start : start + rows] = losses[start : start + rows]
            if buffer is not None and wants_input:
                torch.mm(logits, weight, out=of_input[start : start + rows])
            elif wants_input:
                of_input[start : start + rows] = logits @ weight
            if of_weight is not None:
                _accumulate(of_weight, logits, part)
            del logits, part
        del buffer, labels
        ctx.save_for_backward(of_input, of_weight)
        return losses.sum()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # type: ignore[override]
        """What the forward made, scaled in place."""
        del grad
        of_input, of_weight = ctx.saved_tensors
        return of_input, of_weight, None


def _chunk_buffer(hidden: torch.Tensor, weight: torch.Tensor, rows: int) -> torch.Tensor | None:
    """One buffer for the logits of all chunks, where no operand has to be cast."""
    kind, dtype = hidden.device.type, hidden.dtype
    operand = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else dtype
    if dtype is not weight.dtype or dtype is not operand:
        return None
    return torch.empty((rows, weight.shape[0]), dtype=hidden.dtype, device=hidden.device)


def _accumulate(total: torch.Tensor, logits: torch.Tensor, part: torch.Tensor) -> None:
    """``total += logits.T @ part``: cuBLAS adds onto it where the dtypes allow."""
    with torch.autocast(total.device.type, enabled=False):
        half = logits.dtype in (torch.float16, torch.bfloat16)
        if half and total.dtype in (logits.dtype, torch.float32):
            operand = part.to(logits.dtype)
            if total.dtype is logits.dtype:
                torch.addmm(total, logits.t(), operand, out=total)
            return
        total += torch.mm(logits.t(), part.to(logits.dtype)).float()


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()


class FusedNorm(torch.autograd.Function):
    """RMSNorm: keeps input, weight and an fp32 number a row; its gradient overwrites the arriving.

    A trained weight's gradient is summed from an fp32 row of each multiprocessor.
    Source: liger-kernel 0.8.5 ``ops/rms_norm.py`` (``in_place``); unsloth
    ``kernels/rms_layernorm.py`` alike.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        how: tuple[bool, int],
    ) -> torch.Tensor:
        """The normalised input in the input's dtype; ``how``: in place, multiprocessors."""
        x = x.contiguous()
        out = torch.empty_like(x)
        rows = torch.empty(x.numel() // x.shape[-1], dtype=torch.float32, device=x.device)
        ctx.in_place, ctx.processors = how
        ctx.save_for_backward(x, weight, rows)
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # type: ignore[override]
        """The arriving gradient's storage, or a new one."""
        _, weight, _ = ctx.saved_tensors
        grad = grad.contiguous()
        of_weight = None
        if ctx.needs_input_grad[1]:
            shape = (ctx.processors, weight.shape[0])
            parts = torch.empty(shape, dtype=torch.float32, device=grad.device)
            of_weight = parts.sum(dim=0).to(weight.dtype)
        result = grad if ctx.in_place else torch.zeros_like(grad)
        return result, of_weight, None


class FusedGate(torch.autograd.Function):
    """Activation of the gate times the other half: keeps both, and overwrites them later.

    Source: liger-kernel 0.8.5 ``ops/swiglu.py``, ``ops/geglu.py``; unsloth ``kernels/swiglu.py``.
    """

    @staticmethod
    def forward(ctx: Any, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        """The product."""
        gate, up = gate.contiguous(), up.contiguous()
        ctx.save_for_backward(gate, up)
        return torch.empty_like(gate)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # type: ignore[override]
        """The kept tensors' storages."""
        del grad
        return ctx.saved_tensors


class FusedRope(torch.autograd.Function):
    """Rotation of queries and keys in place; keeps only the angles.

    Source: liger-kernel 0.8.5 ``ops/rope.py``; unsloth ``kernels/rope_embedding.py``.
    """

    @staticmethod
    def forward(
        ctx: Any, query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> Any:
        """The same storages, copied only where they are laid out in another way."""
        ctx.save_for_backward(cos.contiguous(), sin.contiguous())
        return _laid_out(query), _laid_out(key)

    @staticmethod
    def backward(ctx: Any, query: torch.Tensor, key: torch.Tensor) -> Any:  # type: ignore[override]
        """The arriving gradients' storages."""
        del ctx
        return _laid_out(query), _laid_out(key), None, None


def _laid_out(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def multiprocessors(compute_capability: float | None) -> int:
    """Multiprocessors of the usual card of a generation."""
    return _MULTIPROCESSORS.get(int(compute_capability or 8), 108)
