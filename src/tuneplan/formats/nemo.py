"""NeMo: hydra files and overrides of its Megatron scripts, and ``nemo llm finetune`` lines.

Source: NeMo 2.5 ``examples/nlp/language_modeling/conf`` (of the 1.x scripts) and
``nemo/collections/llm/recipes``; Megatron-Bridge 0.6 ``recipes``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from tuneplan.formats.behind_line import with_file_behind
from tuneplan.formats.carrying import Carrier
from tuneplan.formats.data_files import NO_DATA_HERE
from tuneplan.formats.foreign import Companion, ForeignDocument, Imported
from tuneplan.formats.interpolation import interpolated
from tuneplan.formats.keys import Keys
from tuneplan.formats.reading_only import read_only
from tuneplan.formats.shell_hardware import carry_launch
from tuneplan.formats.tables import Reasons
from tuneplan.formats.torchtune_models import published_model
from tuneplan.language import message

NAME: Final = "nemo"
_T: Final = "training."
_DEGREES: Final = {
    "tensor_model_parallel_size": "tensor",
    "pipeline_model_parallel_size": "pipeline",
    "context_parallel_size": "context",
    "expert_model_parallel_size": "expert",
}
_PLAIN: Final = (
    ("trainer.devices", "hardware.accelerators_per_node", "whole"),
    ("trainer.num_nodes", "hardware.num_nodes", "whole"),
    ("trainer.max_steps", f"{_T}max_steps", "whole"),
    ("trainer.max_epochs", f"{_T}num_train_epochs", "whole"),
    ("trainer.gradient_clip_val", f"{_T}max_grad_norm", "number"),
    ("model.micro_batch_size", f"{_T}per_device_train_batch_size", "whole"),
    ("model.global_batch_size", f"{_T}global_batch_size", "whole"),
    ("model.data.train_ds.micro_batch_size", f"{_T}per_device_train_batch_size", "whole"),
    ("model.data.train_ds.global_batch_size", f"{_T}global_batch_size", "whole"),
    ("data.micro_batch_size", f"{_T}per_device_train_batch_size", "whole"),
    ("data.global_batch_size", f"{_T}global_batch_size", "whole"),
    ("model.encoder_seq_length", f"{_T}max_length", "whole"),
    ("model.data.train_ds.max_seq_length", f"{_T}max_length", "whole"),
    ("data.seq_length", f"{_T}max_length", "whole"),
    ("model.peft.lora_tuning.adapter_dim", "adapter.r", "whole"),
    ("model.peft.lora_tuning.alpha", "adapter.lora_alpha", "number"),
    ("model.peft.lora_tuning.adapter_dropout", "adapter.lora_dropout", "number"),
)
_TARGETS: Final = {
    "attention_qkv": "linear_qkv",
    "attention_dense": "linear_proj",
    "mlp_fc1": "linear_fc1",
    "mlp_fc2": "linear_fc2",
}
_ADAM: Final = ("distributed_fused_adam", "fused_adam", "adam", "adamw", "mcore_distributed_optim")
_OPTIMIZERS: Final = {**dict.fromkeys(_ADAM, "adamw_apex_fused"), "sgd": "sgd"}
_IRRELEVANT: Final = Reasons(
    (
        message("nemo_running", "how the run is logged, stored, resumed or started"),
        (
            *("exp_manager", "name", "run", "defaults", "hydra", "inference", "cluster_type"),
            *("trainer.logger", "trainer.enable_checkpointing", "trainer.log_every_n_steps"),
            *("trainer.accelerator", "trainer.use_distributed_sampler", "trainer.benchmark"),
            *("trainer.enable_model_summary", "trainer.replace_sampler_ddp", "log", "resume"),
            *("trainer.max_time", "trainer.limit_test_batches", "restore_from_path", "y", "yes"),
            *("trainer.num_sanity_val_steps", "trainer.enable_progress_bar", "trainer.strategy"),
        ),
    ),
    (
        message("key_learns", "it changes what is learnt, not memory, time or cost"),
        ("model.optim", "optim", "model.seed", "model.answer_only_loss"),
    ),
)
_NOT_CARRIED: Final = Reasons(
    (message("key_nemo_model", "the published model and the framework's recipes say it"),
     ("model", "trainer", "peft", "data")),
)  # fmt: skip
KEYS: Final = (*(path for path, _, _ in _PLAIN), "factory", "peft", "model.restore_from_path")


def recognise(document: ForeignDocument) -> float:
    """``nemo llm``, or ``trainer`` beside a ``model`` with Megatron's degrees."""
    tree = document.tree
    shell, trainer, model = (tree.get(name) for name in ("shell", "trainer", "model"))
    program = str(shell.get("program", "")) if isinstance(shell, Mapping) else ""
    if PurePosixPath(program).name in ("nemo", "nemorun"):
        return 1.0
    inside = model if isinstance(model, Mapping) else {}
    degrees = any(name in inside for name in (*_DEGREES, "mcore_gpt", "encoder_seq_length"))
    if isinstance(trainer, Mapping) and degrees:
        return 0.95
    return 0.7 if isinstance(trainer, Mapping) and "restore_from_path" in inside else 0.0


