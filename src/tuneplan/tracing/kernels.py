"""Fused kernels in place of a model's norms, gated MLPs and rotary embeddings.

What is replaced is counted in the recording's notes, so that a patch that found nothing is seen.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch

from tuneplan.errors import NotSupported
from tuneplan.language import message
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.recipe import TrainingRecipe
from tuneplan.tracing.build import decoder_layers
from tuneplan.tracing.dropped_adapters import SOURCE as DROPPED
from tuneplan.tracing.dropped_adapters import fuse_dropped_adapters
from tuneplan.tracing.fused import LIGER, FusedGate, FusedNorm, FusedRope, multiprocessors
from tuneplan.tracing.fused_adapters import SOURCE, fuse_adapters
from tuneplan.tracing.recording import Recording

_NOT_IN_PLACE = ("gemma2", "gemma3")  # liger-kernel 0.8.5 transformers/monkey_patch.py


def refuse_kernels(recipe: TrainingRecipe) -> None:
    """Refuse kernels that have no stand-in, by name.

    Raises:
        NotSupported: names them.
    """
    adapter, kernels = recipe.adapter, recipe.kernels
    if kernels.compiled:
        raise NotSupported(message("trace_compiled", "compiled code (torch.compile) is not traced"))
    if not kernels.fused_adapter or adapter is None:
        return
    eight = recipe.quantization is not None and recipe.quantization.bits == 8
    if (adapter.lora_dropout and kernels.fused_mlp) or adapter.use_dora or eight:
        raise NotSupported(
            message(
                "trace_fused_adapter",
                "fused_adapter: fused adapters are traced without DoRA and 8-bit weights, and with "
                "dropout only where no MLP is fused (fms-acceleration)",
            )
        )


@contextlib.contextmanager
def fused_kernels(
    model: torch.nn.Module,
    architecture: ModelArchitecture,
    recipe: TrainingRecipe,
    recording: Recording,
    compute_capability: float | None = None,
) -> Iterator[None]:
    """Replace what the recipe says is fused, for as long as the context lasts."""
    kernels = recipe.kernels
    if kernels.fused_norm:
        processors = multiprocessors(compute_capability)
        in_place = not architecture.model_type.startswith(_NOT_IN_PLACE)
        _note(recording, "norms", "rms_norm", _fuse_norms(model, processors, in_place=in_place))
    if kernels.fused_mlp:
        _note(recording, "mlps", "swiglu", _fuse_gates(model))
    if kernels.fused_adapter and recipe.adapter is not None:
        if recipe.adapter.lora_dropout:
            recording.notes["fused_adapters"] = fuse_dropped_adapters(model)
            recording.stand_ins["fused adapters"] = DROPPED
        else:  # MLPs that are adapted as a whole
            recording.notes["fused_adapters"] = fuse_adapters(model)
            recording.stand_ins["fused adapters"] = SOURCE
    with contextlib.ExitStack() as patched:
        if kernels.fused_rope:
            modules = {type(layer).__module__ for layer in decoder_layers(model, architecture)}
            count = sum(_fuse_rope(sys.modules[name], patched) for name in modules)
            _note(recording, "ropes", "rope", count)
        yield


def _note(recording: Recording, name: str, file: str, count: int) -> None:
    recording.notes[f"fused_{name}"] = count
    recording.stand_ins[f"fused {name}"] = f"{LIGER} ops/{file}.py"


def _fuse_norms(model: torch.nn.Module, processors: int, *, in_place: bool) -> int:
    """Every RMSNorm over the hidden size or a head; returns how many."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = FusedNorm.apply(x, self.weight, (in_place, processors))  # type: ignore[no-untyped-call]
        return out

    found = [module for module in model.modules() if type(module).__name__.endswith("RMSNorm")]
    found = [module for module in found if getattr(module, "weight", None) is not None]
    for module in found:
        module.forward = types.MethodType(forward, module)
    return len(found)


def _fuse_gates(model: torch.nn.Module) -> int:
    """Every MLP of a gate, an upward and a downward linear; returns how many."""
    count = 0
    for module in model.modules():
        parts = {name for name, _ in module.named_children()}
        forward = None
        if {"gate_proj", "up_proj", "down_proj"} <= parts:
            forward = _gated
        elif {"gate_up_proj", "down_proj"} <= parts:
            forward = _halved
        if forward is not None:
            module.forward = types.MethodType(forward, module)
            count += 1
    return count


def _gated(self: Any, x: torch.Tensor) -> torch.Tensor:
    product = FusedGate.apply(self.gate_proj(x), self.up_proj(x))  # type: ignore[no-untyped-call]
    out: torch.Tensor = self.down_proj(product)
    return out


def _halved(self: Any, x: torch.Tensor) -> torch.Tensor:
    gate, up = self.gate_up_proj(x).chunk(2, dim=-1)
    out: torch.Tensor = self.down_proj(FusedGate.apply(gate, up))  # type: ignore[no-untyped-call]
    return out


def _fuse_rope(module: types.ModuleType, patched: contextlib.ExitStack) -> int:
    """The function by which a modelling module rotates queries and keys."""
    before = getattr(module, "apply_rotary_pos_emb", None)
    if before is None:
        return 0

    def rotate(
        q: torch.Tensor,
        k: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        *more: Any,
        **how: Any,
    ) -> Any:
        del more, how
        return FusedRope.apply(q, k, cos, sin)  # type: ignore[no-untyped-call]

    module.apply_rotary_pos_emb = rotate  # type: ignore[attr-defined]
    patched.callback(setattr, module, "apply_rotary_pos_emb", before)
    return 1
