"""Mistakes about memory: room left unused, none left, what a layout or a chip does not do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tuneplan.diagnosis.finding import Case, Finding, Severity
from tuneplan.language import Message, message
from tuneplan.spec.parallelism import Strategy
from tuneplan.spec.recipe import Checkpointing, DType
from tuneplan.units import format_gib

_WORTH_SAYING: Final = 0.03  # of the time of a position
_SPLITS_LITTLE: Final = 0.15  # of a card's peak


def checkpointing_with_room(case: Case) -> Iterator[Finding]:
    """Activations are computed twice although there is room to keep them."""
    variant, now = case.variants.get("no_checkpointing"), case.now
    if case.recipe.gradient_checkpointing is Checkpointing.NONE or variant is None:
        return
    then = variant.outcome
    if then.free_fraction is None or not then.fits or not then.keeps(case.headroom_fraction):
        return
    if not now.positions_per_s or not then.positions_per_s:
        return
    saved = 1 - now.positions_per_s / then.positions_per_s
    if saved < _WORTH_SAYING:
        return
    yield Finding(
        rule="checkpointing_with_room",
        severity=Severity.WARNING,
        keys=("training.gradient_checkpointing",),
        message=message(
            "lint_checkpointing_with_room",
            "checkpointing is on, yet without it the job needs {need} of {capacity}, "
            "{free:.0%} of the card still free, and steps take {saved:.0%} less time",
            need=format_gib(then.needed_bytes or 0.0),
            capacity=format_gib(then.capacity_bytes or 0),
            free=then.free_fraction,
            saved=saved,
        ),
        evidence={
            "needed_bytes": round(now.needed_bytes or 0),
            "needed_bytes_then": round(then.needed_bytes or 0),
            "capacity_bytes": then.capacity_bytes,
            "saved_time_fraction": saved,
        },
        fix=message("lint_no_checkpointing", "switch it off (gradient_checkpointing: false)"),
    )


def _chance(probability: float) -> Message | str:
    """A probability that is never told as a certainty."""
    if probability > 0.99:
        return message("lint_nearly_surely", "over 99%")
    return f"{probability:.0%}"


def no_headroom(case: Case) -> Iterator[Finding]:
    """It fits, with less of the card free than a longer batch or another driver may take."""
    now = case.now
    free = now.free_fraction
    if free is None or now.does_not_fit or free < 0 or now.keeps(case.headroom_fraction):
        return
    yield Finding(
        rule="no_headroom",
        severity=Severity.ADVICE if now.fits else Severity.WARNING,
        keys=("hardware.accelerator", "training.per_device_train_batch_size"),
        message=message(
            "lint_no_headroom",
            "{free:.0%} of the card stays free ({room} of {capacity}), less than the head-room of "
            "{wanted:.0%}: a longer batch, fragmentation or another process may end the run "
            "(it fits with {chance} probability)",
            free=free,
            room=format_gib((now.capacity_bytes or 0) - (now.needed_bytes or 0)),
            capacity=format_gib(now.capacity_bytes or 0),
            wanted=case.headroom_fraction,
            chance=_chance(now.probability_fits or 0.0),
        ),
        evidence={
            "needed_bytes": round(now.needed_bytes or 0),
            "capacity_bytes": now.capacity_bytes,
            "free_fraction": free,
            "headroom_fraction": case.headroom_fraction,
            "probability_fits": now.probability_fits,
        },
        fix=message(
            "lint_make_room",
            "take a change that gives memory back (tuneplan check lists those), or a larger card",
        ),
    )


def bf16_not_native(case: Case) -> Iterator[Finding]:
    """bf16 on a chip without bf16 arithmetic."""
    chip = case.accelerator
    if chip is None or chip.supports_bf16 or case.recipe.compute_dtype is not DType.BFLOAT16:
        return
    yield Finding(
        rule="bf16_not_native",
        severity=Severity.ERROR,
        keys=("training.precision", "training.dtype"),
        message=message(
            "lint_bf16_not_native",
            "{chip} (compute capability {capability}) has no bf16 arithmetic: frameworks refuse "
            "bf16 there or PyTorch emulates it, many times slower",
            chip=chip.name,
            capability=chip.compute_capability or "?",
        ),
        evidence={"accelerator": chip.name, "compute_capability": chip.compute_capability},
        fix=message(
            "lint_fp16_instead", "compute in fp16 (precision: fp16), or take a chip that has bf16"
        ),
    )


def zero2_splits_no_weights(case: Case) -> Iterator[Finding]:
    """ZeRO-1 and ZeRO-2 leave the weights whole on each card."""
    strategy = case.parallelism.strategy
    if strategy not in (Strategy.ZERO1, Strategy.ZERO2) or case.ranks == 1:
        return
    now, variant = case.now, case.variants.get("zero3")
    short = not now.keeps(case.headroom_fraction)
    splits = case.split_bytes / now.peak_bytes if now.peak_bytes else 0.0
    if not short and splits >= _SPLITS_LITTLE:
        return
    then = variant.outcome if variant else None
    yield Finding(
        rule="zero2_splits_no_weights",
        severity=Severity.WARNING if short else Severity.ADVICE,
        keys=("parallelism.strategy",),
        message=message(
            "lint_zero2",
            "{layout} splits {what} over the {ranks} cards, {split} of them on each; the weights, "
            "{weights}, stay whole on every card",
            layout="ZeRO-2" if strategy is Strategy.ZERO2 else "ZeRO-1",
            what=_split_by(strategy),
            ranks=case.ranks,
            split=format_gib(case.split_bytes),
            weights=format_gib(case.weights_bytes),
        ),
        evidence={
            "weights_bytes": round(case.weights_bytes),
            "split_bytes": round(case.split_bytes),
            "peak_bytes": round(now.peak_bytes),
            "ranks": case.ranks,
            "peak_bytes_zero3": None if then is None else round(then.peak_bytes),
        },
        fix=_zero3(then.peak_bytes, now.peak_bytes) if then is not None else None,
    )


def _split_by(strategy: Strategy) -> Message:
    if strategy is Strategy.ZERO1:
        return message("lint_states", "optimizer states")
    return message("lint_gradients_and_states", "gradients and optimizer states")


def _zero3(then_bytes: float, now_bytes: float) -> Message:
    return message(
        "lint_zero3",
        "to split the weights take ZeRO-3 or FSDP: the peak is {then} instead of {now}",
        then=format_gib(then_bytes),
        now=format_gib(now_bytes),
    )