def load(document: ForeignDocument, *, companion: Companion, version: str | None) -> Imported:
    """Read a hydra file, or a line with overrides.

    Raises:
        InvalidRequest: Values that NeMo would refuse, with lines and near matches.
    """
    document = interpolated(with_file_behind(document, companion))
    carrier = Carrier(document)
    keys = Keys(carrier=carrier)
    carrier.say("framework", f"{NAME}=={version}" if version else NAME)
    if carrier.value("shell.launcher") not in (None, "none", "python"):
        carry_launch(carrier, companion)
    readers = {"whole": keys.whole, "number": keys.number}
    for path, job_key, kind in _PLAIN:
        value = readers[kind](path)
        if value is not None and value > 0:
            keys.carry(path, (job_key, value))
    _model(keys)
    _method(keys)
    _layout(keys)
    _checkpointing(keys)
    keys.not_carried(("model.data", "data.dataset_root", "data"), NO_DATA_HERE)
    keys.close(irrelevant=_IRRELEVANT, not_carried=_NOT_CARRIED)
    started = message("key_launches", "it starts the job")
    keys.irrelevant((f"shell.{name}" for name in keys.under("shell").section), started)
    return carrier.finish(name=NAME, version=version, known=KEYS)


dump = read_only(NAME)


def _model(keys: Keys) -> None:
    factory = keys.text("factory")
    if factory is not None:
        keys.carry("factory", ("model", _of_factory(factory)))
        return
    for path in ("model.restore_from_path", "restore_from_path", "model.pretrained_checkpoint"):
        folder = keys.text(path)
        if folder is not None:
            name = PurePosixPath(folder).name.removesuffix(".nemo")
            keys.carry(path, ("model", name))
            return


def _of_factory(factory: str) -> str:
    """``llama31_8b`` of a recipe as the published model."""
    name = factory.rpartition(".")[2]
    spaced = re.sub(r"^(llama|qwen)(\d)(\d)_", r"\1\2_\3_", name)
    return published_model(spaced) or name.replace("_", "-")


def _method(keys: Keys) -> None:
    path = "peft" if isinstance(keys.value("peft"), str) else "model.peft.peft_scheme"
    scheme = keys.text(path)
    words = {"lora": "lora", "dora": "dora", "none": "full", "null": "full"}
    if scheme is None:
        keys.carrier.say("method", "full")
    elif scheme.lower() in words:
        keys.carry(path, ("method", words[scheme.lower()]))
    else:
        text = message("adapter_without_formula", "{name} has no formula yet", name=scheme)
        keys.refuse(path, text)
    names = keys.names("model.peft.lora_tuning.target_modules")
    if names and keys.carrier.said("method") == "lora":
        targets = [_TARGETS.get(name, name) for name in names]
        every = set(targets) & {"all"}
        says = "all-linear" if every else targets
        keys.carry("model.peft.lora_tuning.target_modules", ("adapter.target_modules", says))
    if keys.carrier.said("method") == "full":
        keys.carrier.drop("adapter")


def _layout(keys: Keys) -> None:
    for section in ("model", "trainer.strategy", "trainer"):
        for name, axis in _DEGREES.items():
            degree = keys.whole(f"{section}.{name}")
            if degree is not None:
                keys.carry(f"{section}.{name}", (f"parallelism.{axis}", max(1, degree)))
    optimizer = keys.text("model.optim.name")
    if optimizer is not None:
        says = [(f"{_T}optim", _OPTIMIZERS.get(optimizer, optimizer))]
        shared = "distributed" in optimizer
        says += [("parallelism.strategy", "zero1" if shared else "ddp")]
        keys.carry("model.optim.name", *says)
    precision = str(keys.value("trainer.precision") or "").lower()
    half = "bf16" if "bf16" in precision else "fp16" if precision.startswith("16") else None
    if half is not None:
        keys.carry("trainer.precision", (f"{_T}precision", half))
    if keys.value("model.fp8"):
        keys.carry("model.fp8", (f"{_T}precision", "fp8"))
    interval: Any = keys.value("trainer.val_check_interval")
    if isinstance(interval, int | float) and not isinstance(interval, bool) and interval > 1:
        keys.carry("trainer.val_check_interval", (f"{_T}eval_steps", int(interval)))


def _checkpointing(keys: Keys) -> None:
    path = "model.activations_checkpoint_granularity"
    kind = keys.word(path, ("full", "selective"))
    if kind is not None:
        says = True if kind == "full" else "selective"
        keys.carry(path, (f"{_T}gradient_checkpointing", says))
    detail = message("recompute_detail", "how many layers are recomputed at a time")
    keys.irrelevant(
        (f"model.activations_checkpoint_{name}" for name in ("method", "num_layers")), detail
    )
