"""ms-swift: ``swift sft`` and ``swift rlhf`` lines of every release, and its YAML and JSON.

Source: ms-swift 4.6.0.dev0 ``swift/cli/main.py``, ``swift/arguments/`` at 3602360a; 3.0 to 3.12
(``--train_type``); 2.6.1 ``swift/llm/utils/argument.py`` (``--sft_type``, ``--model_type``,
``--model_id_or_path``).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from tuneplan.formats import ms_swift_writing
from tuneplan.formats.behind_line import with_file_behind
from tuneplan.formats.carrying import Carrier
from tuneplan.formats.data_files import NO_DATA_HERE, local_files
from tuneplan.formats.foreign import Companion, ExportedFile, ForeignDocument, Imported
from tuneplan.formats.keys import Keys
from tuneplan.formats.ms_swift_keys import IRRELEVANT, NOT_CARRIED
from tuneplan.formats.ms_swift_models import published_model
from tuneplan.formats.ms_swift_training import carry_training
from tuneplan.formats.ms_swift_tuner import carry_tuner
from tuneplan.formats.shell_hardware import carry_launch
from tuneplan.formats.trainer_arguments import carry_trainer_arguments
from tuneplan.formats.trainer_keys import KNOWN as TRAINER_KEYS
from tuneplan.language import message
from tuneplan.spec.stated import StatedJob

NAME: Final = "ms-swift"
LAST_OF_2: Final = "2.6.1"
_COMMANDS: Final = ("sft", "pt", "rlhf", "dpo", "orpo", "simpo", "kto")
_SCRIPTS: Final = (
    "llm_sft.py",
    "llm_pt.py",
    "llm_rlhf.py",
    "llm_dpo.py",
    "rlhf.py",
    "sft.py",
    "pt.py",
)
# Arguments that no release from 3.0 on has.
_OF_2: Final = (
    *("sft_type", "model_id_or_path", "template_type", "batch_size", "quantization_bit"),
    *("use_flash_attn", "custom_train_dataset_path", "custom_val_dataset_path", "lora_dropout_p"),
    *("lora_target_modules", "lora_modules_to_save", "dataset_test_ratio", "model_cache_dir"),
    *("self_cognition_sample", "preprocess_num_proc", "check_dataset_strategy", "eval_batch_size"),
    *("train_dataset_sample", "deepspeed_config_path", "bnb_4bit_comp_dtype", "use_loss_scale"),
)
_OWN: Final = (
    *("tuner_type", "train_type", "split_dataset_ratio", "quant_bits", "target_modules"),
    *("truncation_strategy", "freeze_vit", "packing_length", "attn_impl", "lora_rank"),
    *("rlhf_type", "torch_dtype", "loss_scale", "lazy_tokenize", "tuner_backend"),
)
_OBJECTIVES: Final = {
    "dpo": "dpo",
    "orpo": "orpo",
    "simpo": "simpo",
    "kto": "kto",
    "cpo": "simpo",  # pairs and no reference model, as SimPO has it
    "rm": "rm",
    "ppo": "ppo",
    "grpo": "grpo",
}
KEYS: Final = (
    *("model", "model_type", "model_id_or_path", "dtype", "dataset", "max_length", "packing"),
    *("padding_free", "sequence_parallel_size", "lora_alpha", "lora_dropout", "use_rslora"),
    *("use_dora", "target_regex", "modules_to_save", "quant_method", "bnb_4bit_quant_type"),
    *("bnb_4bit_use_double_quant", "task_type", "teacher_model", "use_galore", "use_liger"),
    *("lisa_activated_layers", "freeze_parameters_ratio", "reward_model", "ENV", "seed"),
    *_OF_2,
    *_OWN,
    *IRRELEVANT.names,
    *NOT_CARRIED.names,
    *TRAINER_KEYS,
)


def recognise(document: ForeignDocument) -> float:
    """A ``swift`` line, or a file of its arguments."""
    tree = document.tree
    if document.form == "shell":
        return 1.0 if _command(tree) is not None else 0.0
    kinds = sum(key in tree for key in ("tuner_type", "train_type", "sft_type", "rlhf_type"))
    others = sum(key in tree for key in (*_OWN, *_OF_2))
    named = "model" in tree or "model_id_or_path" in tree or "model_type" in tree
    return min(1.0, 0.5 * kinds + 0.1 * others) if named and (kinds or others > 3) else 0.0


def load(document: ForeignDocument, *, companion: Companion, version: str | None) -> Imported:
    """Read a ``swift`` line, or a file of its arguments.

    Raises:
        InvalidRequest: Values that ms-swift would refuse, with lines and near matches.
    """
    document = with_file_behind(document, companion)
    carrier = Carrier(document)
    keys = Keys(carrier=carrier)
    command = _command(document.tree)
    if command is not None and command not in _COMMANDS:
        return _nothing_trained(keys, command, version)
    version = _version(keys, version)
    _objective(keys, document)
    _model(keys)
    carry_tuner(keys)
    carry_training(keys, companion)
    _data(keys, document)
    _several_cards(keys)
    carry_trainer_arguments(keys, companion, shards=False)
    carry_launch(carrier, companion)
    keys.close(irrelevant=IRRELEVANT, not_carried=NOT_CARRIED)
    keys.irrelevant(("ENV",), message("env_of_file", "variables of the environment"))
    return carrier.finish(name=NAME, version=version, known=KEYS)


def dump(job: StatedJob) -> tuple[ExportedFile, ...]:
    """Write the job for ms-swift.

    Raises:
        CannotExport: ms-swift has no way to say a setting of the job.
    """
    return ms_swift_writing.dump(job)


def _nothing_trained(keys: Keys, command: str, version: str | None) -> Imported:
    text = message("command_trains_nothing", "swift {command} trains nothing", command=command)
    keys.refuse("shell.words" if keys.holds("shell.words") else "shell", text)
    keys.irrelevant((*keys.section, *(f"shell.{n}" for n in keys.under("shell").section)), text)
    return keys.carrier.finish(name=NAME, version=version, known=KEYS)


def _command(tree: Mapping[str, Any]) -> str | None:
    """``sft`` of a ``swift sft`` line, of ``swift/cli/sft.py``, of ``llm_sft.py``."""
    shell = tree.get("shell")
    if not isinstance(shell, Mapping):
        return None
    program = str(shell.get("program", ""))
    words = shell.get("words")
    first = str(words[0]) if isinstance(words, list) and words else ""
    name = PurePosixPath(program).name
    if name == "swift":
        return first
    if program.startswith("swift.cli.") and program.rpartition(".")[2] in _COMMANDS:
        return program.rpartition(".")[2]
    inside = "swift" in PurePosixPath(program).parts
    if name in _SCRIPTS and (name.startswith("llm_") or inside):
        return name.removesuffix(".py").removeprefix("llm_")
    return None


def _version(keys: Keys, stated: str | None) -> str | None:
    """The version as stated; the last of 2 where its own arguments stand on the line."""
    old = [name for name in _OF_2 if keys.holds(name)]
    version = stated
    if stated is None and old:
        version = LAST_OF_2
        text = message(
            "version_by_argument",
            "{names}: arguments of ms-swift before 3, so that {version}, the last of them, is "
            "assumed",
            names=", ".join(old[:3]),
            version=version,
        )
        keys.notice(old[0], text)
    keys.carrier.say("framework", f"{NAME}=={version}" if version else NAME)
    return version


def _objective(keys: Keys, document: ForeignDocument) -> None:
    command = _command(document.tree) or ""
    if command == "pt":
        keys.carrier.say("objective", "pretrain")
    elif command in _OBJECTIVES:
        keys.carrier.say("objective", _OBJECTIVES[command])
    kind = keys.word("rlhf_type", (*_OBJECTIVES, "gkd"))
    if kind == "gkd" or keys.value("teacher_model") is not None:
        text = message(
            "distillation_without_formula", "a teacher model beside the trained one has no formula"
        )
        keys.refuse("rlhf_type" if kind == "gkd" else "teacher_model", text)
    elif kind is not None:
        keys.carry("rlhf_type", ("objective", _OBJECTIVES[kind]))
    elif command == "rlhf":
        keys.carrier.say("objective", "dpo")
    keys.not_carried(("rlhf_type",), message("with_teacher", "beside a teacher model"))
    belongs = message("belongs_to_refused", "it belongs to what is refused by name")
    keys.not_carried((n for n in keys.section if n.startswith("teacher_")), belongs)
    task = keys.text("task_type")
    if task is not None and task not in ("causal_lm", "CAUSAL_LM"):
        text = message("task_without_formula", "training for {task} has no formula yet", task=task)
        keys.refuse("task_type", text)
    keys.irrelevant(("task_type",), message("task_language", "a language model, as counted"))


def _model(keys: Keys) -> None:
    named = keys.first("model", "model_id_or_path")
    kind = keys.text("model_type")
    model = keys.text(named) if named is not None else None
    if named is not None and model is not None:
        parts = [part for part in PurePosixPath(model).parts if part not in ("/", "~", ".", "..")]
        keys.carry(named, ("model", model if len(parts) < 3 else parts[-1]))
    elif kind is not None:
        keys.carry("model_type", ("model", published_model(kind)))
    keys.irrelevant(("model_type",), message("model_said", "another key names the model"))


def _data(keys: Keys, document: ForeignDocument) -> None:
    for name in ("dataset", "custom_train_dataset_path"):
        value = keys.value(name)
        if value is None:
            continue
        rows = value if isinstance(value, list) else [value]
        named = [part for row in rows if isinstance(row, str) for part in row.split(",")]
        files = local_files((part.partition("#")[0] for part in named), document)
        if files:
            keys.carry(name, ("data.path", list(files)))
        else:
            keys.not_carried((name,), NO_DATA_HERE)
    for name in ("split_dataset_ratio", "dataset_test_ratio"):
        share = keys.number(name)
        if share is not None and 0 <= share < 1:
            keys.carry(name, ("data.eval_fraction", share))
        elif share is not None:
            keys.wrong(name, message("share_below_one", "{key} is a share below 1", key=name))


def _several_cards(keys: Keys) -> None:
    """Without ``NPROC_PER_NODE`` one process spreads the layers over the cards that it sees."""
    for below in ("shell.environment", "ENV"):
        environment = keys.under(below)
        processes = environment.value("NPROC_PER_NODE")
        if processes is not None and below == "ENV":
            count = environment.whole("NPROC_PER_NODE")
            if count is not None and count > 0:
                environment.carry("NPROC_PER_NODE", ("hardware.accelerators_per_node", count))
        visible = environment.value("CUDA_VISIBLE_DEVICES")
        cards = [card for card in str(visible).split(",") if card.strip()] if visible else []
        launcher = keys.value("shell.launcher") or "none"
        alone = processes is None and not environment.holds("NPROC_PER_NODE")
        if launcher in ("none", "python") and alone and len(cards) > 1:
            environment.carry(
                "CUDA_VISIBLE_DEVICES",
                ("hardware.accelerators_per_node", len(cards)),
                ("parallelism.strategy", "device_map"),
            )
        started = processes or keys.value("shell.options.nproc_per_node")
        _refuse_spreading(environment, str(started or ""), len(cards))


def _refuse_spreading(environment: Keys, processes: str, cards: int) -> None:
    """Fewer processes than cards, so that each spreads its layers; TorchAcc's own program."""
    if processes.isdigit() and 0 < int(processes) < cards:
        text = message(
            "layers_over_cards",
            "each of {processes} processes spreads the layers over several of {cards} cards "
            "(device_map), which has no formula yet",
            processes=processes,
            cards=cards,
        )
        environment.refuse("CUDA_VISIBLE_DEVICES", text)
    if str(environment.value("USE_TORCHACC") or "0") not in ("0", "false"):
        text = message("torchacc", "training by TorchAcc has no formula yet")
        environment.refuse("USE_TORCHACC", text)
