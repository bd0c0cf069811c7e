"""Axolotl: which parameters are trained, and how the rest is held.

Source: axolotl 0.18.0 ``utils/schemas/peft.py``, ``loaders/adapter.py`` (``lora_target_linear``
adds every linear to the names) and ``loaders/model.py`` (bitsandbytes) at 067b021c8.
"""

from __future__ import annotations

from typing import Final

from tuneplan.formats import typed_values as typed
from tuneplan.formats.carrying import Carrier
from tuneplan.formats.patterns import covers_language_model
from tuneplan.formats.targets import carry_targets
from tuneplan.language import message

_ADAPTERS: Final = ("lora", "qlora", "llama-adapter", "mora", "full")
_KERNELS: Final = ("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel")
_QUANTIZATION: Final = (
    *("load_in_4bit", "load_in_8bit", "gptq", "bnb_config_kwargs", "quantize_moe_experts"),
)
_ADAPTER_KEYS: Final = (
    *("lora_r", "lora_alpha", "lora_dropout", "lora_target_modules", "lora_target_linear"),
    *("lora_target_parameters", "lora_modules_to_save", "peft_use_dora", "peft_use_rslora"),
    *_KERNELS,
)


def carry_method(carrier: Carrier) -> None:
    """The method, the adapter section, the quantization section."""
    adapter = _adapter(carrier)
    _trained_parts(carrier, adapter)
    if adapter is None:
        unused = message("no_adapter", "no adapter is trained")
        carrier.irrelevant(_ADAPTER_KEYS, unused)
        carrier.say("method", "full")
        _unquantized(carrier)
        return
    carrier.carry("adapter", ("method", _method(carrier, adapter)))
    for path, job_key, read in (
        ("lora_r", "adapter.r", typed.whole),
        ("lora_alpha", "adapter.lora_alpha", typed.number),
        ("lora_dropout", "adapter.lora_dropout", typed.number),
        ("peft_use_rslora", "adapter.use_rslora", typed.flag),
        ("peft_use_dora", "adapter.use_dora", typed.flag),
        ("lora_modules_to_save", "adapter.modules_to_save", typed.names),
    ):
        value = read(carrier, path)
        if value is not None:
            carrier.carry(path, (job_key, list(value) if isinstance(value, tuple) else value))
    _targets(carrier)
    _kernels(carrier)


def _adapter(carrier: Carrier) -> str | None:
    """The adapter's name; None where all parameters are trained."""
    written = carrier.value("adapter")
    if written is None or written == "" or str(written).lower() == "none":
        carrier.irrelevant(("adapter",), message("adapter_blank", "blank: the whole model"))
        return None
    adapter = typed.word(carrier, "adapter", _ADAPTERS)
    if adapter in ("llama-adapter", "mora"):
        text = message("adapter_without_formula", "{name} has no formula yet", name=adapter)
        carrier.refuse("adapter", text)
    if adapter is None:
        return "lora"  # what was meant is noted as wrong; nothing else is wrong for want of it
    return None if adapter == "full" else adapter


def _trained_parts(carrier: Carrier, adapter: str | None) -> None:
    """Full training that is not of the whole model."""
    parts = typed.names(carrier, "unfrozen_parameters")
    if parts and adapter is None and not covers_language_model(parts):
        text = message(
            "trained_by_pattern",
            "training the parameters that a pattern picks has no formula yet",
        )
        fix = message("method_freeze", "import it, and write method: freeze with trained_layers")
        carrier.refuse("unfrozen_parameters", text, how_to_fix=fix)
    whole = message("language_model_trained", "the whole language model is trained, or adapters")
    carrier.irrelevant(("unfrozen_parameters", "freeze_mm_modules"), whole)
    for path in ("lisa_n_layers", "layer_offloading", "spectrum_top_fraction"):
        if carrier.value(path):
            text = message("part_without_formula", "{key} has no formula yet", key=path)
            carrier.refuse(path, text)
    carrier.irrelevant(
        ("lisa_step_interval", "lisa_layers_attribute", "spectrum_model_name", "layer_offloading"),
        message("belongs_to_refused", "it belongs to a way of training that is refused by name"),
    )


