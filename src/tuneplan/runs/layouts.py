"""How a run was spread over its cards, read from the words of its columns."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Final

from tuneplan.runs.rows import MeasuredRun
from tuneplan.runs.skips import Skip, skip
from tuneplan.spec.stated import StatedParallelism

_STRATEGIES: Final = (
    (re.compile(r"no_shard"), "ddp"),
    (re.compile(r"device_map"), "device_map"),
    (re.compile(r"hsdp|hybrid_shard"), "hsdp"),
    (re.compile(r"fsdp2"), "fsdp2"),
    (re.compile(r"fsdp"), "fsdp"),
    (re.compile(r"\bddp\b"), "ddp"),
    (re.compile(r"single"), "single"),
)
_ZERO: Final = re.compile(r"zero[= _-]?([0-3])")
_SHARDED_OVER_NONE: Final = re.compile(r"\bfsdp\s*=\s*[01]\b,?")
_DEGREE: Final = re.compile(r"\b(fsdp|tp|pp|cp|ep|dp|vp|ulysses_sp|sp)\s*=\s*(\d+)")
_WORDS: Final = re.compile(r"[a-z_]+\d?")
_READ: Final = frozenset(
    [
        "single",
        "ddp",
        "fsdp",
        "fsdp2",
        "hsdp",
        "full_shard",
        "no_shard",
        "shard_grad_op",
        "hybrid_shard",
        "device_map",
        "naive",
        "pipeline",
        "deepspeed",
        "zero",
        "zero1",
        "zero2",
        "zero3",
        "gpu",
        "dp",
        "tp",
        "pp",
        "cp",
        "ep",
        "vp",
        "ulysses_sp",
        "n",
        "a",
        "sp",
        "distributed_optimizer",
    ]
)
_OFFLOADS: Final = MappingProxyType(
    {
        "": None,
        "no": "none",
        "none": "none",
        "cpu": "params",
        "params": "params",
        "optimizer": "optimizer",
        "optimizer->cpu": "optimizer",
        "params+optimizer": "params",
        "optimizer->cpu+params->cpu": "params",
        "cpu optimizer/param offload": "params",
    }
)
_ACTIVATIONS: Final = re.compile(r"\+?\s*(act(ivation)?s?( ckpt)?( *->| to)? *cpu|activations?)$")


def parallelism_of(run: MeasuredRun) -> StatedParallelism | Skip:
    """The layout of a run, or why it cannot be said.

    ``fsdp full_shard dp=2``, ``ddp (fsdp no_shard)``, ``zero=3``, ``tp=4,pp=4,dp=2``,
    ``deepspeed zero=2 (single GPU)``, ``device_map (naive pipeline)``; blank = the program's own.
    """
    text = _SHARDED_OVER_NONE.sub("", run.words["parallelism"].casefold())
    degrees = {name: int(value) for name, value in _DEGREE.findall(text)}
    problem = _unclear(text) or _unsupported(run, text, degrees)
    if problem is not None:
        return problem
    offload = offload_of(run)
    return (
        offload
        if isinstance(offload, Skip)
        else StatedParallelism(
            strategy=_strategy(run, text),
            tensor=degrees.get("tp", 1),
            pipeline=degrees.get("pp", 1),
            context=degrees.get("cp", 1),
            expert=degrees.get("ep", 1),
            offload=offload,
        )
    )


def offload_of(run: MeasuredRun) -> str | Skip | None:
    """``none``, ``optimizer``, ``params``, or None where nothing is stated."""
    text = _ACTIVATIONS.sub("", run.words["offload"].casefold()).strip()
    if text not in _OFFLOADS:
        return skip("offload_unclear", "the offload {text!r} is not understood", text=text)
    return _OFFLOADS[text]


def offloads_activations(run: MeasuredRun) -> bool:
    """Whether the kept layer inputs go to the host."""
    return bool(_ACTIVATIONS.search(run.words["offload"].casefold()))


def _unclear(text: str) -> Skip | None:
    several = len({name for pattern, name in _STRATEGIES if pattern.search(text)}) > 1
    plain = re.sub(r"ddp \(fsdp no_shard\)", "no_shard", text)
    if ";" in text and several and not _DEGREE.search(text):
        return skip(
            "layout_unclear", "the layout {text!r} names several; which one ran is open", text=text
        )
    unknown = [word for word in _WORDS.findall(plain) if word not in _READ]
    if unknown:
        return skip("layout_unclear", "the layout {text!r} is not understood", text=text)
    return None


def _unsupported(run: MeasuredRun, text: str, degrees: dict[str, int]) -> Skip | None:
    if max(degrees.get("ulysses_sp", 1), degrees.get("sp", 1)) > 1:
        return skip(
            "sequence_parallel",
            "sequence parallelism over {degree} cards (Ulysses) has no formula yet",
            degree=max(degrees.get("ulysses_sp", 1), degrees.get("sp", 1)),
        )
    product = 1
    for name in ("dp", "tp", "pp", "cp"):
        product *= degrees.get(name, 1)
    # Where experts are spread, NeMo's tables print the replicas of an expert as dp.
    products = (product, product * degrees.get("ep", 1))
    if "dp" in degrees and run.num_accelerators and run.num_accelerators not in products:
        return skip(
            "layout_contradicts",
            "the layout {text!r} needs {needed} cards, the row has {cards}",
            text=text,
            needed=product,
            cards=run.num_accelerators,
        )
    return None


def _strategy(run: MeasuredRun, text: str) -> str | None:
    zero = _ZERO.search(text)
    if zero is not None:
        return f"zero{zero[1]}" if zero[1] != "0" else "ddp"
    if "distributed_optimizer" in text:
        return "zero1"
    found = next((name for pattern, name in _STRATEGIES if pattern.search(text)), None)
    if found == "single" or (found == "device_map" and run.accelerators == 1):
        return None if run.accelerators == 1 else found
    return found
