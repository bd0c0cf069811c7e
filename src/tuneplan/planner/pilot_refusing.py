"""What no pilot runs, and what one needs installed; all of it said before anything starts."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, Final

from tuneplan.errors import InvalidRequest, MissingExtra, Mistake
from tuneplan.language import message, say
from tuneplan.planner.pilot_request import FSDP, TRANSFORMERS, TRL, ZERO, PilotChoices
from tuneplan.planner.resolving import Resolved
from tuneplan.spec.parallelism import Strategy
from tuneplan.spec.recipe import Checkpointing, Method, Objective
from tuneplan.tracing.images import FAMILIES, traced_with_images

_NEEDED: Final = ("torch", "transformers", "peft", "accelerate")
_METHODS: Final = (Method.FULL, Method.LORA, Method.DORA, Method.QLORA)
_OBJECTIVES: Final = (Objective.SFT, Objective.PRETRAIN)
_STRATEGIES: Final = (Strategy.SINGLE, Strategy.DDP, *FSDP, *ZERO)
_CHECKPOINTING: Final = (Checkpointing.NONE, Checkpointing.FULL)


def require_libraries() -> None:
    """Refuse where what every pilot needs is not installed.

    Raises:
        MissingExtra: Says the install command.
    """
    if any(find_spec(name) is None for name in _NEEDED):
        raise MissingExtra(extra="pilot", purpose=say("a pilot"))


def chosen_trainer(resolved: Resolved, choices: PilotChoices) -> str:
    """TRL's SFTTrainer for jobs of TRL, transformers' Trainer for all others.

    Raises:
        MissingExtra: The job file says TRL, which is not installed.
    """
    if resolved.recipe.framework != TRL or choices.images:
        return TRANSFORMERS
    if find_spec("trl") is not None and find_spec("datasets") is not None:
        return TRL
    if resolved.job.recipe.framework:
        raise MissingExtra(extra="pilot", purpose=say("a pilot of a job of TRL"))
    return TRANSFORMERS


def refuse(resolved: Resolved, choices: PilotChoices) -> None:
    """Refuse what the child cannot run as the job says, each with its key.

    Raises:
        InvalidRequest: All of it.
    """
    mistakes = [
        *_not_run(resolved),
        *_missing(resolved),
        *_pictures(resolved, choices),
        *_sharded_processors(resolved, choices),
    ]
    if mistakes:
        raise InvalidRequest(mistakes)


def _not_run(resolved: Resolved) -> Iterator[Mistake]:
    recipe, layout = resolved.recipe, resolved.parallelism
    nodes = resolved.cluster.num_nodes if resolved.cluster else 1
    checks: tuple[tuple[bool, str, Any, tuple[str, ...]], ...] = (
        (recipe.method not in _METHODS, "method", recipe.method, tuple(_METHODS)),
        (recipe.objective not in _OBJECTIVES, "objective", recipe.objective, tuple(_OBJECTIVES)),
        (
            recipe.gradient_checkpointing not in _CHECKPOINTING,
            "training.gradient_checkpointing",
            recipe.gradient_checkpointing,
            ("true", "false"),
        ),
        (
            layout.strategy not in _STRATEGIES,
            "parallelism.strategy",
            layout.strategy,
            tuple(_STRATEGIES),
        ),
        (layout.model_ranks > 1, "parallelism", layout.model_ranks, ("1",)),
        (nodes > 1, "hardware.num_nodes", nodes, ("1",)),
    )
    for wrong, path, value, near in checks:
        if wrong:
            yield _mistake(path, value, near)


def _mistake(path: str, value: Any, near: tuple[str, ...]) -> Mistake:
    said = str(getattr(value, "value", value))
    return Mistake(
        message=message("pilot_cannot_run", "a pilot does not run {value} yet", value=said),
        path=path,
        value=said,
        near=tuple(str(getattr(one, "value", one)) for one in near),
    )


def _missing(resolved: Resolved) -> Iterator[Mistake]:
    """Libraries that this job needs beside those of the extra."""
    recipe, strategy = resolved.recipe, resolved.parallelism.strategy
    needs = (
        (recipe.quantization is not None, "bitsandbytes", "method", recipe.method.value),
        (
            "8bit" in recipe.optimizer.name or recipe.optimizer.paged,
            "bitsandbytes",
            "training.optim",
            recipe.optimizer.name,
        ),
        (strategy in ZERO, "deepspeed", "parallelism.strategy", strategy.value),
        (
            recipe.attention.value == "flash_attention_2",
            "flash_attn",
            "training.attn_implementation",
            recipe.attention.value,
        ),
        (
            bool(resolved.job.recipe.training.use_liger_kernel),
            "liger_kernel",
            "training.use_liger_kernel",
            "true",
        ),
    )
    for needed, library, path, value in needs:
        if needed and find_spec(library) is None:
            package = library.replace("_", "-")
            yield Mistake(
                message=message(
                    "pilot_library_missing",
                    "a pilot with {value} needs {package}, which is not installed",
                    value=value,
                    package=package,
                ),
                path=path,
                value=value,
                how_to_fix=message(
                    "pilot_library_install", "pip install {package}", package=package
                ),
            )


def _sharded_processors(resolved: Resolved, choices: PilotChoices) -> Iterator[Mistake]:
    """Accelerate runs FSDP and DeepSpeed on processors as DDP, without a word.

    Source: accelerate 1.15 ``state.py AcceleratorState.__init__``: neither is looked at there.
    """
    strategy = resolved.parallelism.strategy
    if choices.device == "cpu" and strategy in (*FSDP, *ZERO):
        yield Mistake(
            message=message(
                "pilot_cpu_not_sharded",
                "accelerate shards nothing over processors: a pilot of {strategy} on a CPU would "
                "run as ddp",
                strategy=strategy.value,
            ),
            path="parallelism.strategy",
            value=strategy.value,
            near=("ddp",),
        )


def _pictures(resolved: Resolved, choices: PilotChoices) -> Iterator[Mistake]:
    if choices.images and not traced_with_images(resolved.model.model_type):
        yield _mistake("--image", resolved.model.model_type, FAMILIES)
