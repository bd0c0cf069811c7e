"""LitGPT's YAML, and the arguments of a ``litgpt`` line: one script's arguments, with sections.

Source: litgpt 0.5.13 ``litgpt/finetune/lora.py``, ``finetune/full.py``, ``pretrain.py`` and
``args.py`` at 26857050; releases before 0.3 had the folders under ``io``. Whether a file is for
``finetune_lora`` or ``finetune_full`` is said on the command line; its ``lora_*`` keys tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

from tuneplan.formats import typed_values as typed
from tuneplan.formats.behind_line import with_file_behind
from tuneplan.formats.carrying import Carrier
from tuneplan.formats.data_files import NO_DATA_HERE, local_files
from tuneplan.formats.foreign import Companion, ForeignDocument, Imported
from tuneplan.formats.litgpt_keys import IRRELEVANT, NOT_CARRIED
from tuneplan.formats.litgpt_training import carry_training
from tuneplan.formats.reading_only import read_only
from tuneplan.formats.tables import close
from tuneplan.language import message

NAME: Final = "litgpt"
_PARTS: Final = ("query", "key", "value", "projection", "mlp", "head")
_TRUE_UNLESS_SAID: Final = ("query", "value")
_QUANTIZED: Final = {
    "bnb.nf4": (4, "nf4", False),
    "bnb.nf4-dq": (4, "nf4", True),
    "bnb.fp4": (4, "fp4", False),
    "bnb.fp4-dq": (4, "fp4", True),
    "bnb.int8-training": (8, "int8", None),
}
_SCRIPTS: Final = ("finetune", "finetune_lora", "finetune_full", "finetune_adapter", "pretrain")
_WITHOUT_FORMULA: Final = ("adapter", "adapter_v2")
KEYS: Final = (
    *("checkpoint_dir", "io.checkpoint_dir", "model_name", "precision", "quantize", "devices"),
    *("num_nodes", "lora_r", "lora_alpha", "lora_dropout", *(f"lora_{part}" for part in _PARTS)),
    *("train.global_batch_size", "train.micro_batch_size", "train.epochs", "train.max_steps"),
    *("train.max_seq_length", "train.max_norm", "train.save_interval", "train.max_tokens"),
    *("eval.interval", "optimizer", "optimizer.class_path", "data", "data.class_path"),
    *("data.init_args.val_split_fraction", "data.init_args.json_path", "lr_warmup_steps"),
    *IRRELEVANT.names,
    *NOT_CARRIED.names,
)


def recognise(document: ForeignDocument) -> float:
    """A ``litgpt`` line, or a file with a checkpoint and LitGPT's ``train`` section."""
    tree = document.tree
    if document.form == "shell":
        return 1.0 if _script(tree) is not None else 0.0
    train = tree.get("train")
    if not isinstance(train, Mapping) or not {"micro_batch_size", "global_batch_size"} & set(train):
        return 0.0
    named = {"checkpoint_dir", "model_name", "io"} & set(tree)
    return 1.0 if named else 0.6


def load(document: ForeignDocument, *, companion: Companion, version: str | None) -> Imported:
    """Read a LitGPT file, or the arguments of a ``litgpt`` line and the file behind ``--config``.

    Raises:
        InvalidRequest: Values that LitGPT would refuse, with lines and near matches.
    """
    document = with_file_behind(document, companion)
    carrier = Carrier(document)
    carrier.say("framework", f"{NAME}=={version}" if version else NAME)
    _model(carrier)
    _method(carrier)
    carry_training(carrier)
    _data(carrier, document)
    irrelevant = message("key_launches", "it starts the job")
    carrier.irrelevant(("shell", "config"), irrelevant)
    close(carrier, document.tree, irrelevant=IRRELEVANT, not_carried=NOT_CARRIED)
    return carrier.finish(name=NAME, version=version, known=KEYS)


dump = read_only(NAME)


