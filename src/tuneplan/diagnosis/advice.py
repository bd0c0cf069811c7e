"""Advice that a good colleague gives: full or adapter, and one card before several."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tuneplan.diagnosis.finding import Case, Finding, Severity
from tuneplan.language import Message, message
from tuneplan.spec.recipe import Method
from tuneplan.units import DAY_S, format_count, format_duration, format_gib

# Tokens that a trained parameter takes up: about 2 bits a parameter (Allen-Zhu and Li 2024,
# "Physics of language models, part 3.3") against about 1 bit of loss a token (Schulman et al. 2025,
# "LoRA without regret"). A rule of thumb.
_TOKENS_PER_PARAMETER: Final = 2.0
_MUCH_TEXT: Final = 20e6  # tokens; below, nobody expects an adapter to learn a new field


def full_or_adapter(case: Case) -> Iterator[Finding]:
    """Whether the data asks for all parameters, or for an adapter."""
    statistics = case.statistics
    if statistics is None or not statistics.total_tokens or not case.mean_tokens_known:
        return
    tokens = statistics.total_tokens * statistics.trained_tokens_fraction
    if case.recipe.method is Method.FULL:
        yield from _adapter_is_enough(case, tokens)
    elif case.recipe.method.uses_adapter:
        yield from _adapter_is_small(case, tokens)


def _adapter_is_enough(case: Case, tokens: float) -> Iterator[Finding]:
    variant, now = case.variants.get("lora"), case.now
    if variant is None:
        return
    then = variant.outcome
    if tokens > _TOKENS_PER_PARAMETER * then.num_trained or then.peak_bytes >= now.peak_bytes:
        return
    yield Finding(
        rule="full_or_adapter",
        severity=Severity.ADVICE,
        keys=("method",),
        message=message(
            "lint_adapter_is_enough",
            "{tokens} tokens train all {parameters} parameters; an adapter of {adapter} holds as "
            "much: for a new format or style LoRA is enough, with a peak of {then} instead of "
            "{now}",
            tokens=format_count(tokens),
            parameters=format_count(now.num_trained),
            adapter=format_count(then.num_trained),
            then=format_gib(then.peak_bytes),
            now=format_gib(now.peak_bytes),
        ),
        evidence={
            "trained_tokens": round(tokens),
            "trained_parameters": now.num_trained,
            "adapter_parameters": then.num_trained,
            "peak_bytes": round(now.peak_bytes),
            "peak_bytes_then": round(then.peak_bytes),
        },
        fix=message(
            "lint_try_lora",
            "try method: lora first; keep full fine-tuning for lots of new knowledge",
        ),
    )


def _adapter_is_small(case: Case, tokens: float) -> Iterator[Finding]:
    trained = case.now.num_trained
    if tokens < _MUCH_TEXT or tokens <= _TOKENS_PER_PARAMETER * trained:
        return
    yield Finding(
        rule="full_or_adapter",
        severity=Severity.ADVICE,
        keys=("adapter.r", "method"),
        message=message(
            "lint_adapter_is_small",
            "{tokens} tokens are more than the {adapter} parameters of the adapter hold (about "
            "{each:g} tokens a parameter): good for a new format or style, not for lots of new "
            "knowledge",
            tokens=format_count(tokens),
            adapter=format_count(trained),
            each=_TOKENS_PER_PARAMETER,
        ),
        evidence={"trained_tokens": round(tokens), "adapter_parameters": trained},
        fix=message(
            "lint_more_parameters",
            "for new knowledge raise r to about {r:,}, adapt all linear layers, or train fully",
            r=_rank(case, tokens),
        ),
    )


def _rank(case: Case, tokens: float) -> int:
    """A rank that holds the tokens, as a power of two."""
    rank = case.recipe.adapter.r if case.recipe.adapter else 8
    needed = rank * tokens / (_TOKENS_PER_PARAMETER * max(case.now.num_trained, 1))
    power = 8
    while power < needed and power < 1024:
        power *= 2
    return power


def single_card_first(case: Case) -> Iterator[Finding]:
    """One card holds the job, in a time that the limits allow."""
    variant, now = case.variants.get("one_card"), case.now
    if case.ranks == 1 or variant is None:
        return
    then, deadline_s = variant.outcome, case.job.limits.deadline_s
    if not then.fits or not then.keeps(case.headroom_fraction):
        return
    if then.total_s is not None and then.total_s > (deadline_s or DAY_S):
        return
    yield Finding(
        rule="single_card_first",
        severity=Severity.ADVICE,
        keys=("hardware.accelerators_per_node", "parallelism.strategy"),
        message=message(
            "lint_single_card",
            "one card holds the job: it needs {need} of {capacity}{duration}",
            need=format_gib(then.needed_bytes or 0.0),
            capacity=format_gib(then.capacity_bytes or 0),
            duration=_durations(then.total_s, now.total_s, case.ranks),
        ),
        evidence={
            "needed_bytes": round(then.needed_bytes or 0),
            "capacity_bytes": then.capacity_bytes,
            "total_s": now.total_s,
            "total_s_then": then.total_s,
        },
        fix=message(
            "lint_start_on_one",
            "get it right on one card first; spread it once the clock, not memory, is the trouble",
        ),
    )


def _durations(one_s: float | None, all_s: float | None, ranks: int) -> Message | str:
    if one_s is None or all_s is None:
        return ""
    return message(
        "lint_one_against_all",
        " and takes {one} there, {all} on {ranks}",
        one=format_duration(one_s),
        all=format_duration(all_s),
        ranks=ranks,
    )
