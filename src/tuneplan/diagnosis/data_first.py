"""Advice: better data before a bigger model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tuneplan.diagnosis.finding import Case, Finding, Severity
from tuneplan.language import Message, message
from tuneplan.units import format_count, format_duration

_LARGE: Final = 20e9  # active parameters
_SMALL: Final = 8e9  # of a model to make the rounds on
_FEW_SAMPLES: Final = 5_000
_MANY_REPEATED: Final = 0.01


def better_data_first(case: Case) -> Iterator[Finding]:
    """Samples that stand twice; a large model on few samples."""
    yield from _repeated(case)
    yield from _large_on_few(case)


def _repeated(case: Case) -> Iterator[Finding]:
    statistics = case.statistics
    if statistics is None or not statistics.num_samples or not case.num_duplicates:
        return
    total = statistics.num_samples + statistics.num_eval_samples
    share = case.num_duplicates / total
    if share < _MANY_REPEATED:
        return
    saved = share * case.now.train_s if case.now.train_s is not None else None
    yield Finding(
        rule="better_data_first",
        severity=Severity.ADVICE,
        keys=("data.path",),
        message=message(
            "lint_duplicates",
            "{count} of {total} samples stand more than once: {share:.1%} of the run trains on "
            "what it has seen already{time}",
            count=format_count(case.num_duplicates),
            total=format_count(total),
            share=share,
            time=_takes(saved),
        ),
        evidence={
            "duplicates": case.num_duplicates,
            "num_samples": total,
            "repeated_fraction": share,
            "repeated_s": saved,
        },
        fix=message("lint_take_out", "take the repeated samples out, or weight them on purpose"),
    )


def _takes(seconds: float | None) -> Message | str:
    if seconds is None:
        return ""
    return message("lint_takes", " ({time})", time=format_duration(seconds))


def _large_on_few(case: Case) -> Iterator[Finding]:
    statistics, active = case.statistics, case.model.active_parameters
    if statistics is None or not 0 < statistics.num_samples < _FEW_SAMPLES or active <= _LARGE:
        return
    total_s = case.now.total_s
    yield Finding(
        rule="better_data_first",
        severity=Severity.ADVICE,
        keys=("model",),
        message=message(
            "lint_large_on_few",
            "{samples} samples for {parameters} active parameters: better data does more than a "
            "bigger model{rounds}",
            samples=format_count(statistics.num_samples),
            parameters=format_count(active),
            rounds=_rounds(total_s, active),
        ),
        evidence={
            "num_samples": statistics.num_samples,
            "active_parameters": active,
            "total_s": total_s,
            "rounds_for_one": active / _SMALL,
        },
        fix=message(
            "lint_rounds_small",
            "make the rounds of looking at samples on a model of the family with 8B or less, and "
            "the last run on this one",
        ),
    )


def _rounds(total_s: float | None, active: int) -> Message | str:
    """How many runs of a small model cost one of this: computing follows active parameters."""
    if total_s is None:
        return ""
    return message(
        "lint_rounds",
        "; for the computing of one run of {time} an 8B model has about {count:.0f}",
        time=format_duration(total_s),
        count=active / _SMALL,
    )
