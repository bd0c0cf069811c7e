"""accelerate's YAML: processes, DeepSpeed or FSDP, mixed precision.

Source: accelerate 1.15 ``commands/config/config_args.py``, ``commands/launch.py`` and
``utils/launch.py`` at 16cb6eb8.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tuneplan.formats import accelerate_writing
from tuneplan.formats.carrying import Carrier
from tuneplan.formats.deepspeed import carry_offload, follow_engine, stage_by_name
from tuneplan.formats.foreign import Companion, ExportedFile, ForeignDocument, Imported
from tuneplan.formats.fsdp import KNOWN as FSDP_KNOWN
from tuneplan.formats.fsdp import carry_fsdp
from tuneplan.formats.keys import Keys
from tuneplan.formats.tables import Reasons
from tuneplan.language import message
from tuneplan.spec.stated import StatedJob

NAME: Final = "accelerate"
_SIGNS: Final = (
    *("compute_environment", "num_processes", "num_machines", "mixed_precision", "machine_rank"),
    *("main_training_function", "deepspeed_config", "fsdp_config", "downcast_bf16", "use_cpu"),
)
_TYPES: Final = (
    *("NO", "MULTI_GPU", "DEEPSPEED", "FSDP", "MEGATRON_LM", "TP", "MULTI_CPU", "MULTI_XPU"),
    *("MULTI_NPU", "MULTI_MLU", "MULTI_SDAA", "MULTI_MUSA", "MULTI_HPU", "MULTI_NEURON", "XLA"),
    *("TPU", "DATA_PARALLEL", "MODEL_PARALLEL"),
)
_PRECISIONS: Final = ("no", "bf16", "fp16", "fp8")
_DEGREES: Final = {"tp": "tensor", "cp": "context", "sp": "context"}

IRRELEVANT: Final = Reasons(
    (
        message("acc_meeting", "how processes find each other"),
        (
            *("machine_rank", "main_process_ip", "main_process_port", "rdzv_backend"),
            *("same_network", "main_training_function", "compute_environment", "debug", "quiet"),
            *("enable_cpu_affinity", "num_cpu_threads_per_process", "mpirun_config", "module"),
            *("main_process_ip", "max_restarts", "monitor_interval", "rdzv_conf", "no_python"),
            *("deepspeed_hostfile", "deepspeed_exclusion_filter", "deepspeed_inclusion_filter"),
            *("deepspeed_multinode_launcher", "role", "tee", "log_dir", "m", "q", "ipex_config"),
            "num_threads_per_process",
        ),
    ),
    (
        message("acc_other_chips", "only for chips of another kind"),
        (
            *("downcast_bf16", "tpu_env", "tpu_use_cluster", "tpu_use_sudo", "tpu_name"),
            *("tpu_zone", "tpu_vm", "commands", "command_file", "tpu", "tpu_cluster"),
        ),
    ),
    (
        message("acc_loading", "how weights are loaded or saved"),
        (
            *("deepspeed_config.zero3_init_flag", "deepspeed_config.deepspeed_multinode_launcher"),
            *("deepspeed_config.deepspeed_hostfile", "zero3_init_flag"),
            *("deepspeed_config.deepspeed_moe_layer_cls_names", "deepspeed_moe_layer_cls_names"),
            *("deepspeed_config.deepspeed_exclusion_filter",),
            *("deepspeed_config.deepspeed_inclusion_filter",),
        ),
    ),
    (
        message("acc_switches", "the section beside it, or the program, says what it switches on"),
        (
            *("use_deepspeed", "use_fsdp", "multi_gpu", "use_parallelism_config", "gpu_ids"),
            *("gradient_accumulation_steps_of_launcher", "use_megatron_lm", "use_xpu"),
        ),
    ),
    (message("acc_fp8", "how FP8 is scaled"), ("fp8_config",)),
)
NOT_CARRIED: Final = Reasons(
    (
        message("acc_gathers", "gathering the weights for a checkpoint is not counted"),
        ("deepspeed_config.zero3_save_16bit_model", "zero3_save_16bit_model"),
    ),
    (
        message("acc_parts", "this part of the launcher's settings has no job key"),
        (
            *("parallelism_config", "dynamo_config", "kt_config", "use_cpu"),
            "deepspeed_config.seq_parallel_communication_data_type",
        ),
    ),
)
KNOWN: Final = (
    *("distributed_type", "num_processes", "num_machines", "mixed_precision", "dynamo_backend"),
    *("deepspeed_config.zero_stage", "deepspeed_config.offload_optimizer_device"),
    *("deepspeed_config.offload_param_device", "deepspeed_config.deepspeed_config_file"),
    *("deepspeed_config.gradient_accumulation_steps", "deepspeed_config.gradient_clipping"),
    *(f"fsdp_config.fsdp_{name}" for name in FSDP_KNOWN),
    *(f"parallelism_config.parallelism_config_{name}_size" for name in _DEGREES),
    *IRRELEVANT.names,
    *NOT_CARRIED.names,
)


def recognise(document: ForeignDocument) -> float:
    """``distributed_type`` beside keys of a launcher."""
    tree = document.tree
    if document.form == "shell":
        return 0.0
    signs = sum(name in tree for name in _SIGNS)
    if "distributed_type" in tree or "compute_environment" in tree:
        return min(1.0, 0.6 + 0.1 * signs)
    return min(0.6, 0.15 * signs)


def load(document: ForeignDocument, *, companion: Companion, version: str | None) -> Imported:
    """What the file says about processes, sharding and precision; it names no model.

    Raises:
        InvalidRequest: Values that accelerate would refuse, or that contradict each other.
    """
    carrier = Carrier(document)
    carry_accelerate(Keys(carrier=carrier), companion, alone=True)
    return carrier.finish(name=NAME, version=version, known=KNOWN)


def dump(job: StatedJob) -> tuple[ExportedFile, ...]:
    """Write the job for accelerate.

    Raises:
        CannotExport: accelerate has no way to say a setting of the job.
    """
    return accelerate_writing.dump(job)


def follow_accelerate(keys: Keys, name: str, companion: Companion) -> None:
    """Read the file that ``accelerate launch --config_file`` names."""
    written = keys.text(name)
    if written is None:
        return
    document = companion(written)
    if document is None:
        _by_name(keys, name, written)
        return
    if not recognise(document):
        text = message("not_accelerate", "{file} is no configuration of accelerate", file=written)
        keys.wrong(name, text)
        return
    keys.carrier.join(document)
    keys.carry(name)
    carry_accelerate(Keys(carrier=keys.carrier, document=document), companion)


def _by_name(keys: Keys, name: str, written: str) -> None:
    """A file that is not here, by its name where that names the strategy."""
    strategy = strategy_by_name(written.rpartition("/")[2].lower())
    if strategy is None:
        text = message("file_not_here", "{name} is not here", name=written)
        keys.not_carried((name,), text)
    else:
        if keys.carrier.said("parallelism.strategy") is None:
            keys.carry(name, ("parallelism.strategy", strategy))
        keys.carry(name)
        text = message(
            "launcher_by_name",
            "{name} is not here; by its name it is taken as {strategy}",
            name=written,
            strategy=strategy,
        )
    keys.notice(name, text)


def strategy_by_name(file: str) -> str | None:
    """The strategy that the name of a file tells, as those do that come with TRL and accelerate."""
    if "fsdp" in file:
        return "fsdp2" if re.search(r"fsdp_?2|fsdp_?v2", file) else "fsdp"
    stage = stage_by_name(file)
    if stage is not None:
        return f"zero{stage}" if stage else "ddp"
    return "ddp" if "multi_gpu" in file or "ddp" in file else None


def carry_accelerate(keys: Keys, companion: Companion, *, alone: bool = False) -> None:
    """Everything a configuration of accelerate says, into a job that others may have begun.

    Args:
        keys: The file.
        companion: Reads the DeepSpeed file that it may name.
        alone: Whether no program's own arguments go with it.
    """
    kind = keys.word("distributed_type", _TYPES)
    if kind == "NO":
        alone_text = message("acc_one_process", "distributed_type NO starts one process")
        if keys.carrier.said("hardware.accelerators_per_node") is None:
            keys.carry("distributed_type", ("hardware.accelerators_per_node", 1))
        keys.irrelevant(("num_processes",), alone_text)
    carry_processes(keys, counted=kind != "NO")
    carry_precision(keys, alone=alone)
    engine, shards = keys.under("deepspeed_config"), keys.under("fsdp_config")
    if kind == "DEEPSPEED":
        carry_zero(engine, companion)
    if kind == "FSDP":
        carry_fsdp(shards, default_version=1)
    carry_degrees(keys.under("parallelism_config"))
    carry_kind(keys, kind)
    _compiled(keys)
    unused = message("acc_unused", "distributed_type is {kind}", kind=kind or "NO")
    keys.irrelevant(("fsdp_config",) if kind != "FSDP" else (), unused)
    keys.irrelevant(("deepspeed_config",) if kind != "DEEPSPEED" else (), unused)
    keys.close(irrelevant=IRRELEVANT, not_carried=NOT_CARRIED)


def carry_kind(keys: Keys, kind: str | None, name: str = "distributed_type") -> None:
    """What kind of parallelism the launcher sets up, where no section has said it yet."""
    if kind is None:
        return
    if kind in ("MEGATRON_LM", "MODEL_PARALLEL", "TP", "MULTI_CPU", "XLA", "TPU"):
        text = message("acc_kind_refused", "{kind} has no formula yet", kind=kind)
        keys.refuse(name, text)
        return
    said = keys.carrier.said("parallelism.strategy")
    if kind.startswith("MULTI_") and said is None and keys.carrier.said(
        "hardware.accelerators_per_node"
    ) != 1:  # fmt: skip
        keys.carry(name, ("parallelism.strategy", "ddp"))
        return
    keys.carry(name)


def carry_processes(keys: Keys, *, counted: bool = True) -> None:
    """``num_processes`` counts all machines; the launch line goes before the file."""
    processes, machines = keys.whole("num_processes"), keys.whole("num_machines")
    for name, count in (("num_processes", processes), ("num_machines", machines)):
        if count is not None and count < 1 and count != -1:
            keys.wrong(name, message("at_least_one", "{key} is at least 1", key=name))
            return
    said = keys.carrier.said("hardware.accelerators_per_node")
    overridden = message("line_goes_first", "the launch line says it, and goes before the file")
    machines = machines or 1
    if keys.value("num_machines") is not None:
        if keys.carrier.said("hardware.num_nodes") is None:
            keys.carry("num_machines", ("hardware.num_nodes", machines))
        keys.irrelevant(("num_machines",), overridden)
    machines = int(keys.carrier.said("hardware.num_nodes") or machines)
    if not counted or processes is None or processes == -1:
        return
    if said is not None:
        keys.irrelevant(("num_processes",), overridden)
    elif processes % machines:
        keys.wrong(
            "num_processes",
            message(
                "processes_do_not_divide",
                "{processes} processes cannot be spread evenly over {machines} machines: "
                "num_processes counts those of all machines",
                processes=processes,
                machines=machines,
            ),
            near=(str(processes * machines),),
        )
    else:
        keys.carry("num_processes", ("hardware.accelerators_per_node", processes // machines))


def carry_precision(keys: Keys, *, alone: bool = False) -> None:
    """``mixed_precision``; the program's own ``bf16`` or ``fp16`` goes before a ``no``."""
    precision = keys.word("mixed_precision", _PRECISIONS)
    if precision is None:
        return
    said = keys.carrier.said("training.precision")
    if precision == "no":
        if alone:
            keys.carry("mixed_precision", ("training.precision", "none"))
        decides = message("program_decides", "no: the program's own arguments decide")
        keys.irrelevant(("mixed_precision",), decides)
    elif said in ("none", "fp32", "tf32"):
        text = message(
            "launcher_autocasts",
            "the launcher's mixed_precision: {precision} counts, since the program asks for none",
            precision=precision,
        )
        keys.notice("mixed_precision", text)
        keys.carry("mixed_precision", ("training.precision", precision))
    else:
        keys.agree("mixed_precision", "training.precision", precision)