def _method(carrier: Carrier, adapter: str) -> str:
    four, eight = (typed.flag(carrier, f"load_in_{bits}bit") for bits in (4, 8))
    gptq = typed.flag(carrier, "gptq")
    both = message("four_and_eight_bits", "load_in_4bit and load_in_8bit are both true")
    if four and eight:
        carrier.wrong("load_in_8bit", both, how_to_fix=message("keep_one", "keep one of them"))
    if adapter == "qlora" and (eight or gptq or four is False):
        carrier.wrong(
            "adapter",
            message("qlora_needs_4bit", "adapter qlora needs load_in_4bit: true"),
            near=("lora",),
            how_to_fix=message("write_load_in_4bit", "write load_in_4bit: true, or adapter: lora"),
        )
    if gptq:
        carrier.carry("gptq", ("quantization.type", "gptq"))
        _closed(carrier)
        return "gptq-lora"
    bits = 8 if eight else 4 if four or adapter == "qlora" else None
    if bits is None:
        _closed(carrier)
        return "lora"
    carrier.carry(f"load_in_{bits}bit", ("quantization.bits", bits))
    experts = typed.flag(carrier, "quantize_moe_experts")
    if experts is not None:
        carrier.carry("quantize_moe_experts", ("quantization.quantize_experts", experts))
    double = carrier.value("bnb_config_kwargs.bnb_4bit_use_double_quant")
    if isinstance(double, bool) and bits == 4:
        path = "bnb_config_kwargs.bnb_4bit_use_double_quant"
        carrier.carry(path, ("quantization.double_quant", double))
    kind = carrier.value("bnb_config_kwargs.bnb_4bit_quant_type")
    if isinstance(kind, str) and bits == 4:
        carrier.carry("bnb_config_kwargs.bnb_4bit_quant_type", ("quantization.type", kind))
    _closed(carrier)
    return "qlora"


def _closed(carrier: Carrier) -> None:
    off = message("other_quantization", "the base is held another way")
    carrier.irrelevant(("load_in_4bit", "load_in_8bit", "gptq", "quantize_moe_experts"), off)
    options = typed.section(carrier, "bnb_config_kwargs") or {}
    carrier.irrelevant(
        (
            f"bnb_config_kwargs.{name}"
            for name in ("bnb_4bit_compute_dtype", "llm_int8_threshold", "llm_int8_skip_modules")
            if name in options
        ),
        message("bnb_compute", "the type of the products, which precision says"),
    )


def _unquantized(carrier: Carrier) -> None:
    """Without an adapter nothing can be trained on a quantised base."""
    for path in ("load_in_4bit", "load_in_8bit", "gptq"):
        if typed.flag(carrier, path):
            carrier.wrong(
                path,
                message("quantised_without_adapter", "a quantised base needs an adapter"),
                how_to_fix=message("add_adapter", "write adapter: qlora, or leave {key} out",
                                   key=path),
            )  # fmt: skip
    carrier.irrelevant(_QUANTIZATION, message("not_quantised", "the base is not quantised"))


def _targets(carrier: Carrier) -> None:
    linear = typed.flag(carrier, "lora_target_linear")
    carry_targets(carrier, "lora_target_modules", every_linear=bool(linear))
    if linear:
        carrier.carry("lora_target_linear", ("adapter.target_modules", "all-linear"))
    off = message("named_targets", "the linears are named one by one")
    carrier.irrelevant(("lora_target_linear",), off)
    parameters = typed.names(carrier, "lora_target_parameters")
    if parameters:
        carrier.carry("lora_target_parameters", ("adapter.target_parameters", list(parameters)))


def _kernels(carrier: Carrier) -> None:
    """The Triton kernels of adapted linears: on where one of them is on."""
    stated = {path: typed.flag(carrier, path) for path in _KERNELS}
    flags = [value for value in stated.values() if value is not None]
    for path, value in stated.items():
        if value is not None:
            carrier.carry(path, ("adapter.fused_kernels", any(flags)))
