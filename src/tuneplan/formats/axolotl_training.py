"""Axolotl: batches, types, kernels, evaluation and checkpoints.

Source: axolotl 0.18.0 ``utils/config/__init__.py`` (``resolve_dtype``, ``normalize_config``),
``core/builders/base.py`` and ``integrations/`` at 067b021c8.
"""

from __future__ import annotations

from typing import Final

from tuneplan.formats import typed_values as typed
from tuneplan.formats.axolotl_plugins import carry_losses
from tuneplan.formats.carrying import Carrier
from tuneplan.formats.trainer_keys import OPTIMIZERS
from tuneplan.language import message

# Source: axolotl utils/schemas/enums.py LEGACY_ATTN_FLAG_TO_IMPL and SHORT_FORM_ALIAS_TO_CANONICAL.
_ATTENTION_FLAGS: Final = {
    "xformers_attention": "xformers",
    "sage_attention": "sage",
    "flex_attention": "flex_attention",
    "flash_attention": "flash_attention_2",
    "sdp_attention": "sdpa",
    "eager_attention": "eager",
}
_ATTENTION: Final = (
    *("eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention"),
    *("xformers", "sage", "fp8"),
)
# When held-out rows are looked at; with none of them it is after each epoch.
# Source: axolotl core/builders/base.py _configure_save_and_eval_strategy.
EVALUATION: Final = ("eval_steps", "evals_per_epoch", "eval_strategy", "evaluation_strategy")
_HUB_KERNELS: Final = {"attn3": "flash_attention_3", "attn2": "flash_attention_2"}
# Source: axolotl utils/schemas/enums.py CustomSupportedOptimizers, beside those of transformers.
_OPTIMIZERS: Final = (
    *("optimi_adamw", "ao_adamw_4bit", "ao_adamw_8bit", "ao_adamw_fp8", "adopt_adamw", "muon"),
    *("came_pytorch", "dion", "sinkgd", "flash_adamw", "flash_adam", "flash_sgd", "flash_sgdw"),
    *("flash_lion", "q_galore_adamw8bit", "dist_muon", "lion_pytorch"),
)
_WITHOUT_FORMULA: Final = ("xformers", "sage", "fp8")
_TYPES: Final = ("bf16", "bfloat16", "fp16", "float16", "fp8")


def carry_training(carrier: Carrier) -> None:
    """The ``training`` section."""
    for path, job_key, read in (
        ("sequence_len", "training.max_length", typed.whole),
        ("micro_batch_size", "training.per_device_train_batch_size", typed.whole),
        ("eval_batch_size", "training.per_device_eval_batch_size", typed.whole),
        ("num_epochs", "training.num_train_epochs", typed.number),
        ("max_steps", "training.max_steps", typed.whole),
        ("optimizer", "training.optim", _optimizer),
        ("max_grad_norm", "training.max_grad_norm", typed.number),
        ("save_total_limit", "training.save_total_limit", typed.whole),
    ):
        value = read(carrier, path)
        if value is not None:
            carrier.carry(path, (job_key, value))
    _accumulation(carrier)
    _types(carrier)
    _packing(carrier)
    _checkpointing(carrier)
    _attention(carrier)
    _compile(carrier)
    carry_losses(carrier)
    _evaluation(carrier)
    _saving(carrier)


def _optimizer(carrier: Carrier, path: str) -> str | None:
    return typed.word(carrier, path, (*OPTIMIZERS, *_OPTIMIZERS))