def carry_zero(keys: Keys, companion: Companion) -> None:
    """DeepSpeed by accelerate's own keys, or by the file that it names."""
    if keys.value("deepspeed_config_file") not in (None, "none"):
        follow_engine(keys, "deepspeed_config_file", companion)
    stage = keys.whole("zero_stage")
    if stage is not None and stage not in range(4):
        text = message("no_such_stage", "ZeRO has the stages 0, 1, 2 and 3, not {n}", n=stage)
        keys.wrong("zero_stage", text)
        return
    if stage is not None:
        strategy = f"zero{stage}" if stage else "ddp"
        keys.agree("zero_stage", "parallelism.strategy", strategy)
    elif keys.carrier.said("parallelism.strategy") is None:
        keys.carrier.say("parallelism.strategy", "zero2")  # ACCELERATE_DEEPSPEED_ZERO_STAGE
    devices = {
        what: keys.word(f"offload_{what}_device", ("none", "cpu", "nvme"))
        for what in ("optimizer", "param")
    }
    carry_offload(keys, "offload_{}_device", devices, stage=2 if stage is None else stage)
    _engine_batches(keys)
    paths = message("offload_details", "how it is off-loaded, not what")
    keys.irrelevant(("offload_optimizer_nvme_path", "offload_param_nvme_path"), paths)


