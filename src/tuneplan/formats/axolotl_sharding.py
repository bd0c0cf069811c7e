"""Axolotl: DeepSpeed, FSDP and the other degrees of parallelism.

Source: axolotl 0.18.0 ``utils/schemas/fsdp.py``, ``utils/schemas/validation.py`` (the ``fsdp_``
prefix is dropped) and ``deepspeed_configs/`` at 067b021c8.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final

from tuneplan.formats import typed_values as typed
from tuneplan.formats.carrying import Carrier
from tuneplan.formats.foreign import Companion, ForeignDocument
from tuneplan.language import message

_SHIPPED: Final = re.compile(r"zero([123])(?:_\w+)?\.json$")
_FSDP_WORDS: Final = ("full_shard", "shard_grad_op", "hybrid_shard", "no_shard", "offload")
_DEGREES: Final = {
    "tensor_parallel_size": "parallelism.tensor",
    "context_parallel_size": "parallelism.context",
    "sequence_parallel_degree": "parallelism.context",
    "expert_parallel_size": "parallelism.expert",
}
_LOADING: Final = (
    *("cpu_ram_efficient_loading", "sync_module_states", "state_dict_type", "use_orig_params"),
    *("final_state_dict_type", "limit_all_gathers", "auto_wrap_policy", "min_num_params"),
    *("transformer_layer_cls_to_wrap", "cpu_offload_pin_memory", "forward_prefetch", "version"),
    *("backward_prefetch", "fsdp_version", "offload_params", "activation_checkpointing"),
)


def carry_parallelism(carrier: Carrier, companion: Companion) -> None:
    """The ``parallelism`` section, and the number of cards where the degrees tell it."""
    both = carrier.value("deepspeed") and (carrier.value("fsdp") or carrier.value("fsdp_config"))
    if both:
        carrier.wrong(
            "deepspeed",
            message("deepspeed_and_fsdp", "deepspeed and fsdp cannot both shard the model"),
            how_to_fix=message("keep_one", "keep one of them"),
        )
    _deepspeed(carrier, companion)
    _fsdp(carrier)
    for path, job_key in _DEGREES.items():
        degree = typed.whole(carrier, path)
        if degree is not None:
            carrier.carry(path, (job_key, max(1, degree)))
    _mesh(carrier)
    workers = typed.whole(carrier, "ray_num_workers")
    if workers is not None and typed.flag(carrier, "use_ray"):
        carrier.carry("ray_num_workers", ("hardware.accelerators_per_node", workers))
        carrier.carry("use_ray")
    carrier.irrelevant(("use_ray", "ray_num_workers"), message("no_ray", "Ray starts nothing"))


def _deepspeed(carrier: Carrier, companion: Companion) -> None:
    written = carrier.value("deepspeed")
    if isinstance(written, str) and written.strip():
        document = companion(written)
        if document is not None:
            _stage(carrier, document)
            return
        match = _SHIPPED.search(written)
        if match is None:
            text = message("file_not_here", "{name} is not here", name=written)
            carrier.not_carried(("deepspeed",), text)
            carrier.notice("deepspeed", text)
            return
        offload = "params" if "cpuoffload" in written else None
        carrier.carry("deepspeed", ("parallelism.strategy", f"zero{match[1]}"))
        if offload is not None:
            carrier.carry("deepspeed", ("parallelism.offload", offload))
        text = message(
            "file_by_name",
            "{name} is not here; it is taken as the file of that name that comes with Axolotl",
            name=written,
        )
        carrier.notice("deepspeed", text)


def _stage(carrier: Carrier, document: ForeignDocument) -> None:
    zero = document.tree.get("zero_optimization")
    options = zero if isinstance(zero, Mapping) else {}
    stage = options.get("stage")
    if stage in (1, 2, 3):
        carrier.carry("deepspeed", ("parallelism.strategy", f"zero{stage}"))


def _fsdp(carrier: Carrier) -> None:
    words = typed.names(carrier, "fsdp") or ()
    options = typed.section(carrier, "fsdp_config") or {}
    if not words and not options:
        carrier.irrelevant(("fsdp", "fsdp_version"), message("not_sharded", "FSDP is off"))
        return
    unknown = [word for word in words if word not in (*_FSDP_WORDS, "auto_wrap")]
    if unknown:
        typed.not_one_of(carrier, "fsdp", unknown[0], (*_FSDP_WORDS, "auto_wrap"))
    strategy = _strategy(carrier, words)
    for path in ("fsdp", "fsdp_version", "fsdp_config.fsdp_version"):
        if carrier.value(path) is not None:
            carrier.carry(path, ("parallelism.strategy", strategy))
    carrier.say("parallelism.strategy", strategy)
    if "offload" in words or _option(carrier, "offload_params"):
        carrier.say("parallelism.offload", "params")
        _carry_option(carrier, "offload_params", ("parallelism.offload", "params"))
    if _option(carrier, "activation_checkpointing"):
        switch = ("training.gradient_checkpointing", True)
        if carrier.said("training.gradient_checkpointing") in (None, False):
            _carry_option(carrier, "activation_checkpointing", switch)
    _reshard(carrier)
    loads = message(
        "key_fsdp_loading", "it tells how FSDP wraps, loads or saves, not what it holds"
    )
    for name in _LOADING:
        carrier.irrelevant((f"fsdp_config.{name}", f"fsdp_config.fsdp_{name}"), loads)
    policy = message("fsdp_policy", "the framework's mixed precision is counted")
    carrier.not_carried(("fsdp_config.mixed_precision_policy",), policy)


def _strategy(carrier: Carrier, words: tuple[str, ...]) -> str:
    sharding = str(_option(carrier, "sharding_strategy") or "").lower()
    second = any(
        typed.whole(carrier, path) == 2
        for path in ("fsdp_version", "fsdp_config.fsdp_version", "fsdp_config.version")
    )
    named = {*words, sharding}
    if sharding:
        path = _path(carrier, "sharding_strategy")
        allowed = (*_FSDP_WORDS[:-1], "hybrid_shard_zero2")
        if sharding not in allowed:
            typed.not_one_of(carrier, path, sharding, allowed)
        else:
            carrier.carry(path)
    if "no_shard" in named:
        return "ddp"
    if named & {"hybrid_shard", "hybrid_shard_zero2"}:
        return "hsdp"
    if "shard_grad_op" in named:
        text = message(
            "shard_grad_op_gathers",
            "shard_grad_op keeps gathered weights until the backward pass; full sharding is "
            "counted, which holds less",
        )
        carrier.notice("fsdp", text)
    return "fsdp2" if second else "fsdp"


def _reshard(carrier: Carrier) -> None:
    path = _path(carrier, "reshard_after_forward")
    if carrier.value(path) is False:
        text = message("keeps_gathered", "weights that stay gathered are not counted")
        carrier.not_carried((path,), text)
    carrier.irrelevant((path,), message("reshards", "layers are freed after use, as counted"))


def _mesh(carrier: Carrier) -> None:
    """``dp_shard_size`` and ``dp_replicate_size``: with the other degrees, all cards of the job."""
    shard, copies = (typed.whole(carrier, f"dp_{name}_size") for name in ("shard", "replicate"))
    if (shard or 1) > 1 or (copies or 1) > 1:
        others = [carrier.said(key) for key in set(_DEGREES.values()) - {"parallelism.expert"}]
        degrees = [shard, copies, *others]
        cards = math.prod(max(1, one) for one in degrees if isinstance(one, int))
        if carrier.said("parallelism.strategy") in (None, "fsdp", "fsdp2"):
            kind = "hsdp" if (shard or 1) > 1 and (copies or 1) > 1 else None
            if kind:
                carrier.say("parallelism.strategy", kind)
        for path in ("dp_shard_size", "dp_replicate_size"):
            if carrier.value(path) is not None:
                carrier.carry(path, ("hardware.accelerators_per_node", cards))
    one = message("mesh_of_one", "this axis of the mesh has one rank")
    carrier.irrelevant(("dp_shard_size", "dp_replicate_size"), one)


def _path(carrier: Carrier, name: str) -> str:
    plain = f"fsdp_config.{name}"
    return plain if carrier.holds(plain) else f"fsdp_config.fsdp_{name}"


def _option(carrier: Carrier, name: str) -> object:
    path = _path(carrier, name)
    value = carrier.value(path)
    if isinstance(value, bool) or value is None or name == "sharding_strategy":
        return value
    return typed.flag(carrier, path)


def _carry_option(carrier: Carrier, name: str, says: tuple[str, object]) -> None:
    path = _path(carrier, name)
    if carrier.holds(path):
        carrier.carry(path, says)