def _accumulation(carrier: Carrier) -> None:
    steps = typed.whole(carrier, "gradient_accumulation_steps")
    total, micro = typed.whole(carrier, "batch_size"), typed.whole(carrier, "micro_batch_size")
    key = "training.gradient_accumulation_steps"
    if steps is not None:
        carrier.carry("gradient_accumulation_steps", (key, steps))
        unused = message("batch_size_unused", "gradient_accumulation_steps says it")
        carrier.irrelevant(("batch_size",), unused)
    elif total is not None:
        micro = micro or 1
        carrier.carry("batch_size", (key, max(1, total // micro) if micro > 0 else total))


def _types(carrier: Carrier) -> None:
    """``bf16`` and ``fp16`` run under autocast, ``bfloat16`` and ``float16`` without it."""
    values = {path: _switch(carrier, path) for path in _TYPES}
    bf16, fp16 = values["bf16"], values["fp16"]
    if bf16 is True and fp16 is True:
        carrier.wrong(
            "fp16",
            message("bf16_and_fp16", "bf16 and fp16 are both true: the run has one precision"),
            how_to_fix=message("keep_one", "keep one of them"),
        )
    if bf16 == "auto" and not fp16:
        carrier.irrelevant(_TYPES[1:4], message("bf16_is_auto", "bf16 is auto: the chip decides"))
        carrier.carry("bf16")
    else:
        _stated_types(carrier, values)
    if values["fp8"]:
        carrier.carry("fp8", ("training.precision", "fp8"))
    off = message("other_precision", "another key says the precision")
    carrier.irrelevant((*_TYPES, "fp8_enable_fsdp_float8_all_gather"), off)
    _tf32(carrier)


def _stated_types(carrier: Carrier, values: dict[str, bool | str | None]) -> None:
    eight = carrier.said("quantization.bits") == 8
    autocast = "bf16" if values["bf16"] is True else "fp16" if values["fp16"] is True else None
    pure = next((path for path in ("bfloat16", "float16") if values[path] is True), None)
    half = {"bf16": "bfloat16", "fp16": "float16", None: None}[autocast] or pure
    if autocast is not None:
        carrier.carry(autocast, ("training.precision", autocast), ("training.dtype", half))
    elif pure is not None or (eight and "bf16" in values and values["bf16"] is False):
        path = pure or "bf16"
        carrier.carry(path, ("training.precision", "none"), ("training.dtype", pure or "float16"))
    elif values["bf16"] is False:
        carrier.carry("bf16", ("training.precision", "fp32"), ("training.dtype", "float32"))


def _switch(carrier: Carrier, path: str) -> bool | str | None:
    value = carrier.value(path)
    if isinstance(value, str) and value.lower() in ("auto", "full"):
        return "auto" if value.lower() == "auto" else True
    return typed.flag(carrier, path)


def _tf32(carrier: Carrier) -> None:
    if carrier.value("tf32") is True and carrier.said("training.precision") == "fp32":
        carrier.carry("tf32", ("training.precision", "tf32"))
    carrier.irrelevant(("tf32",), message("tf32_in_half", "it speeds up fp32 products alone"))


def _packing(carrier: Carrier) -> None:
    packing = typed.flag(carrier, "sample_packing")
    if carrier.value("max_packed_sequence_len"):  # how releases before 0.4 asked for it
        packing = True if packing is None else packing
        carrier.carry("max_packed_sequence_len", ("training.packing", packing))
    if packing is not None:
        carrier.carry("sample_packing", ("training.packing", packing))
    _evaluation_packing(carrier, packed=packing is True)
    flattened = carrier.value("batch_flattening")
    if not packing:
        if typed.flag(carrier, "pad_to_sequence_len"):
            carrier.carry("pad_to_sequence_len", ("training.padding", "max_length"))
        elif typed.flag(carrier, "group_by_length"):
            carrier.carry("group_by_length", ("training.padding", "grouped"))
        if flattened is True:
            carrier.carry("batch_flattening", ("training.padding", "none"))
    off = message("padding_settled", "rows are packed to their full length, or padded as usual")
    carrier.irrelevant(("pad_to_sequence_len", "group_by_length", "batch_flattening"), off)


def _evaluation_packing(carrier: Carrier, *, packed: bool) -> None:
    """Whether held-out rows are packed: as those of training, where no key says it.

    axolotl ``utils/schemas/validation.py``, ``check_eval_packing``: with ``sample_packing`` a key
    that is left out is set to true.
    """
    written = carrier.value("eval_sample_packing")
    if packed and written is False:
        unlike = message(
            "evaluation_unpacked",
            "left out, the evaluation's rows would be packed as those of training are, and so they "
            "are counted: single rows take longer",
        )
        carrier.not_carried(("eval_sample_packing",), unlike)
    elif written is packed:
        alike = message("evaluation_packed_alike", "as it is where it is left out")
        carrier.irrelevant(("eval_sample_packing",), alike)


def _checkpointing(carrier: Carrier) -> None:
    value = carrier.value("gradient_checkpointing")
    offloads = carrier.value("activation_offloading") not in (None, False)
    if isinstance(value, str) and value in ("offload", "offload_disk"):
        carrier.carry("gradient_checkpointing", ("training.gradient_checkpointing", "offload"))
    elif value is not None:
        switch = typed.word(
            carrier, "gradient_checkpointing", ("true", "false", "offload", "offload_disk")
        )
        on = switch == "true"
        kind = "offload" if on and offloads else on
        carrier.carry("gradient_checkpointing", ("training.gradient_checkpointing", kind))
        if on and offloads:
            carrier.carry("activation_offloading", ("training.gradient_checkpointing", kind))
    carrier.irrelevant(("activation_offloading",), message("offload_said", "said with its switch"))
    reentrant = carrier.value("gradient_checkpointing_kwargs.use_reentrant")
    if isinstance(reentrant, bool):
        path = "gradient_checkpointing_kwargs.use_reentrant"
        carrier.carry(path, ("training.use_reentrant", reentrant))
    if carrier.value("selective_checkpointing"):
        text = message(
            "checkpointing_saves_more", "what it saves beside the layer's input is not counted"
        )
        carrier.not_carried(("selective_checkpointing",), text)


def _attention(carrier: Carrier) -> None:
    for path, word in _ATTENTION_FLAGS.items():
        if typed.flag(carrier, path):
            _say_attention(carrier, path, word)
    off = message("attention_flag_off", "another kernel is asked for")
    carrier.irrelevant(_ATTENTION_FLAGS, off)
    written = carrier.value("attn_implementation")
    if isinstance(written, str) and "/" in written:
        kernel = next((word for end, word in _HUB_KERNELS.items() if end in written), None)
        _say_attention(carrier, "attn_implementation", kernel or written)
        return
    stated = typed.word(carrier, "attn_implementation", _ATTENTION)
    if stated is not None:
        _say_attention(carrier, "attn_implementation", stated)


def _say_attention(carrier: Carrier, path: str, word: str) -> None:
    if word in _WITHOUT_FORMULA or "/" in word:
        text = message(
            "attention_without_formula",
            "{name} attention has no formula; the framework's own default is counted",
            name=word,
        )
        carrier.not_carried((path,), text)
    else:
        carrier.carry(path, ("training.attn_implementation", word))


def _compile(carrier: Carrier) -> None:
    value = carrier.value("torch_compile")
    if value == "auto":
        text = message("compile_auto", "auto: compiled where the versions allow it, not counted")
        carrier.not_carried(("torch_compile",), text)
    elif value is not None and (on := typed.flag(carrier, "torch_compile")) is not None:
        carrier.carry("torch_compile", ("training.torch_compile", on))


def _evaluation(carrier: Carrier) -> None:
    share = typed.number(carrier, "val_set_size")
    path = "evaluation_strategy" if carrier.value("eval_strategy") is None else "eval_strategy"
    if share == 0 and not carrier.value("test_datasets"):
        carrier.irrelevant(EVALUATION, message("no_held_out_rows", "no rows are held out"))
        return
    strategy = typed.word(carrier, path, ("no", "steps", "epoch"))
    if strategy is not None:
        carrier.carry(path, ("training.eval_strategy", strategy))
    _every(carrier, "evals_per_epoch", "eval")
    steps = typed.number(carrier, "eval_steps")
    if steps:
        carrier.carry("eval_steps", ("training.eval_steps", steps))
    carrier.irrelevant(EVALUATION, message("evaluation_off", "it asks for none"))


def _saving(carrier: Carrier) -> None:
    strategy = typed.word(carrier, "save_strategy", ("no", "steps", "epoch", "best"))
    if strategy is not None:
        carrier.carry("save_strategy", ("training.save_strategy", strategy))
    _every(carrier, "saves_per_epoch", "save")
    steps = typed.number(carrier, "save_steps")
    if steps:
        carrier.carry("save_steps", ("training.save_steps", steps))
    carrier.irrelevant(("save_steps", "saves_per_epoch"), message("saving_off", "it asks for none"))


def _every(carrier: Carrier, path: str, kind: str) -> None:
    """``evals_per_epoch``: a share of the run, where that is below one; else Axolotl ignores it."""
    times = typed.number(carrier, path)
    epochs = typed.number(carrier, "num_epochs") or 1.0
    if not times or times < 0 or epochs < 0:
        return
    share = 1.0 / (times * epochs)
    if share < 1:
        carrier.carry(path, (f"training.{kind}_steps", share))
    elif kind == "save":
        carrier.carry(path, ("training.save_strategy", "epoch"))
    else:
        carrier.carry(path, ("training.eval_strategy", "no"))
