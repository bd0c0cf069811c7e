"""Stand-ins for unsloth's LoRA functions: base product and adapter of several linears in one.

They keep the input and, of an MLP, what its two first products are; the gradient of the input is
written over the input, that of the MLP's inner tensors over them. The base matrix is expanded again
in the backward. Source: unsloth 2026.10 ``kernels/fast_lora.py LoRA_MLP, LoRA_QKV, LoRA_W``,
``kernels/utils.py matmul_lora``; without dropout and biases.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, Final

import torch

from tuneplan.tracing.kbit import Linear4bit

SOURCE: Final = "unsloth 2026.10 kernels/fast_lora.py"
_ATTENTION: Final = ("q_proj", "k_proj", "v_proj")
_MLP: Final = ("gate_proj", "up_proj", "down_proj")


def fuse_adapters(model: torch.nn.Module) -> int:
    """Replace the forwards of adapted attentions and MLPs; returns how many linears were fused."""
    count = 0
    for module in model.modules():
        parts = dict(module.named_children())
        if _adapted(parts, _ATTENTION):
            _fuse_attention([parts[name] for name in _ATTENTION])
            count += len(_ATTENTION)
        if _adapted(parts, ("o_proj",)):
            _give(parts["o_proj"], _one)
            count += 1
        if _adapted(parts, _MLP):
            _give(module, _mlp)
            count += len(_MLP)
    return count


def _adapted(parts: dict[str, torch.nn.Module], names: tuple[str, ...]) -> bool:
    """Whether PEFT adapted all of these, and none has a bias (unsloth leaves such layers alone)."""
    layers = [parts.get(name) for name in names]
    return all(
        layer is not None and hasattr(layer, "lora_A") and layer.base_layer.bias is None
        for layer in layers
    )


def _give(module: Any, forward: Callable[..., Any]) -> None:
    module.forward = types.MethodType(forward, module)


def _fuse_attention(layers: list[Any]) -> None:
    """The first projection that is called makes all three."""
    made: dict[int, torch.Tensor] = {}

    def first(self: Any, x: torch.Tensor) -> torch.Tensor:
        del self
        outs = _Shared.apply(x, True, layers, *_matrices(layers))  # type: ignore[no-untyped-call]
        made.update({id(layer): out for layer, out in zip(layers, outs, strict=True)})
        return made.pop(id(layers[0]))

    def later(self: Any, x: torch.Tensor) -> torch.Tensor:
        del x
        return made.pop(id(self))

    _give(layers[0], first)
    for layer in layers[1:]:
        _give(layer, later)


def _one(self: Any, x: torch.Tensor) -> torch.Tensor:
    (out,) = _Shared.apply(x, False, [self], *_matrices([self]))  # type: ignore[no-untyped-call]
    result: torch.Tensor = out
    return result


def _mlp(self: Any, x: torch.Tensor) -> torch.Tensor:
    layers = [getattr(self, name) for name in _MLP]
    out: torch.Tensor = _Gated.apply(x, layers, *_matrices(layers))  # type: ignore[no-untyped-call]
    return out


def _matrices(layers: list[Any]) -> list[torch.Tensor]:
    """A and B of each layer, in turn."""
    return [
        one[layer.active_adapters[0]].weight
        for layer in layers
        for one in (layer.lora_A, layer.lora_B)
    ]


def _base(layer: Any, dtype: torch.dtype) -> torch.Tensor:
    """The frozen matrix, expanded where it is packed."""
    base = layer.base_layer
    if isinstance(base, Linear4bit):
        return base.dequantized(dtype, in_place=True)
    weight: torch.Tensor = base.weight
    return weight.to(dtype)


def _product(x: torch.Tensor, layer: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """``x W + x A B``, the second added onto the first."""
    out = torch.mm(x, _base(layer, x.dtype).t())
    narrow = torch.mm(x, a.to(x.dtype).t())
    return out.addmm_(narrow, b.to(x.dtype).t())


def _gradients(
    x: torch.Tensor, grad: torch.Tensor, a: torch.Tensor, b: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of A and of B, and the narrow product that the input's gradient takes up again."""
    narrow = torch.mm(grad, b)
    of_a = torch.mm(narrow.t(), x)
    of_b = torch.mm(grad.t(), torch.mm(x, a.t()))
    return of_a, of_b, narrow


class _Shared(torch.autograd.Function):
    """Several adapted linears of one input."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, in_place: Any, layers: list[Any], *matrices: torch.Tensor
    ) -> Any:
        ctx.layers, ctx.in_place = layers, in_place
        ctx.save_for_backward(x, *matrices)
        rows = x.view(-1, x.shape[-1])
        shape = (*x.shape[:-1], -1)
        pairs = zip(layers, matrices[::2], matrices[1::2], strict=True)
        return tuple(_product(rows, layer, a, b).view(shape) for layer, a, b in pairs)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, *matrices = ctx.saved_tensors
        rows = x.view(-1, x.shape[-1])
        found, narrow, halves = [], [], [matrix.to(x.dtype) for matrix in matrices]
        flat = [grad.reshape(-1, grad.shape[-1]) for grad in grads]
        for number, grad in enumerate(flat):
            of_a, of_b, one = _gradients(rows, grad, halves[2 * number], halves[2 * number + 1])
            found += [of_a, of_b]
            narrow.append(one)
        result = None
        for layer, grad, one, a in zip(ctx.layers, flat, narrow, halves[::2], strict=True):
            result = _onto(result, grad, layer, rows if ctx.in_place else None)
            result.addmm_(one, a)
        assert result is not None  # noqa: S101 - there is a layer
        return result.view(x.shape), None, None, *found


def _onto(
    result: torch.Tensor | None, grad: torch.Tensor, layer: Any, over: torch.Tensor | None
) -> torch.Tensor:
    """``grad W``: added to what is there, or written over the input."""
    weight = _base(layer, grad.dtype)
    if result is not None:
        return result.addmm_(grad, weight)
    if over is None:
        return torch.mm(grad, weight)
    return torch.mm(grad, weight, out=over)


class _Gated(torch.autograd.Function):
    """An adapted MLP: gate, upward and downward linear."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, layers: list[Any], *matrices: torch.Tensor
    ) -> torch.Tensor:
        ctx.layers = layers
        rows = x.view(-1, x.shape[-1])
        gate = _product(rows, layers[0], *matrices[:2])
        up = _product(rows, layers[1], *matrices[2:4])
        inner = torch.empty_like(gate)
        out = _product(inner, layers[2], *matrices[4:])
        ctx.save_for_backward(x, gate, up, *matrices)
        return out.view(x.shape)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # type: ignore[override]
        x, gate, up, *matrices = ctx.saved_tensors
        halves = [matrix.to(x.dtype) for matrix in matrices]
        rows, grad = x.view(-1, x.shape[-1]), grad.reshape(-1, grad.shape[-1])
        inner = torch.mm(grad, _base(ctx.layers[2], grad.dtype))
        inner.addmm_(torch.mm(grad, halves[5]), halves[4])
        # One kernel turns these three into the inner tensor and the gradients of its two factors.
        of_down = _gradients(inner, grad, halves[4], halves[5])[:2]
        *of_up, narrow_up = _gradients(rows, up, halves[2], halves[3])
        *of_gate, narrow_gate = _gradients(rows, gate, halves[0], halves[1])
        result = _onto(None, up, ctx.layers[1], rows)
        result.addmm_(narrow_up, halves[2])
        result = _onto(result, gate, ctx.layers[0], None)
        result.addmm_(narrow_gate, halves[0])
        return result.view(x.shape), None, *of_gate, *of_up, *of_down
