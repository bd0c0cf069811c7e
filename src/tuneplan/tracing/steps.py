"""The training loop: two steps of what a Trainer does between reading a batch and the next."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.recipe import TrainingRecipe
from tuneplan.tracing.adapters import torch_dtype
from tuneplan.tracing.build import decoder_layers, load_reference
from tuneplan.tracing.device import device_type, fake_device
from tuneplan.tracing.images import ImageSize
from tuneplan.tracing.kernels import fused_kernels, refuse_kernels
from tuneplan.tracing.litgpt_code import is_litgpt, loss_of_litgpt, run_litgpt, set_length
from tuneplan.tracing.losses import install_loss, outside_loss
from tuneplan.tracing.optimizers import make_optimizer, states_of
from tuneplan.tracing.preferences import is_preference, preference_loss, refuse_preference
from tuneplan.tracing.recorder import Recorder
from tuneplan.tracing.vision import image_batch

NUM_STEPS = 2


def run_steps(
    model: torch.nn.Module,
    architecture: ModelArchitecture,
    recipe: TrainingRecipe,
    recorder: Recorder,
    *,
    sequences: int,
    length: int,
    evaluation_sequences: int = 0,
    compute_capability: float | None = None,
    images: tuple[ImageSize, ...] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> None:
    """Two optimizer steps, with accumulation two or three micro-batches each; one evaluation batch.

    Args:
        model: On the device, with what is trained chosen.
        architecture: Names the layers' classes.
        recipe: Everything that decides what runs.
        recorder: Watches.
        sequences: Rows of a micro-batch.
        length: Tokens of a row.
        evaluation_sequences: Rows of an evaluation batch; 0 = no evaluation.
        compute_capability: Of the card (fused kernels sum one row of each multiprocessor).
        images: Of every row.
        progress: Told what begins.

    Raises:
        NotSupported: for a part of the recipe that is not traced.
    """
    refuse_kernels(recipe)
    refuse_preference(recipe)
    reference = load_reference(architecture, recipe, recorder)
    model.train()
    if is_litgpt(model):
        set_length(model, length)
    elif not is_preference(recipe):
        install_loss(model, recipe, recorder.recording)
    _watch_gradients(model, recorder)
    loop = _Loop(model, reference, recipe, recorder, progress)
    loop.images = images
    _watch_modules(model, architecture, recorder)
    with fused_kernels(model, architecture, recipe, recorder.recording, compute_capability):
        for step in range(NUM_STEPS):
            loop.step(step, sequences, length)
        if evaluation_sequences:
            loop.evaluate(evaluation_sequences, length)
    recorder.start("other")


class _Loop:
    """What a training loop holds from one step to the next."""

    def __init__(
        self,
        model: torch.nn.Module,
        reference: torch.nn.Module | None,
        recipe: TrainingRecipe,
        recorder: Recorder,
        progress: Callable[[str], None],
    ) -> None:
        self.model, self.recipe, self.recorder = model, recipe, recorder
        self.reference = reference
        self.progress = progress
        named = [
            (name, one)
            for name, one in model.named_parameters()
            if one.requires_grad and not getattr(one, "outside_optimizer", False)
        ]
        self.trained = [parameter for _, parameter in named]
        self.optimizers: list[torch.optim.Optimizer] = []
        if recipe.optimizer.in_backward:
            self._step_in_backward(named)
        else:
            self.optimizers.append(make_optimizer(named, recipe.optimizer, recorder.recording))
        self.scaler = _scaler(recipe, self.trained, recorder)
        self.images: tuple[ImageSize, ...] = ()
        self.outputs: list[Any] = []
        self.loss: torch.Tensor | None = None

    def _step_in_backward(self, named: list[tuple[str, torch.nn.Parameter]]) -> None:
        """An optimizer for each parameter, which steps as soon as its gradient is there.

        Source: torchtune 0.6 ``training/memory.py register_optim_in_bwd_hooks``; transformers
        ``trainer_optimizer.py _setup_low_rank_optimizer`` (layerwise).
        """
        for name, parameter in named:
            one = make_optimizer(
                [(name, parameter)], self.recipe.optimizer, self.recorder.recording
            )
            self.optimizers.append(one)

            def step(tensor: torch.Tensor, one: torch.optim.Optimizer = one) -> None:
                del tensor
                one.step()
                _name_states(one, self.recorder)
                one.zero_grad()

            parameter.register_post_accumulate_grad_hook(step)

    def step(self, number: int, sequences: int, length: int) -> None:
        """Micro-batches, clipping, the optimizer's step, gradients dropped."""
        # One between the first and the last meets whole gradients and leaves them whole.
        most = 3 if self.recipe.gradients_unsharded_while_accumulating else 2
        micro_batches = min(self.recipe.gradient_accumulation_steps, most)
        for left in reversed(range(micro_batches)):
            with self._unsynchronized() if left else contextlib.nullcontext():
                self._micro_batch(number, sequences, length)
        self.recorder.start("optimizer_step")
        if not self.recipe.optimizer.in_backward:
            self._update(self.optimizers[0])
            _name_states(self.optimizers[0], self.recorder)
        for parameter in self.model.parameters():
            if not getattr(parameter, "outside_optimizer", False):
                parameter.grad = None

    def _unsynchronized(self) -> Any:
        """All micro-batches but the last of a step: FSDP leaves their gradients whole."""
        model: Any = self.model
        if not self.recipe.gradients_unsharded_while_accumulating:
            return contextlib.nullcontext()
        if hasattr(model, "set_requires_gradient_sync"):
            return _without_reduction(model)
        return model.no_sync() if hasattr(model, "no_sync") else contextlib.nullcontext()

    def _batch(self, sequences: int, length: int) -> dict[str, torch.Tensor]:
        batch = _batch(sequences, length)
        if self.images:
            config = getattr(self.model, "config", None)
            values = self.recorder.values
            batch |= image_batch(config, values, self.images, sequences, length)
        return batch

    def _micro_batch(self, number: int, sequences: int, length: int) -> None:
        recipe = self.recipe
        alone = recipe.longest_first and not recipe.empties_cache_steps
        if recipe.outputs_die_with_step or alone:
            self.outputs.clear()  # held through the step of the optimizer
            self.loss = None
        self.recorder.start("forward", number)
        self.progress(f"forward {number}")
        loss = self._forward(self._batch(sequences, length))
        self.loss = loss if self.recipe.keeps_graph else None
        self.recorder.start("backward")
        self.progress(f"backward {number}")
        if self.scaler is not None:
            self.scaler.scale(loss).backward()
        else:
            loss.backward()  # type: ignore[no-untyped-call]

    def _forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """The loss of a batch; with a name for the outputs where the loop keeps them."""
        recipe, labels = self.recipe, batch["labels"]
        if is_litgpt(self.model):
            with _autocast(recipe):
                outputs = run_litgpt(self.model, batch["input_ids"], recipe)
            self._keep(outputs)
            return loss_of_litgpt(self.model, outputs, labels)
        if not is_preference(recipe):
            outside = recipe.loss.outside_model
            given = {key: value for key, value in batch.items() if not outside or key != "labels"}
            outputs = _run(self.model, given, recipe)
            self._keep(outputs)
            if outside:
                return outside_loss(self.model, outputs, labels, recipe.loss)
            loss = outputs["loss"]
            assert isinstance(loss, torch.Tensor)  # noqa: S101 - labels were given
            return loss
        given = {key: value for key, value in batch.items() if key != "labels"}

        def run(model: torch.nn.Module) -> torch.Tensor:
            logits = _run(model, given, recipe)["logits"]
            assert isinstance(logits, torch.Tensor)  # noqa: S101 - what a head returns
            return logits

        return preference_loss(self.model, self.reference, recipe, labels, run)

    def _keep(self, outputs: Any) -> None:
        self.outputs.clear()
        if self.recipe.keeps_outputs:
            self.outputs.append(outputs)

    def _update(self, optimizer: torch.optim.Optimizer) -> None:
        if self.scaler is not None:
            self.scaler.unscale_(optimizer)
        if self.recipe.max_grad_norm:
            torch.nn.utils.clip_grad_norm_(self.trained, self.recipe.max_grad_norm, foreach=True)
        if self.scaler is not None:
            self.scaler.step(optimizer)
            self.scaler.update()
        else:
            optimizer.step()

    def evaluate(self, sequences: int, length: int) -> None:
        """One batch as Trainer evaluates: in ``eval`` mode, without a graph, only the loss kept.

        Source: transformers ``trainer.py prediction_step`` with ``prediction_loss_only`` (no
        ``compute_metrics``), 5.24: logits die with the batch.
        """
        self.recorder.start("evaluation")
        self.progress("evaluation")
        self.outputs.clear()
        self.loss = None
        self.model.eval()
        with torch.no_grad():
            self._forward(self._batch(sequences, length))
        self.outputs.clear()
        self.model.train()


