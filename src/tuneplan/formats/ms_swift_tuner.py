"""ms-swift: which parameters are trained, and how the rest is held.

Source: ms-swift 4.6.0.dev0 ``swift/arguments/tuner_args.py`` and ``quant_args.py`` at 3602360a;
2.6.1 ``swift/llm/utils/argument.py``.
"""

from __future__ import annotations

from typing import Final

from tuneplan.contract.values import nearest
from tuneplan.formats.keys import Keys
from tuneplan.formats.ms_swift_models import names_gptq, stored_as
from tuneplan.formats.targets import carry_targets
from tuneplan.language import message

_TUNERS: Final = ("lora", "full")
_WITHOUT_FORMULA: Final = (
    *("longlora", "adalora", "ia3", "llamapro", "adapter", "vera", "boft", "fourierft", "reft"),
    *("bone", "lora_llm", "prompt"),
)
_WORDS: Final = ("ALL", "AUTO", "DEFAULT", "EMBEDDING", "all-embedding", "all-router")
_ADAPTER: Final = (
    *("lora_rank", "lora_alpha", "lora_dropout", "lora_dropout_p", "target_modules"),
    *("lora_target_modules", "target_regex", "lora_target_regex", "use_rslora", "use_dora"),
    *("modules_to_save", "lora_modules_to_save", "lora_dtype"),
)


def carry_tuner(keys: Keys) -> None:
    """The method, the adapter and the quantization sections."""
    name = keys.first("tuner_type", "train_type", "sft_type")
    tuner = _tuner(keys, name) if name is not None else "lora"
    pretrains = keys.carrier.said("objective") == "pretrain" and name is None
    method = "full" if tuner == "full" or pretrains else _quantized(keys) or "lora"
    if name is not None and tuner in _TUNERS:
        keys.carry(name, ("method", method))
    elif name is None and not pretrains:
        keys.carrier.say("method", method)
    if method == "full":
        _part_of_model(keys)
        off = message("no_adapter", "no adapter is trained")
        keys.irrelevant(_ADAPTER, off)
        keys.irrelevant(("quant_bits", "quantization_bit", "quant_method"), off)
    else:
        _adapter(keys)
    for switch in ("lisa_activated_layers", "use_galore"):
        if keys.value(switch):
            text = message("part_without_formula", "{key} has no formula yet", key=switch)
            keys.refuse(switch, text)
    keys.irrelevant(("lisa_activated_layers", "use_galore"), message("switch_off", "it is off"))
    backend = keys.text("tuner_backend")
    if backend in ("peft", "swift"):
        usual = message("tuner_backend_usual", "PEFT's layers, as counted")
        keys.irrelevant(("tuner_backend",), usual)


def _tuner(keys: Keys, name: str) -> str | None:
    """The way of training; plugins may add ways of their own."""
    known = (*_TUNERS, *_WITHOUT_FORMULA)
    own = keys.text(name)
    strange = own is not None and own.lower() not in known and not nearest(own, known)
    written = own if strange else keys.word(name, known)
    if written is not None and written not in _TUNERS:
        text = message("adapter_without_formula", "{name} has no formula yet", name=written)
        keys.refuse(name, text)
    return written


def _part_of_model(keys: Keys) -> None:
    ratio = keys.number("freeze_parameters_ratio")
    if ratio:
        text = message(
            "part_of_parameters", "training a share of the parameters has no formula yet"
        )
        fix = message("method_freeze", "import it, and write method: freeze with trained_layers")
        keys.refuse("freeze_parameters_ratio", text, how_to_fix=fix)
    keys.irrelevant(("freeze_parameters_ratio",), message("whole_model", "the whole model"))


