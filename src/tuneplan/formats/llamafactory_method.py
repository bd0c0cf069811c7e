"""LLaMA-Factory: which parameters are trained, and how the base is held.

Source: LLaMA-Factory ``hparams/finetuning_args.py``, ``model_args.py`` and
``model/model_utils/quantization.py`` at ff6d4d12.
"""

from __future__ import annotations

import re
from typing import Final

from tuneplan.formats.keys import Keys
from tuneplan.formats.targets import carry_targets
from tuneplan.language import message

_TYPES: Final = ("lora", "full", "freeze", "oft")
_METHODS: Final = ("bnb", "gptq", "awq", "aqlm", "quanto", "eetq", "hqq", "mxfp4", "fp8")
_STORED: Final = re.compile(r"(?:^|[-_/])(gptq|awq|aqlm|hqq|eetq)(?:[-_]|$)", re.IGNORECASE)
_FREEZE: Final = (
    *("freeze_trainable_layers", "freeze_trainable_modules", "freeze_extra_modules"),
    *("num_layer_trainable", "name_module_trainable"),  # until 0.7
)
_LORA: Final = (
    *("lora_rank", "lora_alpha", "lora_dropout", "lora_target", "additional_target"),
    *("use_rslora", "use_dora", "pissa_init", "pissa_iter", "pissa_convert", "create_new_adapter"),
    *("loraplus_lr_ratio", "loraplus_lr_embedding", "adapter_name_or_path", "adapter_folder"),
)


def carry_method(keys: Keys, model: str) -> None:
    """``method``, ``adapter`` and ``quantization``; ``model`` tells a base stored in few bits."""
    kind = keys.word("finetuning_type", _TYPES)
    if kind == "oft":
        keys.refuse("finetuning_type", message("oft_refused", "oft has no formula yet"))
    method = _quantized(keys, kind or "lora", model)
    if kind is not None and kind != "oft":
        keys.carry("finetuning_type", ("method", method))
    elif kind is None and method != "lora":
        keys.carrier.say("method", method)
    if method == "freeze":
        _freeze(keys)
    elif method != "full" and kind != "oft":
        _adapter(keys)
    unused = message("other_method", "it belongs to another finetuning_type")
    keys.irrelevant((*_FREEZE, *_LORA), unused)
    keys.irrelevant(
        ("oft_rank", "oft_block_size", "oft_target", "module_dropout"),
        message("belongs_to_refused", "it belongs to a way of training that is refused by name"),
    )
    keys.irrelevant(
        ("quantization_bit", "quantization_method", "quantization_type", "double_quantization"),
        message("not_quantised", "the base is not quantised"),
    )


def _quantized(keys: Keys, kind: str, model: str) -> str:
    bits = keys.whole("quantization_bit")
    stored = _STORED.search(model)
    if bits is None:
        return _stored(keys, kind, stored[1].lower()) if stored is not None else kind
    if kind in ("full", "freeze"):
        keys.wrong(
            "quantization_bit",
            message("quantised_needs_adapter", "a quantised base is trained by adapters only"),
            near=("finetuning_type: lora",),
            how_to_fix=message("write_lora", "write finetuning_type: lora, or leave it out"),
        )
        return kind
    how = keys.word("quantization_method", _METHODS) or "bnb"
    if how != "bnb":
        text = message("quantization_refused", "{name} has no formula yet", name=how)
        keys.refuse("quantization_method", text)
    elif bits not in (4, 8):
        text = message("bits_four_or_eight", "bitsandbytes has 4 and 8 bits, not {n}", n=bits)
        keys.wrong("quantization_bit", text, near=("4", "8"))
        return kind
    if keys.value("quantization_method") is not None:
        keys.irrelevant(("quantization_method",), message("bnb_is_usual", "bitsandbytes, as usual"))
    keys.carry("quantization_bit", ("quantization.bits", bits))
    stored_as = keys.word("quantization_type", ("nf4", "fp4"))
    double = keys.flag("double_quantization")
    if bits == 4 and stored_as is not None:
        keys.carry("quantization_type", ("quantization.type", stored_as))
    if bits == 4 and double is not None:
        keys.carry("double_quantization", ("quantization.double_quant", double))
    return "qlora" if kind == "lora" else kind


def _stored(keys: Keys, kind: str, stored: str) -> str:
    """A base that is stored in few bits, by its name."""
    if kind != "lora":
        return kind
    if stored != "gptq":
        text = message(
            "stored_quantised",
            "the base is stored with {name} by its name, which has no formula yet",
            name=stored.upper(),
        )
        keys.refuse("model_name_or_path", text)
        return kind
    text = message("stored_gptq", "by its name the base is stored with GPTQ")
    keys.notice("model_name_or_path", text)
    keys.carrier.say("quantization.type", "gptq")
    return "gptq-lora"


def _freeze(keys: Keys) -> None:
    for name in ("freeze_trainable_layers", "num_layer_trainable"):
        layers = keys.whole(name)
        if layers is not None and layers > 0:
            keys.carry(name, ("training.trained_layers", layers))
        elif layers is not None:
            text = message("first_layers", "training the first layers has no formula yet")
            keys.refuse(name, text)
    for name in ("freeze_trainable_modules", "freeze_extra_modules", "name_module_trainable"):
        modules = keys.names(name) or ()
        if modules and modules != ("all",):
            text = message(
                "part_of_layers", "{names}: whole layers are counted", names=", ".join(modules)
            )
            keys.notice(name, text)
            keys.not_carried((name,), text)
    whole = message("whole_layers", "whole layers")
    keys.irrelevant(("freeze_trainable_modules", "name_module_trainable"), whole)


def _adapter(keys: Keys) -> None:
    rank = keys.whole("lora_rank")
    if rank is not None and rank < 1:
        keys.wrong("lora_rank", message("at_least_one", "{key} is at least 1", key="lora_rank"))
    elif rank is not None:
        keys.carry("lora_rank", ("adapter.r", rank))
    for name in ("lora_alpha", "lora_dropout"):
        number = keys.number(name)
        if number is not None:
            keys.carry(name, (f"adapter.{name}", number))
    carry_targets(keys.carrier, keys.path("lora_target"), of=keys.document)
    modules = keys.names("additional_target")
    if modules:
        keys.carry("additional_target", ("adapter.modules_to_save", list(modules)))
    for name in ("use_rslora", "use_dora"):
        on = keys.flag(name)
        if on is not None:
            keys.carry(name, (f"adapter.{name}", on))
    start = message("adapter_start", "how adapters begin, which of them, and how fast they learn")
    keys.irrelevant(
        (
            *("pissa_init", "pissa_iter", "pissa_convert", "create_new_adapter", "adapter_folder"),
            *("loraplus_lr_ratio", "loraplus_lr_embedding", "adapter_name_or_path"),
        ),
        start,
    )
