"""What may help where only a log is known: the mission's list, without figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tuneplan.diagnosis.oom_cause import Cause, unusable_bytes
from tuneplan.diagnosis.oom_stage import Stage
from tuneplan.diagnosis.oom_text import Failure
from tuneplan.language import Message, message
from tuneplan.planner.change import Price, outside_job
from tuneplan.planner.oom_ranking import Fix
from tuneplan.spec.answer import Basis, Estimate

_STEPS: Final = (Stage.FIRST_FORWARD, Stage.FIRST_BACKWARD, Stage.OPTIMIZER_STEP, Stage.LATER)
_IN_GRAPH: Final = (Stage.FIRST_FORWARD, Stage.FIRST_BACKWARD, Stage.LATER)

# Change, its price, and the stages in which it can help (all where none are named).
_LIST: Final[tuple[tuple[str, Message, Price, tuple[Stage, ...]], ...]] = (
    (
        "smaller_batch",
        message("general_batch", "a smaller micro-batch, with more accumulation"),
        Price.NOTHING,
        _IN_GRAPH,
    ),
    (
        "checkpointing",
        message("change_checkpointing", "activation checkpointing"),
        Price.NOTHING,
        _IN_GRAPH,
    ),
    (
        "flash_attention",
        message("change_attention", "flash attention"),
        Price.NOTHING,
        (*_IN_GRAPH, Stage.EVALUATION),
    ),
    (
        "fused_loss",
        message("change_loss", "a fused loss (use_liger_kernel): no whole logits in training"),
        Price.NOTHING,
        _IN_GRAPH,
    ),
    (
        "eval_batch",
        message(
            "general_eval", "a smaller evaluation batch, no logits kept (prediction_loss_only)"
        ),
        Price.NOTHING,
        (Stage.EVALUATION,),
    ),
    (
        "sharding",
        message("general_sharding", "ZeRO-2, ZeRO-3 or FSDP over the cards there are"),
        Price.NOTHING,
        (Stage.LOAD, *_STEPS),
    ),
    ("offload", message("general_offload", "offload to main memory"), Price.SPEED, ()),
    (
        "optimizer_8bit",
        message("change_optimizer", "8-bit optimizer states (adamw_bnb_8bit)"),
        Price.NUMERICS,
        (Stage.OPTIMIZER_STEP, Stage.LATER, Stage.EVALUATION, Stage.SAVE),
    ),
    (
        "shorter_length",
        message("change_length_none", "a shorter max_length"),
        Price.DATA,
        (*_IN_GRAPH, Stage.EVALUATION),
    ),
    ("adapter", message("change_4bit", "QLoRA"), Price.METHOD, ()),
    ("more_cards", message("general_cards", "more or larger cards"), Price.MONEY, ()),
)
_HOST: Final[tuple[tuple[str, Message, Price, tuple[Stage, ...]], ...]] = (
    (
        "one_copy",
        message("general_one_copy", "one copy in main memory while loading, not one a process"),
        Price.NOTHING,
        (Stage.LOAD,),
    ),
    (
        "sharded_checkpoints",
        message("general_shards", "checkpoints in shards, or without optimizer states"),
        Price.NOTHING,
        (Stage.SAVE,),
    ),
    (
        "kept_logits",
        message("general_kept", "no logits kept over the evaluation (prediction_loss_only)"),
        Price.NOTHING,
        (Stage.EVALUATION,),
    ),
    (
        "less_offload",
        message("general_less_offload", "less offloaded to main memory"),
        Price.NOTHING,
        (),
    ),
    (
        "more_host_memory",
        message("general_host", "a machine with more main memory"),
        Price.MONEY,
        (),
    ),
)


def general_fixes(stage: Stage, cause: Cause | None, failure: Failure) -> tuple[Fix, ...]:
    """The fixes that may help at this stage, then those that cannot."""
    listed = _HOST if cause is Cause.HOST else _LIST
    first = list(_first(cause, failure))
    found = [
        Fix(
            change=outside_job(code, text, price=price),
            enough_alone=None if _can(stage, stages) else False,
            cannot_help_because=None if _can(stage, stages) else _not_there(),
        )
        for code, text, price, stages in listed
    ]
    rest = sorted(found, key=lambda fix: fix.cannot_help_because is not None)
    return (*first, *rest)


def _can(stage: Stage, stages: tuple[Stage, ...]) -> bool:
    return stage is Stage.UNKNOWN or not stages or stage in stages


def _not_there() -> Message:
    return message("not_at_this_stage", "of no use at the stage at which memory ran out")


def _first(cause: Cause | None, failure: Failure) -> Iterator[Fix]:
    """What the figures of the message themselves show."""
    if failure.others_bytes:
        text = message(
            "stop_others", "stop the other processes on the card (nvidia-smi lists them)"
        )
        yield _sized("stop_others", text, failure.others_bytes)
    if cause is Cause.FRAGMENTATION:
        text = message(
            "general_segments",
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True in the environment",
        )
        yield _sized("expandable_segments", text, unusable_bytes(failure) or 0)


def _sized(code: str, text: Message, size: int) -> Fix:
    return Fix(
        change=outside_job(code, text),
        saves_bytes=Estimate(low=size, likely=size, high=size, basis=Basis.MEASURED),
    )