def _engine_batches(keys: Keys) -> None:
    """Accumulation and clipping that accelerate hands to DeepSpeed."""
    for name, job_key, count in (
        (
            "gradient_accumulation_steps",
            "training.gradient_accumulation_steps",
            None if keys.value("gradient_accumulation_steps") == "auto"
            else keys.whole("gradient_accumulation_steps"),
        ),
        (
            "gradient_clipping",
            "training.max_grad_norm",
            None if keys.value("gradient_clipping") == "auto" else keys.number("gradient_clipping"),
        ),
    ):  # fmt: skip
        said = keys.carrier.said(job_key)
        if count is not None and said is not None and said != count:
            text = message(
                "engine_differs",
                "{key} is {value} for DeepSpeed and {said} in the training configuration, which "
                "is taken; the Trainer may refuse the pair",
                key=name,
                value=count,
                said=said,
            )
            keys.notice(name, text)
            keys.not_carried((name,), text)
        elif count is not None:
            keys.carry(name, (job_key, count))
        keys.irrelevant((name,), message("filled_by_trainer", "auto: filled in by the program"))


def carry_degrees(keys: Keys) -> None:
    """Degrees of accelerate's ``ParallelismConfig``."""
    sizes = {
        name: keys.whole(f"parallelism_config_{name}_size")
        for name in ("dp_replicate", "dp_shard", *_DEGREES)
    }
    for name, axis in _DEGREES.items():
        if (sizes[name] or 1) > 1:
            keys.carry(f"parallelism_config_{name}_size", (f"parallelism.{axis}", sizes[name]))
    if (sizes["dp_replicate"] or 1) > 1 and (sizes["dp_shard"] or 1) > 1:
        says = ("parallelism.strategy", "hsdp")
        keys.carry("parallelism_config_dp_replicate_size", says)
        keys.carry("parallelism_config_dp_shard_size", says)
    shape = message("mesh_shape", "the number of processes and the other degrees say it")
    details = message("mesh_details", "how the ranks of this axis talk, not what they hold")
    keys.irrelevant((f"parallelism_config_{name}_size" for name in sizes), shape)
    keys.irrelevant(
        (name for name in keys.section if name.startswith("parallelism_config_")), details
    )


def _compiled(keys: Keys) -> None:
    for name in ("dynamo_backend", "dynamo_config.dynamo_backend"):
        backend = keys.text(name)
        if backend is not None and backend.lower() not in ("no", "none"):
            keys.carry(name, ("training.torch_compile", True))
        keys.irrelevant((name,), message("not_compiled_here", "the model is not compiled"))
    section = keys.value("dynamo_config")
    if isinstance(section, Mapping):
        how = message("how_compiled", "how the model is compiled")
        keys.irrelevant((f"dynamo_config.{name}" for name in section), how)