def _quantized(keys: Keys) -> str | None:
    """The method that a quantised base makes; None where it is held as it is."""
    method = keys.word(
        "quant_method", ("bnb", "hqq", "eetq", "quanto", "fp8", "awq", "gptq", "aqlm")
    )
    name = keys.first("quant_bits", "quantization_bit")
    bits = keys.value(name) if name is not None else None
    if method not in (None, "bnb", "gptq"):
        text = message("quantisation_without_formula", "{kind} has no formula yet", kind=method)
        keys.refuse("quant_method", text)
        with_it = message("belongs_to_refused", "it belongs to what is refused by name")
        keys.not_carried(("quant_bits", "quantization_bit"), with_it)
        return None
    names = (str(keys.carrier.said("model") or ""), str(keys.value("model_type") or ""))
    stored = next(filter(None, map(stored_as, names)), None)
    if stored is not None:
        text = message(
            "stored_quantised",
            "the base is stored with {name} by its name, which has no formula yet",
            name=stored.upper(),
        )
        keys.refuse(keys.first("model", "model_id_or_path", "model_type") or "model", text)
        return None
    if method == "gptq" or any(map(names_gptq, names)):
        keys.carrier.say("quantization.type", "gptq")
        keys.irrelevant(("quant_method", "quant_bits", "quantization_bit"),
                        message("gptq_weights", "the weights are GPTQ's"))  # fmt: skip
        return "gptq-lora"
    if name is None or bits in (0, "0", "none", "None"):
        off = message("not_quantised", "the base is not quantised")
        keys.irrelevant(("quant_bits", "quantization_bit", "quant_method"), off)
        return None
    number = keys.whole(name)
    if number is None:
        return None
    keys.carry(name, ("quantization.bits", number))
    if method is not None:
        keys.carry("quant_method")
    kind, double = keys.text("bnb_4bit_quant_type"), keys.flag("bnb_4bit_use_double_quant")
    if kind is not None and number == 4:
        keys.carry("bnb_4bit_quant_type", ("quantization.type", kind))
    if double is not None and number == 4:
        keys.carry("bnb_4bit_use_double_quant", ("quantization.double_quant", double))
    return "qlora"


def _adapter(keys: Keys) -> None:
    for names, job_key in (
        (("lora_rank",), "adapter.r"),
        (("lora_alpha",), "adapter.lora_alpha"),
        (("lora_dropout", "lora_dropout_p"), "adapter.lora_dropout"),
    ):
        name = keys.first(*names)
        value = keys.number(name) if name is not None else None
        if name is not None and value is not None:
            keys.carry(name, (job_key, int(value) if value == int(value) else value))
    for name in ("use_rslora", "use_dora"):
        value = keys.flag(name)
        if value is not None:
            keys.carry(name, (f"adapter.{name}", value))
    _targets(keys)
    for name in ("modules_to_save", "lora_modules_to_save"):
        saved = keys.names(name)
        if saved:
            words = {"EMBEDDING": "embed_tokens", "all-embedding": "embed_tokens"}
            modules = [words.get(one, one) for one in saved if one not in ("LN", "all-norm")]
            keys.carry(name, *([("adapter.modules_to_save", modules)] if modules else []))


def _targets(keys: Keys) -> None:
    parameters = keys.names("target_parameters")
    if parameters:
        keys.carry("target_parameters", ("adapter.target_parameters", list(parameters)))
    pattern = keys.first("target_regex", "lora_target_regex")
    name = keys.first("target_modules", "lora_target_modules")
    if pattern is not None:
        carry_targets(keys.carrier, keys.path(pattern))
        said = message("targets_by_pattern", "the pattern says which")
        keys.irrelevant(("target_modules", "lora_target_modules"), said)
        return
    written = keys.names(name) if name is not None else None
    if name is None or not written:
        return
    if set(written) & {"ALL", "all-linear", "AUTO"}:
        keys.carry(name, ("adapter.target_modules", "all-linear"))
    elif "DEFAULT" in written:
        usual = message("targets_of_family", "the release's own choice for the model's family")
        keys.irrelevant((name,), usual)
    else:
        names = [one for one in written if one not in _WORDS]
        if names:
            keys.carry(name, ("adapter.target_modules", names))
    extra = [one for one in written if one in ("EMBEDDING", "all-embedding", "all-router")]
    if extra:
        text = message(
            "targets_beside_all",
            "{names}: adapters there are not counted beside all-linear",
            names=", ".join(extra),
        )
        keys.notice(name, text)
        keys.irrelevant((name,), text)
