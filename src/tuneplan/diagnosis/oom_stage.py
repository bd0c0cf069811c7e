"""In which stage of a run memory ran out: from the frames of a traceback and the progress lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final

from tuneplan.diagnosis.oom_text import Frame, Log
from tuneplan.frozen import dataclass
from tuneplan.language import Message, message


class Stage(StrEnum):
    """When memory ran out."""

    LOAD = "load"
    FIRST_FORWARD = "first_forward"
    FIRST_BACKWARD = "first_backward"
    OPTIMIZER_STEP = "optimizer_step"
    LATER = "later"  # at least one optimizer step had gone well
    EVALUATION = "eval"
    SAVE = "save"
    UNKNOWN = "unknown"


class Confidence(StrEnum):
    """How well founded a finding is."""

    HIGH = "high"  # the log shows it
    MEDIUM = "medium"  # the log makes it likely
    LOW = "low"  # only the estimate says so
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundStage:
    """A stage, how sure it is, and what shows it.

    Attributes:
        within: Where in the training step, if the stage is ``later``.
    """

    stage: Stage
    confidence: Confidence
    evidence: tuple[Message, ...] = ()
    within: Stage | None = None


# Functions that give a stage away, with a part of the file's path where the name alone does not.
# A traceback is read from the outside in: the first frame that matches tells the stage. accelerate
# calls DeepSpeed's optimizer step inside its own ``backward`` (``utils/deepspeed.py``), so its
# frames say nothing.
_FRAMES: Final[tuple[tuple[Stage, str, str], ...]] = (
    (
        Stage.EVALUATION,
        r"",
        (
            r"evaluate|evaluation_loop|prediction_loop|prediction_step|validation_step|validate|"
            r"run_evaluation|_evaluate|eval_step|nested_concat|nested_gather|compute_metrics"
        ),
    ),
    (
        Stage.SAVE,
        r"",
        (
            r"save|save_model|_save|_save_checkpoint|save_checkpoint|save_pretrained|save_state|"
            r"_save_optimizer_and_scheduler|save_16bit_model|save_fsdp_model|save_fsdp_optimizer|"
            r"_zero3_consolidated_16bit_state_dict|gather_cpu_state_dict|gather_consolidated_state_dict|"
            r"full_optim_state_dict|optim_state_dict|_full_post_state_dict_hook|get_state_dict|"
            r"get_full_model_state_dict|get_full_optimizer_state_dict|safe_save_model_for_hf_trainer"
        ),
    ),
    (
        Stage.LOAD,
        r"",
        (
            r"from_pretrained|_load_pretrained_model|load_model|load_checkpoint_in_model|"
            r"load_state_dict|get_peft_model|prepare_model_for_kbit_training|"
            r"prepare_model_for_int8_training|init_adapter|_move_model_to_device|_prepare_deepspeed|"
            r"_prepare_fsdp2?|prepare_model|_wrap_model|dispatch_model|_configure_distributed_model|"
            r"_configure_optimizer|initialize_optimizer_states|setup_model|_setup_model|"
            r"set_module_tensor_to_device|load_fsdp_model"
        ),
    ),
    (Stage.LOAD, r"deepspeed/__init__\.py", r"initialize"),
    (Stage.LOAD, r"fully_sharded_data_parallel\.py|_init_utils\.py", r"__init__|_auto_wrap.*"),
    (Stage.LOAD, r"trainer\w*\.py|recipe\w*\.py", r"__init__|setup"),
    (
        Stage.OPTIMIZER_STEP,
        r"optim|deepspeed/runtime|zero/stage|bitsandbytes|grad_scaler",
        (
            r"step|_take_model_step|_optimizer_step|unscale_and_clip_grads|scaled_global_norm|"
            r"_init_group|init_state|update_step"
        ),
    ),
    (
        Stage.OPTIMIZER_STEP,
        r"",
        (
            r"_?(?:single|multi)_tensor_adamw?|_fused_adamw?|adamw?|optimizer_step|"
            r"clip_grad_norm_?|get_grad_norm_?|_clip_grad_norm"
        ),
    ),
    (
        Stage.FIRST_BACKWARD,
        (
            r"torch/_tensor\.py|torch/autograd/|deepspeed/runtime|fabric|strategies|checkpoint\.py|"
            r"lightning"
        ),
        r"backward|_engine_run_backward|apply|unpack_hook|unpack",
    ),
    (
        Stage.FIRST_FORWARD,
        r"",
        (
            r"compute_loss|forward|_forward|get_batch_loss_metrics|concatenated_forward|"
            r"_compute_loss|_loss_step|loss_function|loss_fn|causal_lm_loss|cross_entropy"
        ),
    ),
    (Stage.LOAD, r"torch/nn/modules/module\.py", r"to|_apply|cuda"),
)
_SAYS_NOTHING: Final = re.compile(r"accelerate/(?:accelerator|utils/deepspeed|optimizer)\.py")
_COMPILED: Final = tuple(
    (stage, re.compile(file), re.compile(rf"(?:{function})\Z")) for stage, file, function in _FRAMES
)

_BAR: Final = re.compile(
    r"^(?P<name>[^|%]*?)\s*\d{1,3}%\|[^|]*\|\s*(?P<done>\d+)/(?P<all>\d+)\s*\[(?P<spent>[\d:]+)<"
)
_LOADS: Final = re.compile(r"loading checkpoint shards|loading weights|fetching \d+ files", re.I)
_TRAINS: Final = re.compile(r"\*{5} Running training \*{5}|Total optimization steps")
_EVALUATES: Final = re.compile(r"\*{5} Running (?:Evaluation|Prediction) \*{5}", re.I)
_SAVES: Final = re.compile(
    r"Saving model checkpoint to|saving checkpoint|Saving model weights|\[Torch\] Saving", re.I
)
_LOGGED: Final = re.compile(r"\{'(?:loss|train_loss)':|\bstep[ :=]+([1-9]\d*)\b.*\bloss\b", re.I)


def stage_of_log(log: Log) -> FoundStage:
    """The stage that a log shows; ``unknown`` where it shows none."""
    found = _of_frames(log.frames)
    progress = _progress(log.lines)
    if found is None:
        found = _of_progress(progress)
    if found.stage not in IN_A_STEP or not progress.steps_done:
        return found
    evidence = message(
        "steps_done",
        "{count} optimizer {count:~step/steps} had gone well",
        count=progress.steps_done,
    )
    return FoundStage(
        stage=Stage.LATER,
        confidence=Confidence.HIGH,
        evidence=(evidence, *found.evidence),
        within=found.stage,
    )


def is_in_step(log: Log) -> bool:
    """Whether the traceback goes through a training step, wherever in it memory ran out."""
    return any(_STEP.match(frame.function) for frame in log.frames)


_STEP: Final = re.compile(r"(?:training_step|train_step|train_batch|_train_step)\Z")
IN_A_STEP: Final = (Stage.FIRST_FORWARD, Stage.FIRST_BACKWARD, Stage.OPTIMIZER_STEP)


def _of_frames(frames: Sequence[Frame]) -> FoundStage | None:
    for frame in frames:
        if _SAYS_NOTHING.search(frame.file):
            continue
        for stage, file, function in _COMPILED:
            if file.search(frame.file) and function.match(frame.function):
                seen = message(
                    "frame_seen",
                    "the traceback goes through {function} in {file}",
                    function=frame.function,
                    file="/".join(frame.file.split("/")[-2:]),
                )
                return FoundStage(stage=stage, confidence=Confidence.HIGH, evidence=(seen,))
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Progress:
    """What the lines before the failure tell: the last thing that was begun."""

    steps_done: int = 0
    last: str = ""
    line: int = 0


def _progress(lines: Sequence[tuple[int, str]]) -> _Progress:
    steps = logged = 0
    last, line = "", 0
    for number, kind, done in _events(lines):
        last, line = kind, number
        if kind == "step":
            steps = max(steps, done)
        elif kind == "logged":
            logged, last = logged + 1, "step"
    return _Progress(steps_done=steps or logged, last=last, line=line)


def _events(lines: Sequence[tuple[int, str]]) -> Iterator[tuple[int, str, int]]:
    for number, whole in lines:
        text = whole.strip()
        bar = _BAR.match(text)
        if bar is not None:
            name = bar["name"].strip(" :")
            loading = bool(_LOADS.search(name))
            if loading and bar["done"] != bar["all"]:
                yield number, "load", 0
            elif not name or re.fullmatch(
                r"[\d|]+(?:\|Loss.*)?|train\w*|epoch.*|steps?", name, re.I
            ):
                yield number, "step", int(bar["done"])
            text = text[bar.end() :].partition("]")[2]  # what follows a bar on its line
        for kind, pattern in (
            ("load", _LOADS),
            ("train", _TRAINS),
            ("evaluate", _EVALUATES),
            ("save", _SAVES),
            ("logged", _LOGGED),
        ):
            if pattern.search(text):
                yield number, kind, 0
                break


def _of_progress(progress: _Progress) -> FoundStage:
    """Without a traceback: what was going on when the log ends."""
    stages = {"load": Stage.LOAD, "evaluate": Stage.EVALUATION, "save": Stage.SAVE}
    if progress.last in stages:
        seen = message(
            "last_line",
            "line {line} is the last that says what was being done, and no traceback follows",
            line=progress.line,
        )
        return FoundStage(
            stage=stages[progress.last], confidence=Confidence.MEDIUM, evidence=(seen,)
        )
    if progress.steps_done:
        seen = message(
            "steps_done",
            "{count} optimizer {count:~step/steps} had gone well",
            count=progress.steps_done,
        )
        return FoundStage(stage=Stage.LATER, confidence=Confidence.HIGH, evidence=(seen,))
    return FoundStage(stage=Stage.UNKNOWN, confidence=Confidence.NONE)
