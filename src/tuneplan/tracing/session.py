"""One job traced in this process, which has to be a fresh one (libraries are patched)."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable
from functools import cache

from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.parallelism import Parallelism, Strategy
from tuneplan.spec.recipe import TrainingRecipe
from tuneplan.tracing.attention import AttentionRules
from tuneplan.tracing.device import CPU, DEVICE, choose_device, device_type, fake_device, fake_mode
from tuneplan.tracing.images import ImageSize
from tuneplan.tracing.peft_methods import check_method
from tuneplan.tracing.recorder import Recorder
from tuneplan.tracing.recording import Recording
from tuneplan.tracing.routing import Spread, values_of
from tuneplan.tracing.sharding import SHARDED, join_group, shard
from tuneplan.tracing.vision import lists_of_tensors


@cache
def prepare_process() -> None:
    """Patch the libraries of this process: attention, autocast, masks, bitsandbytes."""
    from tuneplan.tracing.flash import install_flash_attention
    from tuneplan.tracing.kbit import install_bitsandbytes
    from tuneplan.tracing.older import leave_masks_alone

    install_bitsandbytes()
    install_flash_attention()
    import peft  # noqa: F401 - imported now, while the stand-ins are in place

    from tuneplan.tracing.autocast import install_autocast

    fake_device()
    if device_type() != CPU:
        install_autocast()
    leave_masks_alone()


def _know_the_card(compute_capability: float) -> None:
    """What transformers asks of a card: grouped products start with compute capability 8."""
    with contextlib.suppress(ImportError):
        import transformers.integrations.moe as mixture

        real = getattr(mixture, "_can_use_grouped_mm", None)
        real = getattr(real, "asked", real)
        if real is None:
            return

        def can_use(*args: object, **kwargs: object) -> bool:
            return compute_capability >= 8 and bool(real(*args, **kwargs))

        can_use.asked = real  # type: ignore[attr-defined]
        mixture._can_use_grouped_mm = can_use  # noqa: SLF001


def record(
    architecture: ModelArchitecture,
    recipe: TrainingRecipe,
    *,
    sequences: int,
    length: int,
    evaluation_sequences: int = 0,
    compute_capability: float | None = None,
    device: str = DEVICE,
    peft_config: object = None,
    spread: Spread = Spread.BALANCED,
    parallelism: Parallelism | None = None,
    images: tuple[ImageSize, ...] = (),
    folds_windows: bool = True,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[Recording, float]:
    """Build the model, run two steps, return what was seen and the seconds it took.

    Args:
        architecture: The model.
        recipe: How it is trained.
        sequences: In a micro-batch.
        length: Tokens of each.
        evaluation_sequences: In a batch of the evaluation; 0 for none.
        compute_capability: Of the card; None for one that is not known.
        device: The one like CUDA; ``cpu`` traces what the same code allocates on a CPU, with its
            kernels and without CUDA's workspaces.
        peft_config: PEFT's own configuration, in place of the recipe's adapter.
        spread: Over which experts tokens go, where the code loops over experts.
        parallelism: How the job is spread; one rank of a sharded one is traced.
        images: Of every sequence; none for text alone.
        folds_windows: One call of attention for all windows of a length, in place of the loop.
        progress: Told each phase as it begins.
    """
    choose_device(device)
    prepare_process()
    if peft_config is not None:
        check_method(peft_config)
    import torch

    from tuneplan.tracing.build import build_model, load_model
    from tuneplan.tracing.litgpt_code import LITGPT, version
    from tuneplan.tracing.steps import run_steps
    from tuneplan.tracing.windows import SOURCE, Windows

    if recipe.kernels.model_code == LITGPT:
        version()  # imported now, before there are fake tensors
    started = time.perf_counter()
    rules = AttentionRules(
        flash=compute_capability is None or compute_capability >= 8,
        expands=recipe.expand_key_value,
    )
    if device_type() != CPU:
        torch.nn.functional.scaled_dot_product_attention = rules
    values = values_of(architecture, spread, peft_config)
    recorder = Recorder(
        hopper=compute_capability is not None and compute_capability >= 9, values=values
    )
    sharded = parallelism is not None and parallelism.strategy in SHARDED
    mesh = join_group(parallelism) if parallelism is not None and sharded else None
    if compute_capability is not None:
        _know_the_card(compute_capability)
    reading = lists_of_tensors() if images else contextlib.nullcontext()
    with warnings.catch_warnings(), reading, fake_mode(), recorder:
        warnings.simplefilter("ignore")  # of libraries, about their own next versions
        progress("build")
        fsdp2 = parallelism is not None and parallelism.strategy is Strategy.FSDP2
        plain = not fsdp2 and peft_config is None
        model = build_model(architecture, recipe, own_code=plain, sharded=sharded)
        progress("load")
        with recorder.unwatched() if sharded else contextlib.nullcontext():
            model = load_model(model, architecture, recipe, recorder, peft_config)
        if parallelism is not None and sharded:
            progress("shard")
            model = shard(model, architecture, recipe, parallelism, mesh, recorder)
        if images and device_type() != CPU and folds_windows:
            windows = Windows(recorder)
            if windows.watch(model):
                rules.windows = windows
                recorder.recording.stand_ins["windowed attention"] = SOURCE
        run_steps(
            model, architecture, recipe, recorder,
            sequences=sequences, length=length, evaluation_sequences=evaluation_sequences,
            compute_capability=compute_capability, images=images, progress=progress,
        )  # fmt: skip
    recorder.finish()
    for name, count in rules.chosen.items():
        recorder.recording.notes[f"attention_{name}"] = count
    recorder.recording.notes.update(values.notes)
    if architecture.vision is not None and not images:
        recorder.recording.notes["batches_without_images"] = 1
    return recorder.recording, time.perf_counter() - started
