"""What scripts on Hugging Face's stack share: the model, adapters, quantisation, data, lengths.

Sources: trl 1.10.0.dev0 ``trainer/model_config.py`` at f2cd5771 and its forms of 0.9 to 0.19; peft
0.21 ``tuners/lora/config.py``; transformers 5.24 ``utils/quantization_config.py``; the arguments of
transformers' ``examples/pytorch/language-modeling``, of qlora and of alpaca-lora.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace
from typing import Any, Final

from tuneplan.formats.data_files import NO_DATA_HERE, local_files
from tuneplan.formats.foreign import ForeignDocument
from tuneplan.formats.keys import Keys
from tuneplan.formats.remote_code import say_remote_code
from tuneplan.formats.targets import carry_targets
from tuneplan.formats.trainer_arguments import carry_count
from tuneplan.language import message, phrase

_DTYPES: Final = {
    "float32": "float32",
    "fp32": "float32",
    "float": "float32",
    "bfloat16": "bfloat16",
    "bf16": "bfloat16",
    "float16": "float16",
    "fp16": "float16",
    "half": "float16",
    "auto": "auto",
}
_ATTENTION: Final = (
    *("eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention", "auto"),
)
_LOADING: Final = ("use_cache", "low_cpu_mem_usage", "device_map", "revision", "use_safetensors")
_HUB_KERNELS: Final = {
    "attn3": "flash_attention_3",
    "attn2": "flash_attention_2",
    "flash-attn": "flash_attention_2",
}
_RANKS: Final = ("lora_r", "lora_rank", "rank", "r", "lora_dim")
_TARGETS: Final = ("lora_target_modules", "target_modules", "lora_target", "lora_modules")
_SWITCHES: Final = ("use_peft", "use_lora", "lora", "lora_enable", "use_peft_lora", "with_lora")
_QLORA: Final = ("use_qlora", "q_lora", "qlora")
DATA: Final = (
    *("dataset_name", "dataset", "datasets", "data_path", "train_file", "train_data_path"),
    *("train_data", "dataset_path", "data_files", "dataset_id", "train_files", "train_path"),
    *("data", "eval_data_path", "validation_file", "eval_file", "test_file", "eval_path"),
    *("eval_data", "val_data_path", "validation_files", "eval_dataset", "test_data_path"),
    *("dataset_mixer", "dataset_mixture", "val_file"),
)
MODEL_KEYS: Final = (
    "model_name_or_path",
    "model_name",
    "model_id",
    "pretrained_model_name_or_path",
)


def carry_model(keys: Keys) -> None:
    """The model, how it is loaded, its attention."""
    name = keys.first(*MODEL_KEYS)
    if name is not None:
        keys.carry(name, ("model", keys.text(name)))
    for name in (
        "torch_dtype",
        "dtype",
        "model_init_kwargs.torch_dtype",
        "model_init_kwargs.dtype",
    ):
        value = keys.value(name)
        written = str(value).removeprefix("torch.") if isinstance(value, str) else None
        if written in _DTYPES:
            keys.carry(name, ("training.dtype", _DTYPES[written]))
        elif value is not None:
            keys.word(name, tuple(_DTYPES))
    carry_attention(keys)
    for name in ("trust_remote_code", "model_init_kwargs.trust_remote_code"):
        if keys.holds(name):
            say_remote_code(keys.carrier, keys.path(name))
    _auto_map(keys)
    loads = message("model_loading", "how the model is loaded")
    keys.irrelevant((f"model_init_kwargs.{name}" for name in _LOADING), loads)


def _auto_map(keys: Keys) -> None:
    """``auto_map`` names classes in code that comes with the weights."""
    if keys.value("auto_map") is None:
        return
    text = message(
        "remote_code",
        "{key} lets the model run code that comes with its weights; here it is not fetched and "
        "not run, and the model is described as published",
        key="auto_map",
    )
    keys.notice("auto_map", text)
    keys.irrelevant(("auto_map",), message("key_remote_code", "code of the model is not run here"))


def carry_attention(keys: Keys) -> None:
    """``attn_implementation``, a kernel of the hub, or the flags of older scripts."""
    key = "training.attn_implementation"
    for name in ("attn_implementation", "model_init_kwargs.attn_implementation", "attn_impl"):
        value = keys.value(name)
        if isinstance(value, str) and "/" in value:
            kernel = next((k for part, k in _HUB_KERNELS.items() if part in value.lower()), None)
            if kernel is None:
                text = message("hub_kernel", "{name}: this kernel has no formula yet", name=value)
                keys.refuse(name, text)
                continue
            keys.carry(name, (key, kernel))
        elif value is not None:
            known = keys.word(name, (*_ATTENTION, "flash_attn", "flash_attn_2", "fa2"))
            if known is not None:
                keys.carry(name, (key, known if known in _ATTENTION else "flash_attention_2"))
    flash = ("use_flash_attention_2", "use_flash_attn", "use_flash_attention", "flash_attention")
    for name in flash:
        if keys.flag(name):
            keys.carry(name, (key, "flash_attention_2"))
    keys.irrelevant(flash, message("no_flash", "the usual attention"))


# --- method ---------------------------------------------------------------------------------------


def carry_peft(keys: Keys, *, needs_switch: bool) -> None:
    """``method``, ``adapter``, ``quantization``.

    Args:
        keys: The configuration.
        needs_switch: Whether adapters are trained only where a switch says so (TRL's
            ``use_peft``), or wherever a rank is named.
    """
    kind = keys.text("peft_config.peft_type") or keys.text("peft_type")
    if kind is not None and kind.upper() != "LORA":
        name = keys.first("peft_config.peft_type", "peft_type") or "peft_type"
        keys.refuse(name, message("peft_kind", "{name} has no formula yet", name=kind))
        _close_adapter(keys)
        return
    switch = _switch(keys)
    ranked = any(keys.value(name) not in (None, 0) for name in _RANKS) or kind is not None
    bits = _bits(keys)
    if needs_switch and bits is not None and not switch:
        keys.wrong(
            "load_in_4bit" if bits == 4 else "load_in_8bit",
            message("quantised_needs_adapter", "a quantised base is trained by adapters only"),
            how_to_fix=message("write_use_peft", "write use_peft: true, or leave it out"),
        )
    adapts = switch if switch is not None else (ranked and not needs_switch) or bits is not None
    if not adapts:
        if ranked:
            text = message(
                "adapter_not_switched_on",
                "adapter settings without {switch}: true have no effect: the whole model is "
                "trained",
                switch="use_peft" if needs_switch else phrase("their switch"),
            )
            keys.notice(next(name for name in _RANKS if keys.value(name) is not None), text)
        keys.carrier.say("method", "full")
        _close_adapter(keys)
        return
    keys.carrier.say("method", "qlora" if bits is not None else "lora")
    _adapter(keys)
    _close_adapter(keys)


def _switch(keys: Keys) -> bool | None:
    found = None
    for name in (*_SWITCHES, *_QLORA):
        on = keys.flag(name)
        if on is not None:
            found = bool(found) or on
            keys.carry(name)
    full = keys.flag("full_finetune")
    if full is not None:
        keys.carry("full_finetune")
        found = not full if found is None else found
    return found


def _bits(keys: Keys) -> int | None:
    """Bits of a quantised base; None where it is not quantised."""
    four, eight = keys.flag("load_in_4bit"), keys.flag("load_in_8bit")
    if four and eight:
        text = message("four_and_eight_bits", "load_in_4bit and load_in_8bit are both true")
        keys.wrong("load_in_8bit", text, how_to_fix=message("keep_one", "keep one of them"))
        return None
    bits = None
    for name, count, on in (
        ("load_in_4bit", 4, four),
        ("load_in_8bit", 8, eight),
        ("use_4bit_quantization", 4, keys.flag("use_4bit_quantization")),
        ("use_8bit_quantization", 8, keys.flag("use_8bit_quantization")),
        ("use_4bit", 4, keys.flag("use_4bit")),
        *((name, 4, keys.flag(name)) for name in _QLORA),
    ):
        if on:
            bits = bits or count
            keys.carry(name, ("quantization.bits", bits))
    stated = keys.whole("bits")
    if stated in (4, 8) and bits is None:
        bits = stated
        keys.carry("bits", ("quantization.bits", stated))
    if bits == 4:
        _four_bits(keys)
    off = message("not_quantised", "the base is not quantised, or held another way")
    keys.irrelevant(
        (
            *("load_in_4bit", "load_in_8bit", "use_4bit_quantization", "use_8bit_quantization"),
            *("use_4bit", "bits", "bnb_4bit_quant_type", "quant_type", "use_bnb_nested_quant"),
            *("use_nested_quant", "double_quant", "bnb_4bit_use_double_quant"),
        ),
        off,
    )
    keys.irrelevant(
        ("bnb_4bit_compute_dtype",), message("bnb_compute", "precision says the type of products")
    )
    keys.not_carried(
        ("bnb_4bit_quant_storage", "bnb_4bit_quant_storage_dtype"),
        message("bnb_storage", "the type that 4-bit weights are stored in has no job key"),
    )
    return bits


def _four_bits(keys: Keys) -> None:
    for name in ("bnb_4bit_quant_type", "quant_type"):
        kind = keys.word(name, ("nf4", "fp4"))
        if kind is not None:
            keys.carry(name, ("quantization.type", kind))
    for name in (
        *("use_bnb_nested_quant", "use_nested_quant", "double_quant", "bnb_4bit_use_double_quant"),
    ):
        double = keys.flag(name)
        if double is not None:
            keys.carry(name, ("quantization.double_quant", double))


def _adapter(keys: Keys) -> None:
    for section in (keys, keys.under("peft_config")):
        for name in _RANKS:
            carry_count(section, name, "adapter.r")
        for name in _TARGETS:
            carry_targets(keys.carrier, section.path(name), of=keys.document)
        for name, read in (
            *((name, section.number) for name in ("lora_alpha", "lora_dropout")),
            *((name, section.flag) for name in ("use_rslora", "use_dora")),
        ):
            value = read(name)
            if value is not None:
                section.carry(name, (f"adapter.{name}", value))
        for name in ("lora_target_parameters", "target_parameters"):
            parameters = section.names(name)
            if parameters:
                section.carry(name, ("adapter.target_parameters", list(parameters)))
        for name in ("lora_modules_to_save", "modules_to_save"):
            modules = section.names(name)
            if modules:
                section.carry(name, ("adapter.modules_to_save", list(modules)))


def _close_adapter(keys: Keys) -> None:
    names = (
        *("lora_alpha", "lora_dropout", *_TARGETS),
        *("lora_modules_to_save", "modules_to_save", "use_rslora", "use_dora", *_RANKS),
        *("lora_task_type", "task_type", "init_lora_weights", "peft_type"),
        *("inference_mode", "fan_in_fan_out", "lora_weight_path", "adapter_name_or_path"),
    )
    for section in (keys, keys.under("peft_config")):
        for name in ("lora_bias", "bias"):
            trained = section.value(name) not in (None, "none", False)
            text = message("trained_biases", "trained biases have no job key")
            section.not_carried((name,) if trained else (), text)
            section.irrelevant((name,), message("no_biases", "no biases are trained"))
    rest = message("adapter_rest", "no adapter is trained, or how it begins")
    keys.irrelevant(names, rest)
    keys.under("peft_config").irrelevant(names, rest)
    stacked = message("targets_parameters", "no adapter is trained on stacked experts")
    keys.irrelevant(("lora_target_parameters", "target_parameters"), stacked)
    parts = message("adapter_parts", "this part of the adapter has no job key")
    section = keys.value("peft_config")
    if isinstance(section, Mapping):
        keys.under("peft_config").not_carried(section, parts)


def with_negations(document: ForeignDocument, known: Container[str]) -> ForeignDocument:
    """A launch line with ``--no_packing`` read as ``--packing false``.

    Source: transformers ``hf_argparser.py``: flags that are on by default have such an option.
    """
    if document.form != "shell":
        return document
    tree, lines = dict(document.tree), dict(document.lines)
    for name in document.tree:
        switched = name.removeprefix("no_")
        negates = name != switched and switched in known and switched not in tree
        if negates and tree[name] is True:
            del tree[name]
            tree[switched] = False
            lines[switched] = lines.pop(name, 1)
    return replace(document, tree=tree, lines=lines)


# --- data and lengths -----------------------------------------------------------------------------


def _named_files(value: Any) -> list[str]:
    """Names of files: one, a list of them, or TRL's entries with ``data_files``."""
    if isinstance(value, str):
        return [value]
    found: list[str] = []
    for entry in value if isinstance(value, list) else ():
        files = entry.get("data_files") if isinstance(entry, Mapping) else entry
        listed = files if isinstance(files, list) else [files]
        names = [one for one in listed if isinstance(one, str)]
        if len(names) != len(listed):
            return []
        found.extend(names)
    return found


