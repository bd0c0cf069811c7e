"""FSDP as accelerate and the Trainer spell it, with or without ``fsdp_`` before each name.

Sources: accelerate 1.15 ``utils/dataclasses.py FullyShardedDataParallelPlugin`` and
``utils/constants.py`` at 16cb6eb8; transformers 5.24 ``training_args.py _process_fsdp_args``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tuneplan.formats.keys import Keys
from tuneplan.language import message

# accelerate utils/constants.py FSDP_SHARDING_STRATEGY; torch numbers them from 1.
SHARDING: Final = ("full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2")
WORDS: Final = (*SHARDING, "offload", "auto_wrap")
_LOADING: Final = (
    *("auto_wrap_policy", "transformer_layer_cls_to_wrap", "min_num_params", "backward_prefetch"),
    *("forward_prefetch", "state_dict_type", "use_orig_params", "sync_module_states", "xla"),
    *("cpu_ram_efficient_loading", "limit_all_gathers", "ignored_modules", "final_state_dict_type"),
    *("backward_prefetch_policy", "cpu_offload_pin_memory", "xla_fsdp_settings", "xla_fsdp_v2"),
    *("xla_fsdp_grad_ckpt", "every_n_layers", "transformer_cls_names_to_wrap", "enable"),
)
KNOWN: Final = (
    *("version", "sharding_strategy", "reshard_after_forward", "offload_params", "cpu_offload"),
    *("activation_checkpointing", *_LOADING),
)


def carry_fsdp(keys: Keys, *, default_version: int, words: Sequence[str] = ()) -> None:
    """The strategy, off-loading and checkpointing of FSDP.

    Args:
        keys: The section, or the launch line.
        default_version: What a blank version is.
        words: What the Trainer's ``fsdp`` lists beside the section.
    """
    version = _version(keys) or default_version
    sharding = _sharding(keys) or next((word for word in words if word in SHARDING), "full_shard")
    strategy = _strategy(keys, sharding, version)
    for name in ("version", "sharding_strategy", "reshard_after_forward"):
        written = _name(keys, name)
        if keys.value(written) is not None:
            keys.agree(written, "parallelism.strategy", strategy)
    if keys.carrier.said("parallelism.strategy") is None:
        keys.carrier.say("parallelism.strategy", strategy)
    _offload(keys, words)
    _checkpointing(keys)
    loads = message("key_fsdp_loading", "how FSDP wraps, loads or saves, not what it holds")
    keys.irrelevant((each for name in _LOADING for each in (name, f"fsdp_{name}")), loads)
    policy = message("fsdp_policy", "the framework's own mixed precision is counted")
    keys.not_carried(("mixed_precision_policy", "fsdp_mixed_precision_policy"), policy)


def _name(keys: Keys, name: str) -> str:
    return name if keys.holds(name) else f"fsdp_{name}"


def _version(keys: Keys) -> int | None:
    written = _name(keys, "version")
    version = keys.whole(written)
    if version is not None and version not in (1, 2):
        keys.wrong(written, message("fsdp_versions", "FSDP has the versions 1 and 2"))
    return version


def _sharding(keys: Keys) -> str | None:
    """The sharding strategy: a word, torch's number for it, or FSDP2's switch."""
    for name in ("sharding_strategy", "reshard_after_forward"):
        written = _name(keys, name)
        value = keys.value(written)
        if value is None:
            continue
        if isinstance(value, bool) or str(value).lower() in ("true", "false"):
            return "full_shard" if keys.flag(written) else "shard_grad_op"
        if isinstance(value, int) or (isinstance(value, str) and value.isdecimal()):
            number = keys.whole(written) or 0
            if 1 <= number <= len(SHARDING):
                return SHARDING[number - 1]
        return keys.word(written, SHARDING)
    return None


def _strategy(keys: Keys, sharding: str, version: int) -> str:
    if sharding == "no_shard":
        return "ddp"
    if sharding.startswith("hybrid_shard"):
        return "hsdp"
    if sharding == "shard_grad_op":
        text = message(
            "shard_grad_op",
            "FSDP with SHARD_GRAD_OP is counted as ZeRO-2: weights stay whole on each rank",
        )
        keys.notice(_name(keys, "sharding_strategy"), text)
        return "zero2"
    return "fsdp2" if version == 2 else "fsdp"


def _offload(keys: Keys, words: Sequence[str]) -> None:
    for name in ("offload_params", "cpu_offload"):
        written = _name(keys, name)
        on = keys.flag(written)
        if on:
            keys.agree(written, "parallelism.offload", "params")
        elif on is False:
            keys.irrelevant((written,), message("fsdp_not_offloaded", "nothing is off-loaded"))
    if "offload" in words:
        keys.carrier.say("parallelism.offload", "params")


def _checkpointing(keys: Keys) -> None:
    key = "training.gradient_checkpointing"
    for name in ("activation_checkpointing", "activation_cpu_offload"):
        written = _name(keys, name)
        on = keys.flag(written)
        kind: bool | str = "offload" if name == "activation_cpu_offload" else True
        if on and keys.carrier.said(key) in (None, False, True):
            keys.carry(written, (key, kind))
        off = message("fsdp_not_checkpointing", "FSDP itself checkpoints nothing")
        keys.irrelevant((written,), off)
