"""The training loop: two steps of what a Trainer does between reading a batch and the next."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tuneplan.errors import NotSupported
from tuneplan.language import message
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.recipe import (
    LossPath,
    Optimizer,
    OptimizerFamily,
    OptimizerImplementation,
    TrainingRecipe,
)
from tuneplan.tracing.build import decoder_layers, torch_dtype
from tuneplan.tracing.device import DEVICE, fake_device
from tuneplan.tracing.recorder import Recorder

NUM_STEPS = 2


def make_optimizer(model: torch.nn.Module, optimizer: Optimizer) -> torch.optim.Optimizer:
    """PyTorch's own optimizer where it has it.

    Raises:
        NotSupported: for a family that is not traced yet.
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    how = {
        "foreach": optimizer.implementation is OptimizerImplementation.FOREACH,
        "fused": optimizer.implementation is OptimizerImplementation.FUSED,
    }
    if optimizer.family is OptimizerFamily.ADAMW and not optimizer.master_weights:
        return torch.optim.AdamW(trained, lr=1e-4, **how)
    if optimizer.family in (OptimizerFamily.SGD, OptimizerFamily.SGD_MOMENTUM):
        momentum = 0.9 if optimizer.family is OptimizerFamily.SGD_MOMENTUM else 0.0
        return torch.optim.SGD(trained, lr=1e-4, momentum=momentum, **how)
    raise NotSupported(
        message("trace_optimizer", "the optimizer {name} is not traced", name=optimizer.name)
    )


def run_steps(
    model: torch.nn.Module,
    architecture: ModelArchitecture,
    recipe: TrainingRecipe,
    recorder: Recorder,
    *,
    sequences: int,
    length: int,
    progress: Callable[[str], None] = lambda _: None,
) -> None:
    """Two optimizer steps; with accumulation two micro-batches each."""
    if recipe.loss.path is not LossPath.FULL:
        raise NotSupported(
            message("trace_loss", "the loss path {path} is not traced", path=str(recipe.loss.path))
        )
    model.train()
    optimizer = make_optimizer(model, recipe.optimizer)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    _watch_gradients(model, recorder)
    _watch_modules(model, architecture, recorder)
    micro_batches = min(recipe.gradient_accumulation_steps, 2)
    kept: list[Any] = []
    for step in range(NUM_STEPS):
        for _ in range(micro_batches):
            recorder.start("forward", step)
            progress(f"forward {step}")
            batch = _batch(recipe, sequences, length)
            loss = _forward(model, batch, recipe, kept)
            recorder.start("backward")
            progress(f"backward {step}")
            loss.backward()  # type: ignore[no-untyped-call]
            del loss, batch
        recorder.start("optimizer_step")
        if recipe.max_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(trained, recipe.max_grad_norm)
        optimizer.step()
        _name_states(optimizer, recorder)
        model.zero_grad(set_to_none=True)
    recorder.start("other")


def _batch(recipe: TrainingRecipe, sequences: int, length: int) -> dict[str, torch.Tensor]:
    shape, device = (sequences, length), fake_device()
    batch = {
        name: torch.empty(shape, dtype=torch.int64, device=device)
        for name in ("input_ids", "attention_mask", "labels")
    }
    del recipe
    return batch


def _forward(
    model: torch.nn.Module, batch: dict[str, Any], recipe: TrainingRecipe, kept: list[Any]
) -> torch.Tensor:
    """The model's forward and loss, with the copies that wrappers make of its outputs."""
    given = dict(batch)
    if not recipe.attention_mask:
        given.pop("attention_mask")
    with _autocast(recipe):
        outputs = model(**given)
    for _ in range(recipe.loss.output_fp32_copies):
        for name, value in list(outputs.items()):
            if isinstance(value, torch.Tensor) and value.dtype in (torch.float16, torch.bfloat16):
                outputs[name] = value.float()
    kept.clear()
    if recipe.keeps_outputs:
        kept.append(outputs)
    loss = outputs["loss"]
    assert isinstance(loss, torch.Tensor)  # noqa: S101 - labels were given
    return loss


@contextlib.contextmanager
def _autocast(recipe: TrainingRecipe) -> Iterator[None]:
    if not recipe.autocast:
        yield
        return
    with torch.autocast(DEVICE, dtype=torch_dtype(recipe.compute_dtype)):
        yield


def _watch_gradients(model: torch.nn.Module, recorder: Recorder) -> None:
    """Name gradients as they arrive."""
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue

        def arrived(tensor: torch.Tensor, name: str = name) -> None:
            if tensor.grad is not None:
                recorder.name(tensor.grad, "gradient", name)

        parameter.register_post_accumulate_grad_hook(arrived)


def _watch_modules(
    model: torch.nn.Module, architecture: ModelArchitecture, recorder: Recorder
) -> None:
    """Tell the recorder which module runs and when the last layer is over."""
    for name, module in model.named_modules():

        def enter(module: Any, args: Any, name: str = name) -> None:
            del module, args
            recorder.enter(name)

        def leave(module: Any, args: Any, out: Any) -> None:
            del module, args, out
            recorder.leave()

        module.register_forward_pre_hook(enter, prepend=True)
        module.register_forward_hook(leave, always_call=True)
    layers = decoder_layers(model, architecture)

    def over(module: Any, args: Any, out: Any) -> None:
        del module, args, out
        if recorder.phase == "forward":
            recorder.start("loss")

    layers[-1].register_forward_hook(over)


def _name_states(optimizer: torch.optim.Optimizer, recorder: Recorder) -> None:
    for state in optimizer.state.values():
        for name, value in state.items():
            if isinstance(value, torch.Tensor) and value.device.type == DEVICE:
                recorder.name(value, "optimizer_state", name)
