"""Stand-ins for fms-acceleration's fused adapters, which unlike unsloth's run with dropout.

Each adapter keeps the input that its own dropout left over, beside the input that all share; there
is no mask, for a value of zero tells as much. The gradient of the input is written over the input
of a bitsandbytes base, beside it for a GPTQ base, whose matrices are all expanded first. Source:
fms-acceleration ``plugins/fused-ops-and-kernels fused_ops/unsloth_lora/{bnb,gptq}/fast_lora.py
LoRA_QKV, LoRA_W``; its patches fuse queries, keys and values, and the output, but no MLP.
"""

from __future__ import annotations

import types
from typing import Any, Final

import torch

from tuneplan.tracing.gptq import GptqLinear
from tuneplan.tracing.kbit import Linear4bit

SOURCE: Final = "fms-acceleration fused_ops/unsloth_lora fast_lora.py"
_SHARED: Final = ("q_proj", "k_proj", "v_proj")


def fuse_dropped_adapters(model: torch.nn.Module) -> int:
    """Replace the forwards of adapted attentions; returns how many linears were fused."""
    count = 0
    for module in model.modules():
        parts = dict(module.named_children())
        layers = [parts[name] for name in _SHARED if hasattr(parts.get(name), "lora_A")]
        if len(layers) == len(_SHARED):
            _fuse_together(layers)
            count += len(layers)
        output: Any = parts.get("o_proj")
        if hasattr(output, "lora_A"):
            output.forward = types.MethodType(_alone, output)
            count += 1
    return count


def _fuse_together(layers: list[Any]) -> None:
    """The first projection that is called makes all three."""
    made: dict[int, torch.Tensor] = {}

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        if not made:
            outs = _Fused.apply(x, True, layers, *_matrices(layers))  # type: ignore[no-untyped-call]
            made.update({id(layer): out for layer, out in zip(layers, outs, strict=True)})
        return made.pop(id(self))

    for layer in layers:
        layer.forward = types.MethodType(forward, layer)


def _alone(self: Any, x: torch.Tensor) -> torch.Tensor:
    (out,) = _Fused.apply(x, False, [self], *_matrices([self]))  # type: ignore[no-untyped-call]
    result: torch.Tensor = out
    return result


def _matrices(layers: list[Any]) -> list[torch.Tensor]:
    return [
        one[layer.active_adapters[0]].weight
        for layer in layers
        for one in (layer.lora_A, layer.lora_B)
    ]


def _expanded(layer: Any, dtype: torch.dtype) -> torch.Tensor:
    """The frozen matrix, outputs by inputs."""
    base = layer.base_layer
    if isinstance(base, Linear4bit):
        return base.dequantized(dtype, in_place=True)
    if isinstance(base, GptqLinear):
        return base.expanded().t()
    weight: torch.Tensor = base.weight
    return weight


class _Fused(torch.autograd.Function):
    """Several adapted linears of one input."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, together: Any, layers: list[Any], *matrices: torch.Tensor
    ) -> Any:
        rows, dtype = x.view(-1, x.shape[-1]), x.dtype
        packed = isinstance(layers[0].base_layer, GptqLinear)
        ready = [_expanded(layer, dtype) for layer in layers] if packed else []
        outs, dropped = [], []
        for number, layer in enumerate(layers):
            a, b = matrices[2 * number : 2 * number + 2]
            weight = ready[number] if packed else _expanded(layer, dtype)
            out = torch.mm(rows, weight.t())
            del weight
            left = layer.lora_dropout[layer.active_adapters[0]](rows)
            out += torch.mm(torch.mm(left, a.t().to(dtype)), 1.0 * b.t().to(dtype))
            outs.append(out.view(*x.shape[:-1], -1))
            dropped.append(left)
            del left, out
        ctx.layers, ctx.over_input = layers, together and not packed
        ctx.save_for_backward(x, *dropped, *matrices)
        return tuple(outs)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        count = len(ctx.layers)
        x, *kept = ctx.saved_tensors
        dropped, matrices = kept[:count], kept[count:]
        rows, dtype = x.view(-1, x.shape[-1]), x.dtype
        flat = [grad.reshape(-1, grad.shape[-1]) for grad in grads]
        found = []
        for left, grad, a, b in zip(dropped, flat, matrices[::2], matrices[1::2], strict=True):
            of_a = torch.mm(left.t(), torch.mm(grad, b.to(dtype)))
            of_b = torch.mm(torch.mm(a.to(dtype), left.t()), grad)
            found += [of_a.t(), of_b.t()]
        result: Any = None
        for number, layer in enumerate(ctx.layers):
            grad, weight = flat[number], _expanded(layer, dtype)
            if result is not None:
                result += torch.mm(grad, weight)
            elif ctx.over_input:
                result = torch.mm(grad, weight, out=rows)
            else:
                result = torch.mm(grad, weight)
            del weight
            a, b = matrices[2 * number : 2 * number + 2]
            narrow = torch.mm(grad, b.to(dtype))
            result += (dropped[number] != 0) * torch.mm(narrow, 1.0 * a.to(dtype))
        return result.view(x.shape), None, None, *found
