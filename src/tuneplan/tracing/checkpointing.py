"""Activation checkpointing: PyTorch's own, by operation, and with what is kept on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch.utils import checkpoint as checkpoints

from tuneplan.spec.recipe import Checkpointing, Method, TrainingRecipe
from tuneplan.tracing.recording import Recording

_OFFLOAD: Final = "unsloth_zoo gradient_checkpointing.py Unsloth_Offloaded_Gradient_Checkpointer"
_SELECTIVE: Final = "torchtitan distributed/activation_checkpoint.py, selective by operation"


def enable_checkpointing(model: Any, recipe: TrainingRecipe, recording: Recording) -> None:
    """Switch checkpointing on as the recipe says.

    Args:
        model: Perhaps wrapped by PEFT.
        recipe: Says which kind, and whether it is reentrant.
        recording: Told what runs that the model's library does not bring.
    """
    kind = recipe.gradient_checkpointing
    if kind is Checkpointing.NONE:
        return
    enable = getattr(model, "activation_checkpointing_enable", None)
    enable = enable or model.gradient_checkpointing_enable
    if kind is Checkpointing.SELECTIVE:
        recording.stand_ins["selective checkpointing"] = _SELECTIVE
        enable({"use_reentrant": False, "context_fn": _selective_contexts})
    else:
        enable({"use_reentrant": recipe.use_reentrant})
    if kind is Checkpointing.OFFLOAD:
        if recipe.use_reentrant:
            recording.stand_ins["checkpoints on the host"] = _OFFLOAD
        function = _offloaded if recipe.use_reentrant else _saved_on_host
        _use(model, function)
    if recipe.method is not Method.FULL:
        model.enable_input_require_grads()


def _use(model: torch.nn.Module, function: Callable[..., Any]) -> None:
    for module in model.modules():
        if getattr(module, "gradient_checkpointing", False):
            module._gradient_checkpointing_func = function  # type: ignore[assignment] # noqa: SLF001


def _selective_contexts() -> Any:
    """Keep attention's outputs and every second product of a layer, compute the rest again.

    Source: torchtitan ``distributed/activation_checkpoint.py`` (``_op_sac_save_list``), which
    counts products anew for every layer.
    """
    aten = torch.ops.aten
    always = {
        aten._scaled_dot_product_flash_attention.default,  # noqa: SLF001
        aten._scaled_dot_product_efficient_attention.default,  # noqa: SLF001
        aten.max.default,
    }
    products = {True: 0, False: 0}

    def policy(context: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
        del args, kwargs
        saved = function in always
        if function is aten.mm.default:
            products[context.is_recompute] += 1
            saved = products[context.is_recompute] % 2 == 1
        policies = checkpoints.CheckpointPolicy
        return policies.MUST_SAVE if saved else policies.PREFER_RECOMPUTE

    return checkpoints.create_selective_checkpoint_contexts(policy)


def _saved_on_host(function: Callable[..., Any], *args: Any) -> Any:
    """PyTorch's ``save_on_cpu`` around a checkpoint (transformers 5.2x ``offload=True``)."""

    def pack(tensor: torch.Tensor) -> tuple[torch.device, torch.Tensor]:
        return tensor.device, tensor.to("cpu")

    def unpack(packed: tuple[torch.device, torch.Tensor]) -> torch.Tensor:
        return packed[1].to(packed[0])

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        return checkpoints.checkpoint(function, *args, use_reentrant=False)


def _offloaded(function: Callable[..., Any], hidden: torch.Tensor, *args: Any) -> Any:
    return _OffloadedCheckpoint.apply(function, hidden, *args)  # type: ignore[no-untyped-call]


class _OffloadedCheckpoint(torch.autograd.Function):
    """Reentrant checkpointing of one layer whose input waits on the host."""

    @staticmethod
    def forward(ctx: Any, function: Any, hidden: torch.Tensor, *args: Any) -> Any:
        kind = hidden.device.type
        ctx.autocast = (kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))
        ctx.device, ctx.function, ctx.args = hidden.device, function, args
        ctx.save_for_backward(hidden.to("cpu"))
        with torch.no_grad():
            return function(hidden, *args)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Computed again from the input, which comes back; only the first output goes on."""
        kind, dtype, enabled = ctx.autocast
        hidden = ctx.saved_tensors[0].to(ctx.device).detach().requires_grad_(True)
        with torch.enable_grad(), torch.autocast(kind, dtype=dtype, enabled=enabled):
            out = ctx.function(hidden, *ctx.args)
        first = out[0] if isinstance(out, tuple) else out
        torch.autograd.backward(first, gradients[0])
        return None, hidden.grad, *(None for _ in ctx.args)
