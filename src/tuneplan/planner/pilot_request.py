"""What a pilot's process is asked: which trainer, which arguments, which rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tuneplan.contract.job_document import job_document
from tuneplan.frozen import dataclass
from tuneplan.language import message
from tuneplan.piloting.batches import packed_lengths, pilot_lengths
from tuneplan.piloting.wire import PilotRequest
from tuneplan.planner.pilot_rows import own_rows
from tuneplan.planner.resolving import Resolved
from tuneplan.planner.trace_requests import request_of
from tuneplan.spec.answer import Assumption
from tuneplan.spec.parallelism import Offload, Parallelism, Strategy
from tuneplan.spec.recipe import Checkpointing, DType
from tuneplan.tracing.images import ImageSize

TRL: Final = "trl"
TRANSFORMERS: Final = "transformers"
FSDP: Final = (Strategy.FSDP, Strategy.FSDP2)
ZERO: Final = {Strategy.ZERO1: 1, Strategy.ZERO2: 2, Strategy.ZERO3: 3}
_MOST_TOKENS: Final = 4_000_000  # that are made ready; beyond, they come again


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotLimits:
    """How far a pilot may go.

    Attributes:
        num_steps: At most.
        time_s: Of its steps.
        memory_bytes: None for no limit.
        until_steady: End as soon as the step time is steady.
    """

    num_steps: int = 40
    until_steady: bool = True
    time_s: float = 120.0
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotChoices:
    """What of a pilot the job does not say.

    Attributes:
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        weights: Folder of the model whose weights are loaded; None builds random ones, which
            changes neither speed nor memory.
        images: Of every row.
        synthetic: Random tokens, also where the data is at hand.
    """

    device: str = "auto"
    weights: str | None = None
    images: tuple[ImageSize, ...] = ()
    synthetic: bool = False


def pilot_request(
    resolved: Resolved, limits: PilotLimits, choices: PilotChoices, *, trainer: str, folder: Path
) -> tuple[PilotRequest, tuple[Assumption, ...]]:
    """The request, and what it takes for granted.

    Args:
        resolved: The job.
        limits: Steps, time, memory.
        choices: What the job does not say.
        trainer: ``trl`` or ``transformers``.
        folder: Where rows of tokens are written; it must outlive the pilot.
    """
    recipe = resolved.recipe
    packs = trainer == TRL and recipe.packing
    lengths = _packed(resolved, limits) if packs else _padded(resolved, limits)
    rows, told = own_rows(resolved, lengths, folder, synthetic=choices.synthetic)
    fixed = resolved.job.recipe.training.padding == "max_length" or recipe.packing
    weights = choices.weights
    request = PilotRequest(
        model=request_of(resolved, choices.images),
        arguments=dict(training_arguments(resolved)),
        trainer=trainer,
        sft=dict(_sft_arguments(resolved)) if trainer == TRL else {},
        lengths=lengths,
        rows=rows,
        images=choices.images,
        pad_to=recipe.max_length if fixed and trainer != TRL else 0,
        weights=None if weights is None else str(Path(weights).expanduser()),
        num_steps=limits.num_steps,
        until_steady=limits.until_steady,
        time_limit_s=limits.time_s,
        memory_limit_bytes=limits.memory_bytes,
        device=choices.device,
    )
    return request, (told, _trainer_assumption(resolved, trainer))


def _micro_batches(resolved: Resolved, limits: PilotLimits) -> int:
    count = resolved.cluster.num_accelerators if resolved.cluster else 1
    return limits.num_steps * resolved.recipe.gradient_accumulation_steps * count


def _padded(resolved: Resolved, limits: PilotLimits) -> tuple[tuple[int, ...], ...]:
    recipe, batch = resolved.recipe, resolved.batch
    rows = max(round(batch.sequences), 1)
    most = max(_MOST_TOKENS // (rows * recipe.max_length), 2)
    return pilot_lengths(
        resolved.dataset.statistics,
        rows=rows,
        max_length=recipe.max_length,
        worst_length=max(round(batch.worst_length), 1),
        packing=recipe.packing,
        num_micro_batches=min(_micro_batches(resolved, limits), most),
        again_at=_micro_batches(resolved, limits) // limits.num_steps,
    )


def _packed(resolved: Resolved, limits: PilotLimits) -> tuple[tuple[int, ...], ...]:
    recipe = resolved.recipe
    rows = max(round(resolved.batch.sequences), 1)
    wanted = _micro_batches(resolved, limits) * rows * recipe.max_length
    return packed_lengths(
        resolved.dataset.statistics,
        rows=rows,
        max_length=recipe.max_length,
        num_tokens=min(wanted, max(_MOST_TOKENS, 2 * rows * recipe.max_length)),
    )


def training_arguments(resolved: Resolved) -> Iterator[tuple[str, Any]]:
    """The job's settings as ``TrainingArguments``, without what is written or reported."""
    recipe, stated = resolved.recipe, resolved.job.recipe.training
    training: Mapping[str, Any] = job_document(resolved.job, resolved.assumptions)["training"]
    yield "per_device_train_batch_size", max(round(resolved.batch.sequences), 1)
    yield "gradient_accumulation_steps", recipe.gradient_accumulation_steps
    yield "max_grad_norm", recipe.max_grad_norm or 0.0
    yield "optim", training.get("optim") or "adamw_torch"
    yield "bf16", recipe.autocast and recipe.compute_dtype is DType.BFLOAT16
    yield "fp16", recipe.autocast and recipe.compute_dtype is DType.FLOAT16
    if recipe.tf32:
        yield "tf32", True
    if stated.use_liger_kernel:
        yield "use_liger_kernel", True
    if stated.torch_compile:
        yield "torch_compile", True
    if recipe.empties_cache_steps:
        yield "torch_empty_cache_steps", recipe.empties_cache_steps
    checkpoints = recipe.gradient_checkpointing is not Checkpointing.NONE
    yield "gradient_checkpointing", checkpoints
    if checkpoints:
        yield "gradient_checkpointing_kwargs", {"use_reentrant": recipe.use_reentrant}
    yield from _sharding(resolved)


