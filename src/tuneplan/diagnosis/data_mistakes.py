"""Mistakes about the data: samples taken for tokens, too long a context, short rows unpacked."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tuneplan.diagnosis.finding import Case, Finding, Severity
from tuneplan.language import Message, message
from tuneplan.spec.data import TokenStatistics
from tuneplan.units import format_duration, format_gib

_SHORTEST_MEAN_TOKENS: Final = 4.0  # no text has so few tokens a sample: it is a count of samples
_MOST_EPOCHS: Final = 10
_ROOMY: Final = 2.0  # a context so many times the 99th percentile is far longer than the data
_WORTH_PACKING: Final = 0.10  # of the duration
_WORTH_TELLING: Final = 0.01
_WORTH_A_WARNING: Final = 0.03  # of the duration, or of the memory


def samples_as_tokens(case: Case) -> Iterator[Finding]:
    """A number of samples where a number of tokens, or of packed rows, is meant."""
    statistics = case.statistics
    if statistics is None or not statistics.num_samples:
        return
    yield from _tokens_like_samples(case, statistics)
    yield from _steps_of_samples(case, statistics)


def _tokens_like_samples(case: Case, statistics: TokenStatistics) -> Iterator[Finding]:
    mean = statistics.mean_tokens
    if not case.mean_tokens_known or mean >= _SHORTEST_MEAN_TOKENS:
        return
    yield Finding(
        rule="samples_as_tokens",
        severity=Severity.WARNING,
        keys=("data.total_tokens", "data.mean_tokens", "data.num_samples"),
        message=message(
            "lint_tokens_like_samples",
            "{tokens:,} tokens over {samples:,} samples are {mean:.2g} tokens a sample: the tokens "
            "look like a number of samples",
            tokens=statistics.total_tokens,
            samples=statistics.num_samples,
            mean=mean,
        ),
        evidence={
            "total_tokens": statistics.total_tokens,
            "num_samples": statistics.num_samples,
            "mean_tokens": mean,
        },
        fix=message(
            "lint_measure_tokens", "measure them: tuneplan data profile FILES, or use --data"
        ),
    )


def _steps_of_samples(case: Case, statistics: TokenStatistics) -> Iterator[Finding]:
    """``max_steps`` that was counted in samples, though packed rows hold several each."""
    recipe, steps, each = case.recipe, case.max_steps, case.samples_per_row
    if not recipe.packing or steps is None or each < 1.5:
        return
    rows = recipe.per_device_train_batch_size * recipe.gradient_accumulation_steps * case.ranks
    passes = [
        epochs
        for epochs in range(1, _MOST_EPOCHS + 1)
        if abs(steps - math.ceil(statistics.num_samples * epochs / rows)) <= 1
    ]
    if not passes:
        return
    yield Finding(
        rule="samples_as_tokens",
        severity=Severity.WARNING,
        keys=("training.max_steps",),
        message=message(
            "lint_steps_of_samples",
            "max_steps {steps:,} is {samples:,} samples x {epochs} / {rows} rows of a step, but a "
            "packed row holds {each:.1f} samples: the run goes over the data {real:.1f} times",
            steps=steps,
            samples=statistics.num_samples,
            epochs=passes[0],
            rows=rows,
            each=each,
            real=steps * rows * each / statistics.num_samples,
        ),
        evidence={
            "max_steps": steps,
            "rows_per_step": rows,
            "samples_per_row": each,
            "num_train_epochs": steps * rows * each / statistics.num_samples,
        },
        fix=message(
            "lint_steps_or_epochs",
            "write max_steps: {steps}, or num_train_epochs: {epochs} in its place",
            steps=math.ceil(steps / each),
            epochs=passes[0],
        ),
    )


def context_beyond_data(case: Case) -> Iterator[Finding]:
    """A context far longer than nearly all samples."""
    variant = case.variants.get("shorter_context")
    longest = case.lengths.get(0.99)
    if variant is None or longest is None or not case.mean_tokens_known:
        return
    length, enough = case.recipe.max_length, variant.settings["training.max_length"]
    if length < _ROOMY * longest or length < 2 * enough:
        return
    now, then = case.now, variant.outcome
    hours = 1 - then.total_s / now.total_s if then.total_s and now.total_s else 0.0
    memory = 1 - then.peak_bytes / now.peak_bytes
    costs = max(hours, memory) >= _WORTH_A_WARNING
    yield Finding(
        rule="context_beyond_data",
        severity=Severity.WARNING if costs else Severity.ADVICE,
        keys=("training.max_length",),
        message=message(
            "lint_context_beyond_data",
            "max_length {length:,}, but 99% of the samples have at most about {longest:,.0f} "
            "tokens: with {enough:,} the peak is {then} instead of {now}{time}",
            length=length,
            longest=longest,
            enough=enough,
            now=format_gib(now.peak_bytes),
            then=format_gib(then.peak_bytes),
            time=_saved(hours),
        ),
        evidence={
            "max_length": length,
            "p99_tokens": longest,
            "recommended_max_length": enough,
            "peak_bytes": round(now.peak_bytes),
            "peak_bytes_then": round(then.peak_bytes),
            "saved_time_fraction": hours,
        },
        fix=_shorter(variant.settings),
    )


def _shorter(settings: Mapping[str, Any]) -> Message:
    """What to write; packed rows that are shorter need more accumulation for the same step."""
    enough = settings["training.max_length"]
    accumulation = settings.get("training.gradient_accumulation_steps")
    if accumulation is None:
        return message("lint_write_max_length", "set max_length to {enough}", enough=enough)
    return message(
        "lint_write_length_of_rows",
        "set max_length to {enough} and gradient_accumulation_steps to {accumulation}, so that a "
        "step sees as many tokens as now",
        enough=enough,
        accumulation=accumulation,
    )


def _saved(hours: float) -> Message | str:
    if hours < _WORTH_TELLING:
        return ""
    return message("lint_time_saved", ", and {hours:.0%} of the time is saved", hours=hours)


def no_packing(case: Case) -> Iterator[Finding]:
    """Short samples, each in a row of its own, where packing them would save time."""
    variant = case.variants.get("packing")
    statistics = case.statistics
    if case.recipe.packing or variant is None or statistics is None:
        return
    now, then = case.now, variant.outcome
    if not now.total_s or not then.total_s or then.does_not_fit:
        return
    saved = 1 - then.total_s / now.total_s
    if saved < _WORTH_PACKING:
        return
    more = case.ranks > 1
    yield Finding(
        rule="no_packing",
        severity=Severity.WARNING,
        keys=("training.packing",),
        message=message(
            "lint_no_packing",
            "samples of {mean:,.0f} tokens on average stand alone in rows of up to {length:,}"
            "{padding}: packed, the run takes {then} instead of {now}{first}",
            mean=statistics.mean_tokens,
            length=case.recipe.max_length,
            padding=_padding(now.padding_fraction),
            now=format_duration(now.total_s),
            then=format_duration(then.total_s),
            first=message("lint_before_cards", "; it comes before more cards") if more else "",
        ),
        evidence={
            "mean_tokens": statistics.mean_tokens,
            "max_length": case.recipe.max_length,
            "padding_fraction": now.padding_fraction,
            "total_s": now.total_s,
            "total_s_then": then.total_s,
            "peak_bytes_then": round(then.peak_bytes),
        },
        fix=message(
            "lint_pack",
            "pack samples (training.packing: true) with a micro-batch of {rows}: the peak is "
            "{peak}",
            rows=variant.settings.get("training.per_device_train_batch_size", 1),
            peak=format_gib(then.peak_bytes),
        ),
    )


def _padding(fraction: float) -> Message | str:
    if fraction < 0.01:
        return ""
    return message("lint_is_padding", ", {share:.0%} of all positions are padding", share=fraction)
