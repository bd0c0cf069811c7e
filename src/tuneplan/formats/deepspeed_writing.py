"""A job's part that DeepSpeed runs, as its JSON: ZeRO stage, off-loading, precision, batches.

Keys: deepspeed ``runtime/config.py`` and ``runtime/zero/config.py`` 0.19; the word ``auto`` is
filled by Hugging Face's Trainer (``integrations/deepspeed.py``) from its own arguments.
"""

from __future__ import annotations

from typing import Any, Final

from tuneplan.formats import trainer_writing
from tuneplan.formats.file_text import json_text
from tuneplan.formats.foreign import ExportedFile
from tuneplan.formats.telling import Teller, kept
from tuneplan.formats.trainer_writing import ENGINE_KEYS, ENGINES
from tuneplan.language import message
from tuneplan.spec.stated import StatedJob

NAME: Final = "deepspeed"
FILE: Final = "ds_config.json"
_STAGES: Final = {"zero1": 1, "zero2": 2, "zero3": 3}
_PROGRAM: Final = (
    *("objective", "method", "training.dtype", "training.num_train_epochs", "training.max_steps"),
    *("training.max_length", "training.packing", "training.padding", "training.optim"),
    *("training.per_device_eval_batch_size", "training.gradient_checkpointing"),
    *("training.use_reentrant", "training.attn_implementation", "training.loss"),
    *("training.torch_compile", "training.eval_strategy", "training.eval_steps"),
    *("training.save_strategy", "training.save_steps", "training.save_total_limit"),
    *("training.trained_layers", "training.use_liger_kernel"),
    *("training.optimizer_in_backward", "adapter.fused_kernels"),
    *("adapter.target_parameters", "quantization.quantize_experts"),
    *(f"adapter.{name}" for name in ("r", "lora_alpha", "target_modules", "modules_to_save")),
    *(f"adapter.{name}" for name in ("lora_dropout", "use_rslora", "use_dora")),
    *(f"quantization.{name}" for name in ("bits", "type", "double_quant")),
)


def companion(
    job: StatedJob,
    *,
    overlap_comm: bool | None = None,
    bucket_elements: int | None = None,
) -> tuple[ExportedFile, ...]:
    """The JSON that a Trainer's configuration points to; nothing where no ZeRO stage is stated.

    Args:
        job: Its strategy and off-loading are said; the rest is ``auto``.
        overlap_comm: As the framework's own files set it; None leaves it to DeepSpeed.
        bucket_elements: Likewise, for the buckets of stages 1 and 2.
    """
    parallelism = job.recipe.parallelism
    if parallelism.strategy not in ENGINES:
        return ()
    zero = _zero(job)
    if parallelism.strategy == "zero3":
        zero = {
            "reduce_bucket_size": "auto",
            "stage3_prefetch_bucket_size": "auto",
            "stage3_param_persistence_threshold": "auto",
            "stage3_gather_16bit_weights_on_model_save": True,
        } | zero
    elif bucket_elements is not None:
        buckets = ("reduce_bucket_size", "allgather_bucket_size")
        zero = dict.fromkeys(buckets, bucket_elements) | zero
    if overlap_comm is not None:
        zero.setdefault("overlap_comm", overlap_comm)
    tree = {
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "zero_allow_untested_optimizer": True,
        "bf16": {"enabled": "auto"},
        "fp16": {"enabled": "auto"},
        **_masters(job),
        "zero_optimization": zero,
    }
    purpose = message(
        "purpose_deepspeed", "how DeepSpeed shards the job; the configuration points to it"
    )
    return (ExportedFile(name=FILE, text=json_text(tree), purpose=purpose),)


def dump(job: StatedJob) -> tuple[ExportedFile, ...]:
    """The JSON for a program of your own that calls ``deepspeed.initialize``.

    Model, adapters, lengths, data and evaluation are set in that program.

    Raises:
        CannotExport: The strategy is none of DeepSpeed's, or something that it decides has no key.
    """
    teller = Teller(job, framework="DeepSpeed")
    teller.leave(_PROGRAM)
    strategy = teller.take("parallelism.strategy")
    teller.leave(("parallelism.offload", "training.master_weights", "training.max_grad_norm"))
    trainer_writing.engine_keys(teller)
    if strategy not in ENGINES:
        why = message("no_engine", "DeepSpeed's file says a ZeRO stage, and the job has none")
        teller.refuse("parallelism.strategy", why, near=ENGINES)
    if teller.take("training.precision") not in (None, "bf16", "fp16", "fp32"):
        teller.refuse("training.precision", near=("bf16", "fp16", "fp32"))
    trainer_writing.batches(teller)
    teller.finish()
    return engine(job)


def engine(job: StatedJob) -> tuple[ExportedFile, ...]:
    """The JSON with every value said, for a job whose strategy is a ZeRO stage."""
    training = job.recipe.training
    micro, steps = training.per_device_train_batch_size, training.gradient_accumulation_steps
    whole, ranks = training.global_batch_size, _ranks(job)
    if whole is None and isinstance(micro, int) and isinstance(steps, int) and ranks:
        whole = micro * steps * ranks
    precision = training.precision
    tree = kept(
        {
            "train_batch_size": whole,
            "train_micro_batch_size_per_gpu": micro,
            "gradient_accumulation_steps": steps,
            "gradient_clipping": training.max_grad_norm,
            "bf16": {"enabled": precision == "bf16"} if precision else None,
            "fp16": {"enabled": precision == "fp16"} if precision else None,
        }
    )
    tree |= _masters(job)
    tree["zero_optimization"] = _zero(job)
    purpose = message(
        "purpose_deepspeed_alone",
        "how DeepSpeed runs the step; model, adapters, lengths and data are set in your program",
    )
    return (ExportedFile(name=FILE, text=json_text(tree), purpose=purpose),)


def _ranks(job: StatedJob) -> int | None:
    counts = job.hardware.accelerators_per_node
    return (job.hardware.num_nodes or 1) * counts[0] if len(counts) == 1 else None


def _zero(job: StatedJob) -> dict[str, Any]:
    parallelism = job.recipe.parallelism
    offload = parallelism.offload or "none"
    zero: dict[str, Any] = {"stage": _STAGES[parallelism.strategy or ""]}
    stated = {key: getattr(parallelism, name) for name, key in ENGINE_KEYS.items()}
    zero |= kept(stated)
    if offload in ("optimizer", "params"):
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    if offload == "params":
        zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    return zero


def _masters(job: StatedJob) -> dict[str, Any]:
    """Half-precision copies only, where the job wants no fp32 ones (DeepSpeed 0.18.3)."""
    training = job.recipe.training
    if training.master_weights is not False or training.precision != "bf16":
        return {}
    return {"bf16": {"enabled": True, "bf16_master_weights_and_grads": True}}
