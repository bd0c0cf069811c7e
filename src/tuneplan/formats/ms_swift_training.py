"""ms-swift: lengths, batches, types, kernels and sharding beyond ``TrainingArguments``.

Source: ms-swift 4.6.0.dev0 ``swift/arguments/``, ``swift/trainers/arguments.py`` and
``swift/config/`` at 3602360a; 2.6.1 ``swift/llm/utils/argument.py``.
"""

from __future__ import annotations

import re
from typing import Final

from tuneplan.formats.foreign import Companion
from tuneplan.formats.fsdp import carry_fsdp
from tuneplan.formats.keys import Keys
from tuneplan.formats.trainer_arguments import carry_sharding
from tuneplan.language import message

_T: Final = "training."
_DTYPES: Final = {
    **dict.fromkeys(("bfloat16", "bf16"), "bfloat16"),
    **dict.fromkeys(("float16", "fp16"), "float16"),
    **dict.fromkeys(("float32", "fp32"), "float32"),
}
_ATTENTION: Final = {
    "flash_attn": "flash_attention_2",
    "flash_attention_2": "flash_attention_2",
    "flash_attention_3": "flash_attention_3",
    "flash_attention_4": None,
    "sdpa": "sdpa",
    "eager": "eager",
    "flex_attention": "flex_attention",
}
# The JSON files that come with it: zero2, zero3_offload, default-zero3, zero2-offload.
_BUILT_IN: Final = re.compile(r"(?:default-)?zero([0-3])(?:[-_]offload)?")
_STRATEGIES: Final = ("ddp", "zero1", "zero2", "zero3")


def carry_training(keys: Keys, companion: Companion) -> None:
    """What ms-swift adds to, or calls other than, ``TrainingArguments``."""
    _lengths(keys)
    for name, job_key in (
        ("batch_size", f"{_T}per_device_train_batch_size"),
        ("eval_batch_size", f"{_T}per_device_eval_batch_size"),
        ("sequence_parallel_size", "parallelism.context"),
    ):
        count = keys.whole(name)
        if count is not None:
            keys.carry(name, (job_key, count))
    _dtype(keys)
    keys.irrelevant(("torch_dtype", "dtype"), message("dtype_of_model", "as the model is stored"))
    _attention(keys)
    checkpoints = keys.flag("only_save_model")
    if checkpoints is not None:
        text = message("key_checkpoint_files", "a checkpoint is counted with optimizer states")
        keys.not_carried(("only_save_model",), text)
    _sharding(keys, companion)


def _dtype(keys: Keys) -> None:
    name = keys.first("torch_dtype", "dtype")
    if name is None or str(keys.value(name)).upper() == "AUTO":
        return
    dtype = keys.word(name, tuple(_DTYPES))
    if dtype is not None:
        keys.carry(name, (f"{_T}dtype", _DTYPES[dtype]))


def _lengths(keys: Keys) -> None:
    length, packed = keys.whole("max_length"), keys.whole("packing_length")
    packing = keys.flag("packing")
    if packing is not None:
        keys.carry("packing", (f"{_T}packing", packing))
    if packing and packed is not None:
        keys.carry("packing_length", (f"{_T}max_length", packed))
        row = message("packed_row", "a packed row is as long as packing_length says")
        keys.irrelevant(("max_length",), row)
    elif length is not None and length > 0:
        keys.carry("max_length", (f"{_T}max_length", length))
    limit = message("model_limit", "the model's own limit, or it is not packed")
    keys.irrelevant(("max_length", "packing_length"), limit)
    if keys.flag("padding_free") and not packing:
        keys.carry("padding_free", (f"{_T}padding", "none"))
    keys.irrelevant(("padding_free",), message("padding_settled", "rows are packed, or padded"))


def _attention(keys: Keys) -> None:
    name = keys.first("attn_impl", "attn_implementation")
    written = keys.word(name, tuple(_ATTENTION)) if name is not None else None
    if name is not None and written is not None:
        kernel = _ATTENTION[written]
        if kernel is None:
            text = message(
                "attention_without_formula",
                "{name} attention has no formula; the framework's own default is counted",
                name=written,
            )
            keys.not_carried((name,), text)
        else:
            keys.carry(name, (f"{_T}attn_implementation", kernel))
    flash = keys.flag("use_flash_attn")
    if flash:
        keys.carry("use_flash_attn", (f"{_T}attn_implementation", "flash_attention_2"))
    keys.irrelevant(("use_flash_attn",), message("attention_flag_off", "another kernel runs"))


def _sharding(keys: Keys, companion: Companion) -> None:
    """Its own names for DeepSpeed's and FSDP's files, then what ``TrainingArguments`` do."""
    for name in ("deepspeed", "deepspeed_config_path"):
        written = keys.value(name)
        match = _BUILT_IN.fullmatch(written.strip()) if isinstance(written, str) else None
        if match is not None:
            stage = int(match[1])
            keys.carry(name, ("parallelism.strategy", _STRATEGIES[stage]))
            if "offload" in str(written):
                what = "params" if stage == 3 else "optimizer"
                keys.carry(name, ("parallelism.offload", what))
            return
        if name == "deepspeed_config_path" and written is not None:
            from tuneplan.formats.deepspeed import follow_engine

            follow_engine(keys, name, companion)
    if _fsdp_file(keys, companion):
        return
    partition = keys.whole("zero_hpz_partition_size")
    if partition is not None and partition > 1:
        text = message("second_shard", "a second shard on each node (hpZ) has no formula yet")
        keys.refuse("zero_hpz_partition_size", text)
    keys.irrelevant(("zero_hpz_partition_size",), message("no_second_shard", "one shard"))
    degree = keys.whole("deepspeed_autotp_size")
    if degree is not None:
        keys.carry("deepspeed_autotp_size", ("parallelism.tensor", max(1, degree)))
    carry_sharding(keys, companion)


def _fsdp_file(keys: Keys, companion: Companion) -> bool:
    """``--fsdp fsdp2``: a file that comes with it, or one of the user's own, by its path."""
    fsdp = keys.value("fsdp")
    written = fsdp.strip() if isinstance(fsdp, str) else ""
    if written in ("fsdp2", "fsdp1", "fsdp"):
        kind = "fsdp2" if written == "fsdp2" else "fsdp"
        keys.carry("fsdp", ("parallelism.strategy", kind))
        return True
    if not written.endswith(".json"):
        return False
    document = companion(written)
    if document is None:
        text = message("file_not_here", "{name} is not here", name=written)
        keys.not_carried(("fsdp",), text)
        keys.notice("fsdp", text)
        return True
    keys.carrier.join(document)
    keys.carry("fsdp")
    inside = Keys(carrier=keys.carrier, document=document)
    words = inside.names("fsdp") or ()
    section = inside.under("fsdp_config") if inside.holds("fsdp_config") else inside
    carry_fsdp(section, default_version=2, words=words)
    inside.irrelevant(("fsdp",), message("fsdp_listed", "its section says it"))
    notes = message("notes_of_file", "a note for people")
    inside.irrelevant((name for name in inside.section if name.startswith("_")), notes)
    return True