def carry_data(keys: Keys, document: ForeignDocument) -> None:
    """Files of samples that are here; other data sets are told."""
    for name in DATA:
        training = not name.startswith(("eval", "val", "test"))
        written = _named_files(keys.value(name))
        if written and training and keys.carrier.said("data.path") is None:
            files = local_files(written, document)
            if len(files) == len(written):
                keys.carry(name, ("data.path", list(files) if len(files) > 1 else files[0]))
        keys.not_carried((name,), NO_DATA_HERE)
    parts = message("data_parts", "which part of the data set, and which of its columns")
    keys.irrelevant(
        (
            *("dataset_config", "dataset_config_name", "dataset_train_split", "dataset_split"),
            *("dataset_test_split", "dataset_splits", "dataset_text_field", "dataset_columns"),
            *("dataset_streaming", "streaming", "text_column", "prompt_column", "response_column"),
            *("train_split", "test_split", "dataset_format", "source_max_len_of_data", "splits"),
        ),
        parts,
    )
    cut = message("samples_cut", "it cuts the data set to so many rows: state data.num_samples")
    keys.not_carried(
        ("max_train_samples", "max_eval_samples", "max_samples", "num_samples", "train_samples"),
        cut,
    )
    share = keys.number("validation_split_percentage")
    if share is not None and 0 < share < 100:
        keys.carry("validation_split_percentage", ("data.eval_fraction", share / 100))


def carry_length(keys: Keys) -> None:
    """The longest sequence, under the many names that scripts have for it."""
    key = "training.max_length"
    name = keys.first(
        *("max_length", "max_seq_length", "model_max_length", "block_size", "max_seq_len"),
        *("cutoff_len", "max_sequence_length", "seq_length", "seq_len", "maxlen"),
    )
    if name is not None:
        carry_count(keys, name, key)
        return
    pairs = (("source_max_len", "target_max_len"), ("max_input_length", "max_output_length"))
    for first, second in (*pairs, ("max_source_length", "max_target_length")):
        parts = [keys.whole(one) for one in (first, second)]
        lengths = [part for part in parts if part is not None and part > 0]
        if lengths:
            says: tuple[str, Any] = (key, sum(lengths))
            for one, part in zip((first, second), parts, strict=True):
                if part is not None:
                    keys.carry(one, says)
            return