@contextlib.contextmanager
def _without_reduction(model: Any) -> Iterator[None]:
    model.set_requires_gradient_sync(False)
    try:
        yield
    finally:
        model.set_requires_gradient_sync(True)


class _Scaler(torch.amp.GradScaler):
    """PyTorch's gradient scaler, which would read on the host whether a gradient is infinite."""

    def _maybe_opt_step(
        self, optimizer: torch.optim.Optimizer, optimizer_state: Any, *args: Any, **kwargs: Any
    ) -> Any:
        del optimizer_state
        return optimizer.step(*args, **kwargs)


def _scaler(
    recipe: TrainingRecipe, trained: list[torch.nn.Parameter], recorder: Recorder
) -> _Scaler | None:
    """The scaler of fp16 autocast.

    It refuses fp16 gradients (``torch/amp/grad_scaler.py _unscale_grads_``): a loop that trains
    half weights runs without one.
    """
    if not recipe.autocast or recipe.compute_dtype != "float16":
        return None
    if any(one.dtype is torch.float16 for one in trained):
        recorder.recording.notes["fp16_gradients_without_scaler"] = 1
        return None
    recorder.recording.notes["gradient_scaler"] = 1
    return _Scaler(device_type())


def _batch(sequences: int, length: int) -> dict[str, torch.Tensor]:
    shape, device = (sequences, length), fake_device()
    return {
        name: torch.empty(shape, dtype=torch.int64, device=device)
        for name in ("input_ids", "attention_mask", "labels")
    }


def _run(model: torch.nn.Module, batch: dict[str, Any], recipe: TrainingRecipe) -> Any:
    """What a model returns, with the copies that wrappers make of it."""
    given = dict(batch)
    if not recipe.attention_mask:
        given.pop("attention_mask")
    with _autocast(recipe):
        outputs = model(**given)
    for _ in range(recipe.loss.output_fp32_copies):
        for name, value in list(outputs.items()):
            if isinstance(value, torch.Tensor) and value.dtype in (torch.float16, torch.bfloat16):
                outputs[name] = value.float()
    return outputs


@contextlib.contextmanager
def _autocast(recipe: TrainingRecipe) -> Iterator[None]:
    if not recipe.autocast:
        yield
        return
    with torch.autocast(device_type(), dtype=torch_dtype(recipe.compute_dtype)):
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
    for kind, name, value in states_of(optimizer):
        if value.device.type == device_type():
            recorder.name(value, kind, name)