def _sharding(resolved: Resolved) -> Iterator[tuple[str, Any]]:
    layout = resolved.parallelism
    if layout.strategy in FSDP:
        second = layout.strategy is Strategy.FSDP2
        kept = "shard_grad_op" if layout.keeps_gathered else "full_shard"
        layers = sorted({group.layer.class_name for group in resolved.model.groups})
        yield "fsdp", True
        yield (
            "fsdp_config",
            {
                "version": 2 if second else 1,
                "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
                "transformer_layer_cls_to_wrap": layers,
                "reshard_after_forward": not layout.keeps_gathered if second else kept,
                "cpu_offload": layout.offload is Offload.PARAMS,
            },
        )
    if layout.strategy in ZERO:
        yield "deepspeed", _deepspeed(layout)


def _deepspeed(layout: Parallelism) -> dict[str, Any]:
    """A configuration in which the Trainer fills what it knows (``auto``)."""
    zero: dict[str, Any] = {
        "stage": ZERO[layout.strategy],
        "overlap_comm": layout.overlap_communication,
        "reduce_bucket_size": layout.reduce_bucket_elements,
        "allgather_bucket_size": layout.allgather_bucket_elements,
    }
    if layout.offload is not Offload.NONE:
        zero["offload_optimizer"] = {"device": "cpu"}
    if layout.offload is Offload.PARAMS:
        zero["offload_param"] = {"device": "cpu"}
    automatic = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    return {
        **dict.fromkeys((*automatic, "gradient_clipping"), "auto"),
        "bf16": {"enabled": "auto"},
        "fp16": {"enabled": "auto"},
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
    }


def _sft_arguments(resolved: Resolved) -> Iterator[tuple[str, Any]]:
    """TRL's own settings; rows are tokens already, with a mask of those that are learned."""
    recipe = resolved.recipe
    yield "max_length", recipe.max_length
    yield "packing", recipe.packing
    yield "completion_only_loss", True
    yield "shuffle_dataset", False
    yield "activation_offloading", recipe.gradient_checkpointing is Checkpointing.OFFLOAD
    if resolved.job.recipe.training.padding == "none" and not recipe.packing:
        yield "padding_free", True
        yield "max_length", None  # TRL cuts nothing where it does not pad: the rows are cut


def _trainer_assumption(resolved: Resolved, trainer: str) -> Assumption:
    names = {TRL: "SFTTrainer", TRANSFORMERS: "Trainer"}
    return Assumption(
        name="pilot.trainer",
        value=f"{trainer}.{names[trainer]}",
        reason=message(
            "pilot_trainer",
            "what a job of {framework} is piloted by",
            framework=resolved.recipe.framework,
        ),
        source="planner/pilot_request.py",
        how_to_set="framework: trl, or framework: transformers",
    )
