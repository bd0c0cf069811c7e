"""LitGPT: precision, batches, optimizer, evaluation, cards.

Source: litgpt 0.5.13 ``litgpt/args.py`` (``gradient_accumulation_iters`` rounds down),
``finetune/lora.py`` and ``utils.py`` (``instantiate_bnb_optimizer``) at 26857050.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tuneplan.formats import typed_values as typed
from tuneplan.formats.carrying import Carrier
from tuneplan.language import message

_PRECISIONS: Final = {
    "bf16-true": ("bfloat16", "none"),
    "16-true": ("float16", "none"),
    "32-true": ("float32", "fp32"),
    "bf16-mixed": ("float32", "bf16"),
    "16-mixed": ("float32", "fp16"),
}
_OPTIMIZERS: Final = {
    "bitsandbytes.optim.AdamW8bit": "adamw_bnb_8bit",
    "bitsandbytes.optim.PagedAdamW": "paged_adamw_32bit",
    "bitsandbytes.optim.PagedAdamW8bit": "paged_adamw_8bit",
    "torch.optim.Adafactor": "adafactor",
}


def carry_training(carrier: Carrier) -> None:
    """The ``training`` and ``hardware`` sections."""
    precision = typed.word(carrier, "precision", tuple(_PRECISIONS))
    if precision is not None:
        dtype, compute = _PRECISIONS[precision]
        carrier.carry("precision", ("training.dtype", dtype), ("training.precision", compute))
        if precision.endswith("mixed") and carrier.value("quantize"):
            text = message("quantised_and_mixed", "a quantised base needs bf16-true or 16-true")
            carrier.wrong("precision", text, near=("bf16-true", "16-true"))
    for path, job_key, read in (
        ("train.micro_batch_size", "training.per_device_train_batch_size", typed.whole),
        ("train.epochs", "training.num_train_epochs", typed.number),
        ("train.max_steps", "training.max_steps", typed.whole),
        ("train.max_seq_length", "training.max_length", typed.whole),
        ("train.max_norm", "training.max_grad_norm", typed.number),
        ("train.save_interval", "training.save_steps", typed.whole),
        ("eval.interval", "training.eval_steps", typed.whole),
    ):
        value = read(carrier, path)
        if value is not None:
            carrier.carry(path, (job_key, value))
    _cards(carrier)
    _batch(carrier)
    _tokens(carrier)
    _optimizer(carrier)


def _cards(carrier: Carrier) -> None:
    auto = carrier.value("devices")
    if isinstance(auto, str) and auto.strip() in ("auto", "-1"):
        carrier.irrelevant(("devices",), message("devices_auto", "all cards that are there"))
    else:
        devices = typed.whole(carrier, "devices")
        if devices is not None and devices > 0:
            carrier.carry("devices", ("hardware.accelerators_per_node", devices))
        carrier.irrelevant(("devices",), message("devices_auto", "all cards that are there"))
    nodes = typed.whole(carrier, "num_nodes")
    if nodes is not None:
        carrier.carry("num_nodes", ("hardware.num_nodes", nodes))


def _batch(carrier: Carrier) -> None:
    """The global batch; where it does not divide, the micro-batches that LitGPT makes of it."""
    path = "train.global_batch_size"
    total, micro = typed.whole(carrier, path), typed.whole(carrier, "train.micro_batch_size")
    if total is None:
        return
    micro = micro or 1
    cards = carrier.said("hardware.accelerators_per_node") or 1
    cards *= carrier.said("hardware.num_nodes") or 1
    if total < 1 or micro < 1 or cards < 1:
        carrier.carry(path, ("training.global_batch_size", total))
        return
    steps = total // cards // micro
    if steps < 1:
        text = message(
            "global_batch_too_small",
            "{total} samples a step are less than {micro} on each of {cards} {cards:~card/cards}",
            total=total,
            micro=micro,
            cards=cards,
        )
        carrier.wrong(path, text, near=(str(micro * cards),))
    elif steps * micro * cards == total:
        carrier.carry(path, ("training.global_batch_size", total))
    else:
        carrier.carry(path, ("training.gradient_accumulation_steps", steps))
        text = message(
            "global_batch_rounded_down",
            "{total} samples a step are {steps} {steps:~micro-batch/micro-batches} of {micro} on "
            "each of {cards} {cards:~card/cards}, rounded down as LitGPT does",
            total=total,
            steps=steps,
            micro=micro,
            cards=cards,
        )
        carrier.notice(path, text)


def _tokens(carrier: Carrier) -> None:
    """``max_tokens`` of pre-training: whole rows of ``max_seq_length`` tokens."""
    path = "train.max_tokens"
    tokens = typed.whole(carrier, path)
    total, length = (
        typed.whole(carrier, f"train.{name}") for name in ("global_batch_size", "max_seq_length")
    )
    if tokens is None:
        return
    if total and length and total > 0 and length > 0 and tokens > 0:
        carrier.carry(path, ("training.max_steps", max(1, tokens // (total * length))))
    else:
        text = message("tokens_without_length", "without max_seq_length it gives no steps")
        carrier.not_carried((path,), text)


def _optimizer(carrier: Carrier) -> None:
    value = carrier.value("optimizer")
    path = "optimizer.class_path" if isinstance(value, Mapping) else "optimizer"
    named = typed.text(carrier, path)
    if named is None:
        return
    leaf = named.rpartition(".")[2]
    if leaf in ("AdamW", "Adam"):
        name = "paged_adamw_32bit" if carrier.value("quantize") else "adamw_torch"
    elif leaf == "SGD":
        momentum = carrier.value("optimizer.init_args.momentum")
        name = "sgd_momentum" if momentum else "sgd"
    else:
        name = _OPTIMIZERS.get(named, leaf.lower())
    carrier.carry(path, ("training.optim", name))
