"""The usual mistakes, one rule a question; each tells what it saw in the figures of the job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from tuneplan.diagnosis.advice import full_or_adapter, single_card_first
from tuneplan.diagnosis.data_mistakes import context_beyond_data, no_packing, samples_as_tokens
from tuneplan.diagnosis.finding import Case, Finding, Severity
from tuneplan.diagnosis.memory_mistakes import (
    bf16_not_native,
    checkpointing_with_room,
    no_headroom,
    zero2_splits_no_weights,
)
from tuneplan.diagnosis.time_mistakes import evaluation_forgotten, more_cards, peak_throughput

Rule = Callable[[Case], Iterator[Finding]]

# Name of the rule, which its findings bear, to the rule.
RULES: Final[dict[str, Rule]] = {
    "bf16_not_native": bf16_not_native,
    "no_headroom": no_headroom,
    "zero2_splits_no_weights": zero2_splits_no_weights,
    "samples_as_tokens": samples_as_tokens,
    "peak_throughput": peak_throughput,
    "evaluation_forgotten": evaluation_forgotten,
    "context_beyond_data": context_beyond_data,
    "no_packing": no_packing,
    "checkpointing_with_room": checkpointing_with_room,
    "more_cards": more_cards,
    "full_or_adapter": full_or_adapter,
    "single_card_first": single_card_first,
}
# What a rule needs to know of a job to say anything.
_NEEDS: Final[dict[str, str]] = {
    **dict.fromkeys(("bf16_not_native", "no_headroom", "checkpointing_with_room"), "accelerator"),
    **dict.fromkeys(("samples_as_tokens", "context_beyond_data", "full_or_adapter"), "data"),
    **dict.fromkeys(("peak_throughput", "evaluation_forgotten", "more_cards", "no_packing"), "run"),
}
_ORDER: Final = tuple(Severity)


def lint(case: Case) -> tuple[Finding, ...]:
    """Everything that the rules find, what matters most first."""
    found = [finding for rule in RULES.values() for finding in rule(case)]
    return tuple(sorted(found, key=lambda finding: _ORDER.index(finding.severity)))


def not_judged(case: Case) -> dict[str, str]:
    """Rules that cannot say anything about the job, and what is not known.

    ``accelerator``, ``data``, or ``run``: how long it takes, for which both are needed.
    """
    unknown = set()
    if case.accelerator is None:
        unknown.add("accelerator")
    if case.statistics is None or not case.statistics.num_samples:
        unknown.add("data")
    if case.now.total_s is None:
        unknown.add("run")
    return {rule: need for rule, need in _NEEDS.items() if need in unknown}
