"""Facts that only measured rows state: read once, here, from their free spelling.

Names and spellings (any subset): ``kbit_prep`` (yes, no), ``kernels`` (fms-acceleration plugin
names), ``fused_ce`` (no, yes, liger, ``liger FLCE``, ``unsloth CE (foak)``, ``chunked CE``),
``amp_dtype`` (none, bf16, fp16), ``compute_dtype``, ``param_dtype``, ``attention`` (flash, sdpa,
eager), ``activation_checkpointing`` (none, full, selective), ``parallelism`` (``single``,
``fsdp full_shard dp=2``, ``zero=3``, ``ddp``...), ``length_kind``, ``double_quant``, ``compile``,
``optimizer_in_backward`` (yes), ``launches`` (blocking). What says "unknown" or nothing is not a
fact.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tuneplan.frozen import dataclass
from tuneplan.spec.parallelism import Strategy

_BLANK: Final = frozenset({"", "unknown", "not stated", "n/a"})
_DTYPES: Final = {
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "fp16": "float16",
    "float16": "float16",
    "fp32": "float32",
    "float32": "float32",
}
_YES_NO: Final = {"yes": True, "true": True, "no": False, "false": False, "none": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredFacts:
    """The facts of one row; None = not stated.

    Attributes:
        amp: ``none``, ``bf16`` or ``fp16``: whether the products ran under autocast.
        strategy: Read from the ``parallelism`` text.
        degrees: Tensor, pipeline, context, expert and sequence degrees in that text above 1.
        fixed_length: Every sample is as long as ``max_length``, so nothing is padded.
        padding_free: Samples stand one behind the other in one row.
        half_masters: The engine's master weights and states are half precision as well.
    """

    kbit_prep: bool | None = None
    kernels: str | None = None
    fused_ce: str | None = None
    amp: str | None = None
    compute_dtype: str | None = None
    param_dtype: str | None = None
    attention: str | None = None
    checkpointing: str | None = None
    strategy: Strategy | None = None
    degrees: Mapping[str, int] | None = None
    shard_grad_op: bool = False
    fixed_length: bool = False
    padding_free: bool = False
    double_quant: bool | None = None
    half_masters: bool = False
    optimizer_in_backward: bool = False
    blocking_launches: bool = False
    compiled: bool | None = None

    def kernel(self, word: str) -> bool:
        """Whether the plugin list names a kernel family (``foak``, ``liger``, ...)."""
        return self.kernels is not None and word in self.kernels


def read_facts(facts: Mapping[str, str]) -> MeasuredFacts:
    """The facts of a measured row from their words."""
    known = {key: value.strip() for key, value in facts.items() if value.strip() not in _BLANK}
    length = known.get("length_kind", "")
    layout = known.get("parallelism", "").lower()
    param_dtype = re.split(r"[ +]", known.get("param_dtype", ""))[0]
    return MeasuredFacts(
        kbit_prep=_YES_NO.get(known.get("kbit_prep", "")),
        kernels=known.get("kernels"),
        fused_ce=known.get("fused_ce"),
        amp=known.get("amp_dtype"),
        compute_dtype=_DTYPES.get(known.get("compute_dtype", "")),
        param_dtype=_DTYPES.get(param_dtype),
        attention=known.get("attention"),
        checkpointing=known.get("activation_checkpointing"),
        strategy=_strategy(layout),
        degrees=_degrees(layout),
        shard_grad_op="shard_grad_op" in layout,
        fixed_length=length.startswith("fixed"),
        padding_free=length.startswith("padding-free")
        or "padding-free" in known.get("kernels", ""),
        double_quant=_YES_NO.get(known.get("double_quant", "")),
        half_masters="bf16 master" in known.get("param_dtype", ""),
        optimizer_in_backward=known.get("optimizer_in_backward") == "yes",
        blocking_launches=known.get("launches") == "blocking",
        compiled=_YES_NO.get(known.get("compile", "")),
    )


def _strategy(layout: str) -> Strategy | None:
    layout = re.sub(r"\bfsdp\s*=\s*[01]\b", "", layout)  # a degree of FSDP: over nothing
    zero = re.search(r"zero[= -]?([123])", layout)
    if zero is not None:
        return (Strategy.ZERO1, Strategy.ZERO2, Strategy.ZERO3)[int(zero[1]) - 1]
    for words, strategy in (
        ("no_shard", Strategy.DDP),
        ("shard_grad_op", Strategy.ZERO2),
        ("device_map", Strategy.DEVICE_MAP),
        ("hsdp", Strategy.HSDP),
        ("fsdp2", Strategy.FSDP2),
        ("fsdp", Strategy.FSDP),
        ("ddp", Strategy.DDP),
        ("single", Strategy.SINGLE),
    ):
        if words in layout:
            return strategy
    return None


def _degrees(layout: str) -> Mapping[str, int]:
    names = {"tp": "tensor", "pp": "pipeline", "cp": "context", "ep": "expert"}
    found: dict[str, int] = {}
    for key, value in re.findall(r"\b(tp|pp|cp|ep|ulysses_sp)=(\d+)", layout):
        if int(value) > 1:
            found[names.get(key, "context")] = int(value)
    return found