def _script(tree: Mapping[str, object]) -> str | None:
    """``finetune_lora`` of a ``litgpt finetune_lora ...`` line, ``lora`` of ``python lora.py``."""
    shell = tree.get("shell")
    if not isinstance(shell, Mapping):
        return None
    program = PurePosixPath(str(shell.get("program", ""))).name
    words = shell.get("words")
    first = [str(word) for word in words] if isinstance(words, list) else []
    if program == "litgpt":
        return "_".join(first[:2]) if first[:1] == ["finetune"] else next(iter(first), "finetune")
    folder = PurePosixPath(str(shell.get("program", ""))).parent.name
    known = program in ("lora.py", "full.py", "adapter.py", "adapter_v2.py")
    return f"finetune_{program.removesuffix('.py')}" if known and folder == "finetune" else None


def _model(carrier: Carrier) -> None:
    for path in ("checkpoint_dir", "io.checkpoint_dir", "model_name", "initial_checkpoint_dir"):
        folder = typed.text(carrier, path)
        if folder is not None:
            parts = [part for part in PurePosixPath(folder).parts if part not in ("/", "..", ".")]
            parts = parts[1:] if parts[:1] == ["checkpoints"] else parts
            carrier.carry(path, ("model", "/".join(parts[-2:]) or folder))
            break
    else:
        words = carrier.value("shell.words")
        named = [w for w in words if isinstance(w, str) and "/" in w] if words else []
        if named:
            carrier.carry("shell.words", ("model", "/".join(named[0].strip("/").split("/")[-2:])))
    same = message("model_said", "another key names the model")
    carrier.irrelevant(("initial_checkpoint_dir", "tokenizer_dir"), same)


def _method(carrier: Carrier) -> None:
    script = _script(carrier.document.tree) or ""
    if script.removeprefix("finetune_") in _WITHOUT_FORMULA:
        name = script.removeprefix("finetune_")
        text = message("adapter_without_formula", "{name} has no formula yet", name=name)
        carrier.refuse("shell", text)
    pretrains = script == "pretrain" or carrier.holds("model_name")
    if pretrains:
        carrier.say("objective", "pretrain")
    quantize = typed.word(carrier, "quantize", tuple(_QUANTIZED))
    keys = carrier.document.tree
    adapts = any(key.startswith("lora_") for key in keys) or script.endswith("lora")
    if quantize is not None:
        bits, kind, double = _QUANTIZED[quantize]
        says = [("method", "qlora"), ("quantization.bits", bits), ("quantization.type", kind)]
        says += [("quantization.double_quant", double)] if double is not None else []
        carrier.carry("quantize", *says)
    elif adapts or script == "finetune":
        carrier.say("method", "lora")
    else:
        carrier.say("method", "full")
    if carrier.said("method") != "full":
        _adapter(carrier)


def _adapter(carrier: Carrier) -> None:
    for path, job_key, read in (
        ("lora_r", "adapter.r", typed.whole),
        ("lora_alpha", "adapter.lora_alpha", typed.number),
        ("lora_dropout", "adapter.lora_dropout", typed.number),
    ):
        value = read(carrier, path)
        if value is not None:
            carrier.carry(path, (job_key, value), ("method", carrier.said("method")))
    stated = {part: typed.flag(carrier, f"lora_{part}") for part in _PARTS}
    if all(value is None for value in stated.values()):
        return
    targets = [
        part
        for part, value in stated.items()
        if (part in _TRUE_UNLESS_SAID if value is None else value)
    ]
    for part, value in stated.items():
        if value is not None:
            carrier.carry(f"lora_{part}", ("adapter.target_modules", targets))
    if not targets:
        text = message("no_part_adapted", "no part of the model gets an adapter")
        carrier.wrong("lora_query", text)


def _data(carrier: Carrier, document: ForeignDocument) -> None:
    share = typed.number(carrier, "data.init_args.val_split_fraction")
    if share is not None and 0 <= share < 1:
        carrier.carry("data.init_args.val_split_fraction", ("data.eval_fraction", share))
    named = [
        value
        for path in ("data.init_args.json_path", "data.json_path", "data.init_args.data_path")
        if isinstance(value := carrier.value(path), str)
    ]
    files = local_files(named, document)
    for path in ("data.init_args.json_path", "data.json_path"):
        if files and carrier.holds(path):
            carrier.carry(path, ("data.path", list(files)))
    if carrier.value("data") is not None:
        if isinstance(carrier.value("data"), Mapping):
            carrier.not_carried(("data.class_path",), NO_DATA_HERE)
        else:
            carrier.not_carried(("data",), NO_DATA_HERE)
