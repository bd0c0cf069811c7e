"""Axolotl: DeepSpeed, FSDP and the other degrees of parallelism.

Source: axolotl 0.18.0 ``utils/schemas/fsdp.py``, ``utils/schemas/validation.py`` (the ``fsdp_``
prefix is dropped) and ``deepspeed_configs/`` at 067b021c8.
"""

from __future__ import annotations

import math
from typing import Final

from tuneplan.formats import typed_values as typed
from tuneplan.formats.carrying import Carrier
from tuneplan.formats.deepspeed import follow_engine
from tuneplan.formats.foreign import Companion
from tuneplan.formats.fsdp import WORDS, carry_fsdp
from tuneplan.formats.keys import Keys
from tuneplan.language import message

_DEGREES: Final = {
    "tensor_parallel_size": "parallelism.tensor",
    "context_parallel_size": "parallelism.context",
    "sequence_parallel_degree": "parallelism.context",
    "expert_parallel_size": "parallelism.expert",
}


def carry_parallelism(carrier: Carrier, companion: Companion) -> None:
    """The ``parallelism`` section, and the number of cards where the degrees tell it."""
    both = carrier.value("deepspeed") and (carrier.value("fsdp") or carrier.value("fsdp_config"))
    if both:
        carrier.wrong(
            "deepspeed",
            message("deepspeed_and_fsdp", "deepspeed and fsdp cannot both shard the model"),
            how_to_fix=message("keep_one", "keep one of them"),
        )
    else:
        follow_engine(Keys(carrier=carrier), "deepspeed", companion)
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


def _fsdp(carrier: Carrier) -> None:
    words = typed.names(carrier, "fsdp") or ()
    options = typed.section(carrier, "fsdp_config") or {}
    if not words and not options:
        off = message("not_sharded", "FSDP is off")
        carrier.irrelevant(("fsdp", "fsdp_version", "fsdp_config"), off)
        return
    unknown = [word for word in words if word not in WORDS]
    if unknown:
        typed.not_one_of(carrier, "fsdp", unknown[0], WORDS)
        return
    version = typed.whole(carrier, "fsdp_version") or 1
    carry_fsdp(Keys(carrier=carrier, below="fsdp_config"), default_version=version, words=words)
    strategy = carrier.said("parallelism.strategy")
    for path in ("fsdp", "fsdp_version"):
        if carrier.value(path) is not None:
            carrier.carry(path, ("parallelism.strategy", strategy))


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
