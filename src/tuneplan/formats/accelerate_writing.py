"""How accelerate spreads a job, as the YAML of ``accelerate launch --config_file``.

Keys: accelerate ``commands/config/config_args.py`` and ``utils/dataclasses.py`` 1.15.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tuneplan.formats import deepspeed_writing
from tuneplan.formats.file_text import yaml_text
from tuneplan.formats.foreign import ExportedFile
from tuneplan.formats.telling import Teller
from tuneplan.formats.trainer_writing import (
    ENGINES,
    SHARDED,
    STRATEGIES_WITHOUT_ENGINE,
    engine_keys,
)
from tuneplan.language import message
from tuneplan.spec.stated import StatedJob

if TYPE_CHECKING:
    from tuneplan.formats.launching import Launch

NAME: Final = "accelerate"
FILE: Final = "accelerate.yaml"
_PRECISIONS: Final = {"bf16": "bf16", "fp16": "fp16", "fp32": "no", "tf32": "no", "none": "no"}
_PROGRAM: Final = (
    *("objective", "method", "training.dtype", "training.num_train_epochs", "training.max_steps"),
    *("training.max_length", "training.packing", "training.padding", "training.optim"),
    *("training.per_device_train_batch_size", "training.per_device_eval_batch_size"),
    *("training.gradient_accumulation_steps", "training.global_batch_size"),
    *("training.gradient_checkpointing", "training.use_reentrant", "training.max_grad_norm"),
    *("training.attn_implementation", "training.loss", "training.torch_compile"),
    *("training.eval_strategy", "training.eval_steps", "training.save_strategy"),
    *("training.save_steps", "training.save_total_limit", "training.trained_layers"),
    *("training.use_liger_kernel", "training.master_weights"),
    *("training.optimizer_in_backward", "adapter.fused_kernels"),
    *("adapter.target_parameters", "quantization.quantize_experts"),
    *(f"adapter.{name}" for name in ("r", "lora_alpha", "target_modules", "modules_to_save")),
    *(f"adapter.{name}" for name in ("lora_dropout", "use_rslora", "use_dora")),
    *(f"quantization.{name}" for name in ("bits", "type", "double_quant")),
)


def launcher_tree(job: StatedJob, launch: Launch) -> dict[str, Any]:
    """Processes and machines alone: sharding stands in the training configuration."""
    return _tree(
        job,
        kind="MULTI_GPU" if launch.num_nodes * launch.accelerators_per_node > 1 else "NO",
        num_nodes=launch.num_nodes,
        accelerators_per_node=launch.accelerators_per_node,
    )


def dump(job: StatedJob) -> tuple[ExportedFile, ...]:
    """The YAML for a program of your own that uses ``Accelerator``.

    Model, adapters, lengths, batches and data are set in that program.

    Raises:
        CannotExport: accelerate has no word for the precision or the strategy.
    """
    teller = Teller(job, framework="accelerate")
    teller.leave(_PROGRAM)
    teller.word("training.precision", _PRECISIONS)
    strategy = teller.take("parallelism.strategy")
    offload = teller.take("parallelism.offload") or "none"
    if strategy in ENGINES:
        engine_keys(teller)
    if strategy not in (None, *STRATEGIES_WITHOUT_ENGINE, *ENGINES, *SHARDED):
        teller.refuse("parallelism.strategy", near=("ddp", "zero3", "fsdp2"))
    if strategy in SHARDED and offload == "optimizer":
        why = message("fsdp_offloads_all", "FSDP offloads parameters and optimizer together")
        teller.refuse("parallelism.offload", why, near=("params",))
    teller.finish()
    counts = job.hardware.accelerators_per_node or (1,)
    num_nodes = job.hardware.num_nodes or 1
    kind = "MULTI_GPU" if counts[0] * num_nodes > 1 else "NO"
    more: dict[str, Any] = {}
    if strategy in ENGINES:
        kind = "DEEPSPEED"
        more["deepspeed_config"] = {"deepspeed_config_file": deepspeed_writing.FILE}
    elif strategy in SHARDED:
        kind = "FSDP"
        more["fsdp_config"] = _fsdp(strategy, offload)
    tree = _tree(job, kind=kind, num_nodes=num_nodes, accelerators_per_node=counts[0])
    if strategy in ENGINES:
        tree.pop("mixed_precision")  # DeepSpeed's own file says it
    purpose = message(
        "purpose_accelerate_alone",
        "how accelerate spreads the job; model, adapters, lengths and data are set in your program",
    )
    own = ExportedFile(name=FILE, text=yaml_text((None, {**tree, **more})), purpose=purpose)
    if strategy not in ENGINES:
        return (own,)
    return (own, *deepspeed_writing.engine(job))


def _tree(
    job: StatedJob, *, kind: str, num_nodes: int, accelerators_per_node: int
) -> dict[str, Any]:
    precision = _PRECISIONS.get(job.recipe.training.precision or "")
    tree = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": kind,
        "num_machines": num_nodes,
        "num_processes": num_nodes * accelerators_per_node,
        "machine_rank": 0,
        "main_process_port": 29500,
        "mixed_precision": precision or "no",
        "main_training_function": "main",
        "use_cpu": False,
    }
    if num_nodes > 1:
        tree |= {"rdzv_backend": "static", "same_network": True}
    return tree


def _fsdp(strategy: str, offload: str) -> dict[str, Any]:
    common = {
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_offload_params": offload == "params",
        "fsdp_cpu_ram_efficient_loading": True,
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
    }
    if strategy == "fsdp2":
        return {"fsdp_version": 2, "fsdp_reshard_after_forward": True, **common}
    sharding = "HYBRID_SHARD" if strategy == "hsdp" else "FULL_SHARD"
    return {
        "fsdp_version": 1,
        "fsdp_sharding_strategy": sharding,
        "fsdp_use_orig_params": True,
        **common,
    }
