"""What a launch line says about processes: torchrun, DeepSpeed, accelerate, Slurm, environment.

Sources: torch 2.10 ``distributed/run.py``, DeepSpeed 0.19.6 ``launcher/runner.py``, accelerate 1.15
``commands/launch.py``; ``NPROC_PER_NODE`` and ``NNODES`` are read by ms-swift ``cli/main.py`` and
LLaMA-Factory ``cli.py``.
"""

from __future__ import annotations

import re
from typing import Final

from tuneplan.formats.accelerate import (
    IRRELEVANT,
    NOT_CARRIED,
    carry_degrees,
    carry_precision,
    carry_processes,
    carry_zero,
    follow_accelerate,
)
from tuneplan.formats.carrying import Carrier
from tuneplan.formats.foreign import Companion
from tuneplan.formats.fsdp import carry_fsdp
from tuneplan.formats.keys import Keys
from tuneplan.formats.tables import Reasons
from tuneplan.language import message

_PER_NODE: Final = "hardware.accelerators_per_node"
_NODES: Final = "hardware.num_nodes"
_GRES: Final = re.compile(r"gpu(?::([A-Za-z][\w.+-]*(?::\d+GB)?))?(?::(\d+))?(?:\(.*\))?")
_NO_KEYS: Final = Reasons()
_MEETING: Final = Reasons(
    (
        message("launch_meeting", "how the processes are started and find each other"),
        (
            *("master_addr", "master_port", "node_rank", "rdzv_id", "rdzv_backend", "standalone"),
            *("rdzv_endpoint", "rdzv_conf", "max_restarts", "monitor_interval", "start_method"),
            *("role", "log_dir", "redirects", "tee", "no_python", "module", "m", "u", "W", "X"),
            *("local_addr", "use_env", "no_ssh", "no_ssh_check", "launcher", "exclude"),
            *("launcher_args", "save_pid", "bind_cores_to_rank", "bind_core_list", "O", "OO", "B"),
            *("local_ranks_filter", "enable_each_rank_log", "force_multi", "elastic_training"),
            *(
                "run_path",
                "venv_script",
                "log_line_prefix_template",
                "c",
                "s",
                "E",
                "I",
                "ssh_port",
            ),
            *("node_rank_of", "host", "host_list", "master_port_of", "no_local_rank"),
        ),
    ),
)
_LISTED: Final = Reasons(
    (
        message("launch_listed", "how many machines it lists is not known: hardware.num_nodes"),
        ("hostfile", "deepspeed_hostfile"),
    ),
)
_SCHEDULING: Final = Reasons(
    (
        message("scheduler_only", "how the scheduler runs the job, not what it takes"),
        ("*",),
    ),
)
_ENVIRONMENT: Final = Reasons(
    (
        message("env_meeting", "how processes find each other, or which cards they see"),
        (
            *("MASTER_*", "NODE_RANK", "RANK", "LOCAL_RANK", "WORLD_SIZE", "NCCL_*", "GLOO_*"),
            *("CUDA_VISIBLE_DEVICES", "ASCEND_*", "HIP_*", "ROCR_*", "UCX_*", "FI_*", "RDMA_*"),
            *("CUDA_DEVICE_MAX_CONNECTIONS", "TORCH_NCCL_*", "NVTE_*", "SLURM_*", "MACHINE_RANK"),
            *("FORCE_TORCHRUN", "TORCH_DISTRIBUTED_*", "NODE_*", "OMPI_*", "PMI_*", "PMIX_*"),
            *("HOSTFILE", "PORT", "GPUS_PER_NODE", "NUM_GPUS", "NGPUS", "NUM_NODES"),
        ),
    ),
    (
        message("env_reports", "where things are stored, found, logged or printed"),
        (
            *("WANDB_*", "HF_*", "HUGGING*", "TRANSFORMERS_*", "MODELSCOPE_*", "USE_HF", "PATH"),
            *("PYTHON*", "LD_*", "CUDA_HOME", "CUDA_PATH", "TOKENIZERS_*", "LOGLEVEL", "LOG_*"),
            *("TRITON_*", "XDG_*", "TMPDIR", "DS_*", "ACCELERATE_LOG_LEVEL", "MLFLOW_*", "CC"),
            *("SWANLAB_*", "DISABLE_VERSION_CHECK", "USE_MODELSCOPE_HUB", "http*", "HTTP*", "no_*"),
            *("TORCH_HOME", "TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_*", "TORCH_SHOW_*", "CXX"),
            *("CUDA_LAUNCH_BLOCKING", "TORCH_LOGS", "TF_*", "BITSANDBYTES_*", "RAY_*", "NO_*"),
            *("COMET_*", "CLEARML_*", "TENSORBOARD_*", "CUDA_MODULE_LOADING", "MKL_*", "OMP_*"),
        ),
    ),
)
_MATTERS: Final = Reasons(
    (
        message(
            "env_allocator", "PyTorch's allocator is modelled with its default settings"
        ),
        ("PYTORCH_*",),
    ),
    (
        message("env_pixels", "how large images are cut has no job key"),
        ("MAX_PIXELS", "MIN_PIXELS", "VIDEO_*", "FPS*", "IMAGE_*", "MAX_NUM", "SIZE_FACTOR"),
    ),
    (message("env_kernels", "this switch of kernels has no job key"), ("NVIDIA_*", "TORCH_*",
                                                                       "XFORMERS_*", "FLASH_*")),
)  # fmt: skip


