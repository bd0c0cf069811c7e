"""torchtune's YAML: sections that name a Python object each (``_component_``) and its arguments.

Source: torchtune 0.7.0 ``torchtune/config/`` and ``recipes/*.py`` at bd2a0fc7. The recipe itself is
named on the command line, not in the file; what it is follows from the components.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from tuneplan.formats import torchtune_writing
from tuneplan.formats import typed_values as typed
from tuneplan.formats.behind_line import with_file_behind
from tuneplan.formats.carrying import Carrier
from tuneplan.formats.data_files import NO_DATA_HERE, local_files
from tuneplan.formats.foreign import Companion, ExportedFile, ForeignDocument, Imported
from tuneplan.formats.interpolation import interpolated
from tuneplan.formats.shell_hardware import carry_launch
from tuneplan.formats.tables import close
from tuneplan.formats.torchtune_keys import (
    IRRELEVANT,
    NOT_CARRIED,
    OF_DISTILLATION,
    OF_REINFORCEMENT,
)
from tuneplan.formats.torchtune_models import builder_of, method_of, published_model
from tuneplan.formats.torchtune_training import carry_training
from tuneplan.language import message, phrase
from tuneplan.spec.stated import StatedJob

NAME: Final = "torchtune"
_OF_DISTRIBUTED: Final = (
    *("custom_sharded_layers", "fsdp_cpu_offload", "fsdp_reshard_after_forward"),
    *("data_parallel_shard_dim", "data_parallel_replicate_dim", "tensor_parallel_dim"),
    *("memory_efficient_fsdp_wrap", "fsdp_sharding_strategy"),
)
KEYS: Final = (
    *("model", "model._component_", "tokenizer", "tokenizer._component_", "tokenizer.max_seq_len"),
    *("model.lora_rank", "model.lora_attn_modules", "model.apply_lora_to_mlp", "optimizer.fused"),
    *("model.apply_lora_to_output", "model.lora_dropout", "model.quantize_base", "model.use_dora"),
    *("dataset._component_", "dataset.source", "dataset.packed", "dataset.split", "batch_size"),
    *("optimizer._component_", "loss._component_", "epochs", "max_steps_per_epoch", "compile"),
    *("gradient_accumulation_steps", "clip_grad_norm", "dtype", "optimizer_in_bwd"),
    *("enable_activation_checkpointing", "enable_activation_offloading", "fsdp_cpu_offload"),
    *("tensor_parallel_dim", "data_parallel_shard_dim", "data_parallel_replicate_dim"),
    *("context_parallel_dim", "batch_size_val", "run_val_every_n_steps", "save_every_n_steps"),
    *("checkpointer.checkpoint_dir", "checkpointer.keep_last_n_checkpoints", "ac_mode"),
    *(name for name in IRRELEVANT.names if not name.startswith("cfg.")),
    *NOT_CARRIED.names,
    *OF_REINFORCEMENT,
    *OF_DISTILLATION,
)
_REWARDED: Final = (
    ("GRPO", "grpo"),
    ("PPO", "ppo"),
    ("SimPO", "simpo"),
    ("DPO", "dpo"),
    ("RSO", "dpo"),
)
# llama3_1/8B_qlora_single_device: family, size, method
_SHIPPED: Final = re.compile(r"(\w+)/([\d.]+B|mini|medium)_(full|lora|qlora)\w*")
_PERCENT: Final = re.compile(r"\w*\[\s*(\d{1,2})%\s*:\s*\]")


def recognise(document: ForeignDocument) -> float:
    """``_component_`` keys, most surely with names of torchtune behind them; a ``tune run``."""
    if document.form == "shell":
        return 1.0 if _recipe(document.tree) is not None else 0.0
    components = [
        value["_component_"]
        for value in document.tree.values()
        if isinstance(value, Mapping) and isinstance(value.get("_component_"), str)
    ]
    if any(name.startswith("torchtune.") for name in components):
        return 1.0
    return 0.7 if components else 0.0


def load(document: ForeignDocument, *, companion: Companion, version: str | None) -> Imported:
    """Read a torchtune file.

    Raises:
        InvalidRequest: Values that torchtune would refuse, with lines and near matches.
    """
    recipe = _recipe(document.tree)
    document = interpolated(with_file_behind(document, companion))
    carrier = Carrier(document)
    carrier.say("framework", f"{NAME}=={version}" if version else NAME)
    _objective(carrier)
    _model(carrier)
    if recipe is not None:
        _launched(carrier, companion, recipe)
    carry_training(carrier, version)
    _data(carrier, document)
    if carrier.said("objective") in ("ppo", "grpo"):
        text = message("key_of_refused_objective", "it belongs to an objective without a formula")
        carrier.not_carried(OF_REINFORCEMENT, text)
    _distributed_without_count(carrier, document.tree)
    close(carrier, document.tree, irrelevant=IRRELEVANT, not_carried=NOT_CARRIED)
    return carrier.finish(name=NAME, version=version, known=KEYS)


def _distributed_without_count(carrier: Carrier, tree: Mapping[str, Any]) -> None:
    """Keys of the distributed recipes are there, and how many cards it runs on is said elsewhere.

    Source: torchtune 0.7 ``recipes/*_distributed.py``: only these read the keys.
    """
    if carrier.said("hardware.accelerators_per_node") is not None:
        return
    key = next((name for name in _OF_DISTRIBUTED if tree.get(name) not in (None, -1)), None)
    if key is not None:
        text = message(
            "distributed_without_count",
            "{key} is a key of the distributed recipes, and how many cards they run on is said "
            "when they start: --gpu NAME:COUNT says it here, else one card is assumed",
            key=key,
        )
        carrier.notice(key, text)


def _recipe(tree: Mapping[str, Any]) -> str | None:
    """``lora_finetune_distributed`` of a ``tune run`` line."""
    shell = tree.get("shell")
    words = shell.get("words") if isinstance(shell, Mapping) else None
    if not isinstance(shell, Mapping) or PurePosixPath(str(shell.get("program"))).name != "tune":
        return None
    named = [str(word) for word in words if word != "run"] if isinstance(words, list) else []
    return next(iter(named), "")


def _launched(carrier: Carrier, companion: Companion, recipe: str) -> None:
    """What the line says: the recipe, processes, and a configuration that comes with torchtune."""
    if "distributed" in recipe and carrier.said("parallelism.strategy") is None:
        carrier.say("parallelism.strategy", "fsdp2")
    if recipe.startswith(("knowledge_distillation", "ppo")):
        text = message("recipe_without_formula", "the recipe {name} has no formula", name=recipe)
        carrier.refuse("shell.words", text)
    named = typed.text(carrier, "config")
    match = _SHIPPED.fullmatch(named) if named else None
    if match is not None and carrier.said("model") is None:
        kind = {"full": "", "lora": "lora_", "qlora": "qlora_"}[match[3]]
        builder = f"{kind}{match[1]}_{match[2].lower().replace('.', '_')}"
        model = published_model(builder)
        if model is not None:
            carrier.carry("config", ("model", model), ("method", method_of(builder)))
            text = message(
                "shipped_config",
                "{name} comes with torchtune and is not here: its model and method count, and the "
                "most frequent values of such files",
                name=named,
            )
            carrier.notice("config", text)
    carrier.irrelevant(("config",), message("key_launches", "it starts the job"))
    if "single_device" in recipe:
        carrier.say("hardware.accelerators_per_node", 1)
    carry_launch(carrier, companion)


def dump(job: StatedJob) -> tuple[ExportedFile, ...]:
    """Write the job for torchtune.

    Raises:
        CannotExport: torchtune has no way to say a setting of the job.
    """
    return torchtune_writing.dump(job)


def _objective(carrier: Carrier) -> None:
    for path in ("loss._component_", "training.loss._component_"):
        component = typed.text(carrier, path) or ""
        objective = next((name for word, name in _REWARDED if word in component), None)
        if objective is not None:
            carrier.carry(path, ("objective", objective))
    if any(carrier.value(path) for path in ("teacher_model", "kd_loss")):
        path = "teacher_model" if carrier.value("teacher_model") else "kd_loss"
        text = message(
            "distillation_without_formula", "a teacher model beside the trained one has no formula"
        )
        carrier.refuse(path, text)
        carrier.not_carried(
            OF_DISTILLATION, message("belongs_to_refused", "it belongs to what is refused by name")
        )
    trains = ("optimizer", "loss", "training", "epochs", "batch_size")
    if not any(carrier.value(path) for path in trains) and not carrier.holds("shell"):
        text = message("nothing_trained", "no optimizer, no loss: nothing is trained here")
        carrier.refuse(next(iter(carrier.document.tree), "model"), text)


def _model(carrier: Carrier) -> None:
    section = "model" if carrier.value("model._component_") else "policy_model"
    path = f"{section}._component_"
    component = typed.text(carrier, path)
    builder = builder_of(component) if component else None
    model = published_model(builder) if builder else None
    if model is not None:
        carrier.carry(path, ("model", model))
    else:
        _model_by_folder(carrier, path, component)
    if builder is not None:
        _method(carrier, section, path, builder)


def _model_by_folder(carrier: Carrier, path: str, component: str | None) -> None:
    """A builder that takes sizes, or one of the user's own: the checkpoint's folder names it."""
    for folder_path in (
        *("checkpointer.checkpoint_dir", "training.checkpointer.checkpoint_dir"),
        "base_model_path",
    ):
        folder = typed.text(carrier, folder_path)
        name = PurePosixPath(folder.rstrip("/")).name if folder else ""
        if name:
            carrier.carry(folder_path, ("model", name))
            text = message(
                "model_by_folder",
                "{component} names no published model; the folder of its checkpoint does: {name}",
                component=component or phrase("the file"),
                name=name,
            )
            carrier.notice(folder_path, text)
            break
    text = message("builder_unknown", "this builder is not known here, and its code is not run")
    carrier.not_carried((path,), text)


def _method(carrier: Carrier, section: str, path: str, builder: str) -> None:
    method = method_of(builder)
    if method == "lora" and typed.flag(carrier, f"{section}.quantize_base"):
        method = "qlora"
        carrier.carry(f"{section}.quantize_base", ("method", method))
    if method == "lora" and typed.flag(carrier, f"{section}.use_dora"):
        method = "dora"
        carrier.carry(f"{section}.use_dora", ("method", method))
    carrier.carry(path, ("method", method))
    if "reward" in builder or "classifier" in builder:
        carrier.carry(path, ("objective", "rm"))
    says = message("said_by_builder", "the builder's name says it")
    carrier.irrelevant((f"{section}.quantize_base", f"{section}.use_dora"), says)
    if method != "full":
        _adapter(carrier, section)


def _adapter(carrier: Carrier, section: str) -> None:
    for path, job_key, read in (
        ("lora_rank", "adapter.r", typed.whole),
        ("lora_alpha", "adapter.lora_alpha", typed.number),
        ("lora_dropout", "adapter.lora_dropout", typed.number),
    ):
        value = read(carrier, f"{section}.{path}")
        if value is not None:
            carrier.carry(f"{section}.{path}", (job_key, value))
    attention = typed.names(carrier, f"{section}.lora_attn_modules")
    if attention is None:
        return
    known = ("q_proj", "k_proj", "v_proj", "output_proj")
    unknown = [name for name in attention if name not in known]
    if unknown:
        typed.not_one_of(carrier, f"{section}.lora_attn_modules", unknown[0], known)
        return
    mlp, output = (
        typed.flag(carrier, f"{section}.apply_lora_to_{part}") for part in ("mlp", "output")
    )
    targets = [*attention, *(["mlp"] if mlp else []), *(["lm_head"] if output else [])]
    for name in ("lora_attn_modules", "apply_lora_to_mlp", "apply_lora_to_output"):
        if carrier.value(f"{section}.{name}") is not None:
            carrier.carry(f"{section}.{name}", ("adapter.target_modules", targets))


def _data(carrier: Carrier, document: ForeignDocument) -> None:
    files = local_files(_data_names(carrier.value("dataset")), document)
    if files:
        carrier.say("data.path", list(files))
        path = "dataset" if isinstance(carrier.value("dataset"), list) else "dataset.data_files"
        carrier.carry(path, ("data.path", list(files)))
    carrier.not_carried(
        (
            *("dataset._component_", "dataset.source", "dataset.subset", "dataset.name"),
            *("dataset.data_files", "dataset.data_dir", "dataset.split", "dataset.image_dir"),
            *("dataset.partition", "dataset.images_dir", "datasets", "dataset.max_rows"),
        ),
        NO_DATA_HERE,
    )
    held = carrier.value("dataset_val.split")
    match = _PERCENT.fullmatch(held.strip()) if isinstance(held, str) else None
    if match is not None and carrier.value("run_val_every_n_steps"):
        carrier.carry("dataset_val.split", ("data.eval_fraction", (100 - int(match[1])) / 100))
    if isinstance(carrier.value("dataset"), list):
        carrier.not_carried(("dataset",), NO_DATA_HERE)


def _data_names(stated: Any) -> list[str]:
    rows = stated if isinstance(stated, list) else [stated]
    found: list[str] = []
    for row in rows:
        if isinstance(row, Mapping):
            held = row.get("data_files")
            found.extend(
                name
                for name in (held if isinstance(held, list) else [held])
                if isinstance(name, str)
            )
    return found
