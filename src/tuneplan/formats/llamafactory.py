"""LLaMA-Factory's YAML and JSON, its launch lines, and the files of its new ``v1`` trainer.

Sources: LLaMA-Factory 0.9.6.dev0 ``hparams/*_args.py`` and ``hparams/parser.py`` at ff6d4d12; what
is not set here is ``TrainingArguments``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

from tuneplan.formats import llamafactory_v1, llamafactory_writing
from tuneplan.formats.carrying import Carrier
from tuneplan.formats.data_files import NO_DATA_HERE, local_files
from tuneplan.formats.foreign import Companion, ExportedFile, ForeignDocument, Imported
from tuneplan.formats.keys import Keys
from tuneplan.formats.llamafactory_keys import IRRELEVANT, KNOWN, NOT_CARRIED, REFUSED
from tuneplan.formats.llamafactory_megatron import carry_megatron, is_megatron
from tuneplan.formats.llamafactory_method import carry_method
from tuneplan.formats.remote_code import say_remote_code
from tuneplan.formats.shell_hardware import carry_launch
from tuneplan.formats.trainer_arguments import carry_count, carry_trainer_arguments
from tuneplan.formats.trainer_keys import KNOWN as TRAINER_KNOWN
from tuneplan.language import message
from tuneplan.spec.stated import StatedJob

NAME: Final = "llamafactory"
_SIGNS: Final = (
    *("finetuning_type", "template", "cutoff_len", "lora_target", "lora_rank", "dataset_dir"),
    *("preprocessing_num_workers", "overwrite_cache", "plot_loss", "flash_attn", "stage"),
    *("quantization_bit", "pure_bf16", "tokenized_path", "use_unsloth", "additional_target"),
    *("disable_gradient_checkpointing", "freeze_trainable_layers", "pref_loss", "neat_packing"),
)
_PROGRAMS: Final = ("llamafactory-cli", "lmf", "train_bash.py", "llamafactory.launcher")
_STAGES: Final = {
    "pt": "pretrain",
    "sft": "sft",
    "rm": "rm",
    "ppo": "ppo",
    "dpo": "dpo",
    "kto": "kto",
}
_PREFERENCES: Final = ("sigmoid", "hinge", "ipo", "kto_pair", "orpo", "simpo")
_ATTENTION: Final = {
    "auto": "auto",
    "disabled": "eager",
    "sdpa": "sdpa",
    "fa2": "flash_attention_2",
    "fa3": "flash_attention_3",
    "flash_attention_2": "flash_attention_2",
    "flash_attention_3": "flash_attention_3",
    "eager": "eager",
    "flex_attention": "flex_attention",
}


def recognise(document: ForeignDocument) -> float:
    """Its own names for things beside a model, or its own program."""
    tree = document.tree
    shell = tree.get("shell")
    program = str(shell.get("program", "")) if isinstance(shell, Mapping) else ""
    if PurePosixPath(program).name in _PROGRAMS:
        return 1.0
    if "base_model" in tree:
        return 0.0
    signs = sum(name in tree for name in _SIGNS)
    if str(tree.get("stage")) in _STAGES and "finetuning_type" in tree:
        signs += 4
    named = "model_name_or_path" in tree
    usual = min(1.0, 0.15 * signs + 0.2 * (named and signs > 1))
    return max(llamafactory_v1.recognise(document), usual)


def load(document: ForeignDocument, *, companion: Companion, version: str | None) -> Imported:
    """Read it with everything that it points to.

    Raises:
        InvalidRequest: Values that LLaMA-Factory would refuse, or that contradict each other.
    """
    carrier = Carrier(document)
    keys = Keys(carrier=carrier)
    carrier.say("framework", f"{NAME}=={version}" if version else NAME)
    if llamafactory_v1.recognise(document):
        llamafactory_v1.carry(keys, companion)
        known: tuple[str, ...] = llamafactory_v1.KNOWN
    else:
        _carry(keys, document, companion)
        known = (*KNOWN, *TRAINER_KNOWN)
    carry_launch(carrier, companion, spreads=_spreads(document))
    return carrier.finish(name=NAME, version=version, known=known)


def _spreads(document: ForeignDocument) -> bool:
    """Whether the program starts torchrun itself (``cli.py``); scripts of old releases do not."""
    shell = document.tree.get("shell")
    program = str(shell.get("program", "")) if isinstance(shell, Mapping) else ""
    return PurePosixPath(program).name in ("llamafactory-cli", "lmf")


def dump(job: StatedJob) -> tuple[ExportedFile, ...]:
    """Write the job for LLaMA-Factory.

    Raises:
        CannotExport: LLaMA-Factory has no way to say a setting of the job.
    """
    return llamafactory_writing.dump(job)


def _carry(keys: Keys, document: ForeignDocument, companion: Companion) -> None:
    model = keys.text("model_name_or_path")
    if model is not None:
        keys.carry("model_name_or_path", ("model", model))
    say_remote_code(keys.carrier, "trust_remote_code")
    if is_megatron(keys):
        carry_megatron(keys)
    _refusals(keys)
    _objective(keys)
    carry_method(keys, model or "")
    _data(keys, document, companion)
    _switches(keys)
    _precision(keys)
    workers = keys.whole("ray_num_workers")
    if workers is not None and workers > 0:
        keys.carry("ray_num_workers", ("hardware.accelerators_per_node", workers))
    keys.close(irrelevant=IRRELEVANT, not_carried=NOT_CARRIED)
    _without_half(keys)
    carry_trainer_arguments(keys, companion)


def _refusals(keys: Keys) -> None:
    for name, text in REFUSED:
        value = keys.value(name)
        if value is not None and value is not False and value != "":
            keys.refuse(name, text)
    if not keys.flag("do_train") and keys.flag("do_predict"):
        keys.refuse("do_predict", message("only_predicts", "it predicts, it trains nothing"))
    if keys.value("export_dir") is not None:
        keys.refuse("export_dir", message("only_exports", "it merges weights, it trains nothing"))


def _objective(keys: Keys) -> None:
    stage = keys.word("stage", tuple(_STAGES))
    loss = keys.word("pref_loss", _PREFERENCES)
    if stage is None:
        return
    objective = _STAGES[stage]
    if stage == "dpo" and loss in ("orpo", "simpo"):
        keys.carry("pref_loss", ("objective", loss))
        keys.carry("stage", ("objective", loss))
    else:
        keys.carry("stage", ("objective", objective))
    keys.irrelevant(("pref_loss",), message("same_models", "the same models, another loss"))


# --- data -----------------------------------------------------------------------------------------


def _data(keys: Keys, document: ForeignDocument, companion: Companion) -> None:
    if carry_count(keys, "cutoff_len", "training.max_length") is None:
        _old_lengths(keys)
    switches = {name: keys.flag(name) for name in ("packing", "sft_packing", "neat_packing")}
    for name, on in switches.items():
        if on is not None and not (name == "neat_packing" and not on):
            keys.carry(name, ("training.packing", any(switches.values())))
    keys.irrelevant(("neat_packing",), message("not_packed_neatly", "packing alone says it"))
    _held_out(keys)
    files = _files(keys, document, companion)
    if files:
        keys.carry("dataset", ("data.path", list(files) if len(files) > 1 else files[0]))
    keys.not_carried(("dataset", "eval_dataset", "tokenized_path"), NO_DATA_HERE)
    folder = message("data_folder", "where the data sets are listed")
    keys.irrelevant(("dataset_dir", "media_dir"), folder)
    cut = message("samples_cut", "it cuts each data set to so many rows: state data.num_samples")
    keys.not_carried(("max_samples",), cut)


def _old_lengths(keys: Keys) -> None:
    """Lengths of question and answer, which releases before 0.2 had instead of one of both."""
    names = ("max_source_length", "max_target_length")
    lengths = [keys.whole(name) for name in names]
    if None not in lengths:
        for name in names:
            keys.carry(name, ("training.max_length", sum(one or 0 for one in lengths)))


def _held_out(keys: Keys) -> None:
    share = keys.number("val_size")
    if share is not None and 0 < share < 1:
        keys.carry("val_size", ("data.eval_fraction", share))
    elif share is not None and share > 0:
        text = message("counted_split", "a number of samples, not a share: data.eval_fraction")
        keys.not_carried(("val_size",), text)
    keys.irrelevant(("val_size",), message("no_split", "nothing is held out"))


def _files(keys: Keys, document: ForeignDocument, companion: Companion) -> tuple[str, ...]:
    """The files of the data sets, where ``dataset_info.json`` lists them and all are here."""
    names = keys.names("dataset") or ()
    written = keys.value("dataset_dir")
    folder = PurePosixPath(written if isinstance(written, str) else "data")
    if not names or str(folder).upper().startswith(("REMOTE", "ONLINE")):
        return ()
    info = companion(str(folder / "dataset_info.json"))
    entries = [info.tree.get(name) for name in names] if info is not None else []
    listed = [entry.get("file_name") if isinstance(entry, Mapping) else None for entry in entries]
    found = local_files([str(folder / name) for name in listed if isinstance(name, str)], document)
    return found if len(found) == len(names) else ()


# --- switches -------------------------------------------------------------------------------------


def _switches(keys: Keys) -> None:
    written = keys.value("flash_attn")
    attention = None
    if isinstance(written, bool):  # a flag until 0.6
        kernel = "flash_attention_2" if written else "auto"
        keys.carry("flash_attn", ("training.attn_implementation", kernel))
    else:
        attention = keys.word("flash_attn", tuple(_ATTENTION))
    if attention is not None:
        keys.carry("flash_attn", ("training.attn_implementation", _ATTENTION[attention]))
    _checkpointing(keys)
    liger = keys.flag("enable_liger_kernel")
    if liger is not None:
        keys.carry("enable_liger_kernel", ("training.use_liger_kernel", liger))
    if keys.flag("use_unsloth"):
        text = message(
            "unsloth_inside",
            "Unsloth inside LLaMA-Factory is not counted: plain kernels are, which hold more",
        )
        keys.notice("use_unsloth", text)
        keys.not_carried(("use_unsloth",), text)
    keys.irrelevant(("use_unsloth",), message("no_unsloth", "plain kernels"))
    if keys.flag("use_muon"):
        keys.carry("use_muon", ("training.optim", "muon"))


def _checkpointing(keys: Keys) -> None:
    disabled = keys.flag("disable_gradient_checkpointing")
    offloads = keys.flag("use_unsloth_gc")
    if disabled is not None:
        kind: bool | str = False if disabled else "offload" if offloads else True
        keys.carry("disable_gradient_checkpointing", ("training.gradient_checkpointing", kind))
    if offloads and not disabled:
        keys.carry("use_unsloth_gc", ("training.gradient_checkpointing", "offload"))
    reentrant = keys.flag("use_reentrant_gc")
    if reentrant is not None and not disabled:
        keys.carry("use_reentrant_gc", ("training.use_reentrant", reentrant))
    own = message(
        "own_checkpointing",
        "LLaMA-Factory checkpoints whatever it says, unless disable_gradient_checkpointing",
    )
    names = ("gradient_checkpointing", "gradient_checkpointing_kwargs", "use_unsloth_gc")
    keys.irrelevant((*names, "use_reentrant_gc", "disable_gradient_checkpointing"), own)


def _precision(keys: Keys) -> None:
    """``pure_bf16`` is bf16 without autocast and without fp32 copies; FP8 goes before both."""
    if keys.flag("pure_bf16"):
        pure = message("pure_bf16_counts", "pure_bf16 counts")
        keys.irrelevant(("bf16", "fp16"), pure)
        keys.carry("pure_bf16", ("training.precision", "none"), ("training.dtype", "bfloat16"))
    if keys.flag("fp8"):
        keys.carry("fp8", ("training.precision", "fp8"))
        keys.irrelevant(("bf16", "fp16"), message("fp8_counts", "fp8 counts"))
    details = message("fp8_details", "off, or how FP8 products are made")
    keys.irrelevant(
        ("fp8", "fp8_backend", "fp8_enable_fsdp_float8_all_gather", "pure_bf16"), details
    )


def _without_half(keys: Keys) -> None:
    """Without bf16, fp16 or pure_bf16, what is trained is fp32 and nothing runs in half.

    ``bf16: false`` asks for it as an absent key does: ``model/adapter.py init_adapter`` casts what
    is trained to fp32 in both, and ``pure_bf16`` alone keeps it in half. Nothing has figures for an
    adapter without autocast; with it the same bytes are held for the adapter and its states.
    """
    if keys.carrier.said("training.precision") is not None or keys.flag("fp16"):
        return
    off = keys.flag("bf16")
    if off or (off is None and not keys.flag("do_train")):
        return
    if keys.carrier.said("method") == "full":
        keys.carrier.say("training.precision", "fp32")
        text = message(
            "no_half_precision",
            "neither bf16 nor fp16 is set: LLaMA-Factory then keeps what it trains in fp32 and "
            "runs without autocast",
        )
    else:
        half = "fp16" if keys.carrier.said("training.dtype") == "float16" else "bf16"
        keys.carrier.say("training.precision", half)
        text = message(
            "no_half_for_adapter",
            "neither bf16 nor fp16 is set: LLaMA-Factory then keeps what it trains in fp32 and "
            "runs without autocast; it is counted with autocast to {half}, the nearest that has "
            "figures",
            half=half,
        )
    keys.irrelevant(("bf16", "fp16"), message("half_is_off", "off: nothing runs under autocast"))
    keys.notice("finetuning_type" if off is None else "bf16", text)