def carry_launch(carrier: Carrier, companion: Companion, *, spreads: bool = False) -> None:
    """Close ``shell.*``: processes and nodes, and what accelerate is told on its line.

    Args:
        carrier: The job so far; the program's own arguments are in it already.
        companion: Reads the file that ``accelerate launch --config_file`` names.
        spreads: Whether the program itself starts a process for each card that it sees.
    """
    shell = Keys(carrier=carrier, below="shell")
    if not shell.section:
        return
    launcher = str(shell.value("launcher") or "none")
    options = shell.under("options")
    if launcher == "accelerate":
        _accelerate(options, companion)
    else:
        _counts(options)
    _environment_counts(shell.under("environment"), launcher, spreads=spreads)
    _scheduler(shell.under("scheduler"))
    if launcher == "python" and not spreads and carrier.said(_PER_NODE) is None:
        shell.carry("launcher", (_PER_NODE, 1))
        _one_process(shell.under("environment"))
    read = message("launch_read", "which command is read")
    shell.irrelevant(("launcher", "program", "words", "also", "configuration"), read)
    options.close(irrelevant=_MEETING, not_carried=_LISTED)
    shell.under("environment").close(irrelevant=_ENVIRONMENT, not_carried=_MATTERS)
    unread = message("env_unread", "no training program that is known here reads it")
    shell.under("environment").irrelevant(shell.under("environment").section, unread)
    shell.under("scheduler").close(irrelevant=_SCHEDULING, not_carried=_NO_KEYS)


def _accelerate(keys: Keys, companion: Companion) -> None:
    """``accelerate launch``: its options go before its file."""
    if keys.flag("cpu") or keys.flag("use_megatron_lm"):
        name = "cpu" if keys.flag("cpu") else "use_megatron_lm"
        keys.refuse(name, message("acc_kind_refused", "{kind} has no formula yet", kind=name))
    carry_processes(keys)
    carry_precision(keys)
    if keys.flag("use_deepspeed"):
        carry_zero(keys, companion)
    if keys.flag("use_fsdp"):
        carry_fsdp(keys, default_version=1)
    follow_accelerate(keys, "config_file", companion)
    if keys.flag("multi_gpu") and keys.carrier.said("parallelism.strategy") is None:
        keys.carry("multi_gpu", ("parallelism.strategy", "ddp"))
    carry_degrees(keys)
    keys.close(irrelevant=IRRELEVANT, not_carried=NOT_CARRIED)


def _counts(keys: Keys) -> None:
    """torchrun, DeepSpeed and colossalai: processes of a node, nodes."""
    for name in ("nproc_per_node", "num_gpus", "nproc"):
        _count(keys, name, _PER_NODE)
    for name in ("nnodes", "num_nodes"):
        _count(keys, name, _NODES)
    include = keys.text("include")
    if include is not None:
        hosts = include.split("@")
        cards = {len(host.partition(":")[2].split(",")) for host in hosts if ":" in host}
        if len(cards) == 1:
            says = (_PER_NODE, cards.pop()), (_NODES, len(hosts))
            keys.carry("include", *(pair for pair in says if keys.carrier.said(pair[0]) is None))


def _count(keys: Keys, name: str, job_key: str) -> None:
    value = keys.value(name)
    if value is None:
        return
    if isinstance(value, str) and ":" in value:  # torchrun's 1:4 = elastic
        text = message("elastic_nodes", "{key} is a range; its upper end is taken", key=name)
        keys.notice(name, text)
        value = value.rpartition(":")[2]
    if isinstance(value, str) and not value.isdecimal():
        words = message("all_cards", "all cards of the machine: how many is not said")
        keys.not_carried((name,), words)
        return
    count = int(value) if isinstance(value, int | str) else 0
    if count < 1 or count > 100_000:
        keys.wrong(name, message("at_least_one", "{key} is at least 1", key=name))
    else:
        keys.agree(name, job_key, count)


def _environment_counts(keys: Keys, launcher: str, *, spreads: bool) -> None:
    if spreads or launcher == "none":
        _count(keys, "NPROC_PER_NODE", _PER_NODE)
        _count(keys, "NNODES", _NODES)
    visible = keys.value("CUDA_VISIBLE_DEVICES")
    if visible is None or keys.carrier.said(_PER_NODE) is not None:
        return
    cards = [card for card in str(visible).split(",") if card.strip()]
    if spreads and cards and "-1" not in cards:
        keys.carry("CUDA_VISIBLE_DEVICES", (_PER_NODE, len(cards)))


def _one_process(keys: Keys) -> None:
    """One process with several cards: the Trainer's ``nn.DataParallel``, or a script of its own."""
    visible = str(keys.value("CUDA_VISIBLE_DEVICES") or "").split(",")
    if len([card for card in visible if card.strip()]) > 1:
        text = message(
            "one_process_many_cards",
            "one process sees {count} cards: what it does with them is not known, so one card is "
            "counted; torchrun or accelerate launch start a process for each",
            count=len(visible),
        )
        keys.notice("CUDA_VISIBLE_DEVICES", text)


def _scheduler(keys: Keys) -> None:
    """Nodes and cards that Slurm is asked for, where the launcher does not say."""
    for name in ("nodes", "N"):
        if keys.carrier.said(_NODES) is None:
            _count(keys, name, _NODES)
    for name in ("gres", "gpus_per_node", "G", "gpus"):
        value = keys.value(name)
        match = _GRES.fullmatch(str(value)) if isinstance(value, str) else None
        if match is not None:
            says = []
            if match[2] and keys.carrier.said(_PER_NODE) is None and name != "gpus":
                says.append((_PER_NODE, int(match[2][:5])))
            keys.carry(name, *says)
            if match[1]:
                text = message(
                    "card_asked_for",
                    "it asks for {card}: --gpu states the card that the estimate is for",
                    card=match[1],
                )
                keys.notice(name, text)
        elif name == "gpus_per_node" and keys.carrier.said(_PER_NODE) is None:
            _count(keys, name, _PER_NODE)
