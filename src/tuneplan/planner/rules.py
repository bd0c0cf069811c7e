"""Use-case: the rules of thumb that people know, beside our answer, with what the difference is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from tuneplan.economics import thumb
from tuneplan.economics.thumb import Rule, TableRow
from tuneplan.errors import InputError
from tuneplan.frozen import dataclass
from tuneplan.language import Message, message
from tuneplan.planner.changing import with_settings
from tuneplan.planner.estimate import JobEstimate, estimate_job
from tuneplan.planner.resolving import told_by_line
from tuneplan.planner.rules_time import TimeRule, time_rules
from tuneplan.planner.sources import Sources
from tuneplan.spec.answer import Estimate, Notice
from tuneplan.spec.recipe import Method
from tuneplan.spec.stated import (
    StatedAdapter,
    StatedJob,
    StatedParallelism,
    StatedQuantization,
)

_METHODS: Final = ("qlora", "lora", "full")
_CARD_BYTES: Final = 80e9  # the folk table counts cards of 80 GB
# Which of our terms a word of the rules stands for; the others are "other".
_BUCKETS: Final[Mapping[str, tuple[str, ...]]] = {
    "weights": (
        *("frozen_weights", "quantized_weights", "quantization_constants", "trained_weights"),
        *("adapters", "autocast_weights", "reference_model"),
    ),
    "gradients": ("gradients", "gradient_buckets", "embedding_gradient"),
    "optimizer": ("optimizer_states", "master_weights", "step_temporary"),
    "activations": (
        *("kept_activations", "held_logits", "layer_working_set", "loss_working_set"),
        *("in_flight_activations", "attention_mask", "token_ids"),
    ),
}
BUCKETS: Final = (*_BUCKETS, "other")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One word of a rule: what the rule gives it and what we do; "other" is in no rule."""

    bucket: str
    rule_bytes: float
    our_bytes: float
    reason: Message

    @property
    def difference_bytes(self) -> float:
        """Ours less the rule's."""
        return self.our_bytes - self.rule_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRule:
    """A rule beside our answer for the same job under the method that the rule is about.

    Attributes:
        method: ``full``, ``lora`` or ``qlora``.
        weights_only: The rule speaks of the weights alone, and so does our figure.
        our_bytes: Of one card that holds everything; None where we have no answer.
        causes: Sum to ``our_bytes - rule.total_bytes``.
        no_answer: Why there is none.
    """

    rule: Rule
    method: str
    weights_only: bool
    our_bytes: Estimate | None
    causes: tuple[Cause, ...]
    no_answer: Message | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableEntry:
    """One cell of the folk table beside ours."""

    method: str
    rule_bytes: tuple[float, float]
    rule_cards: int
    our_bytes: Estimate | None
    our_cards: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRules:
    """The answer.

    Attributes:
        row: The line of the folk table that is nearest in size.
        flop: 6 x active parameters x tokens of the run; None without data.
    """

    estimate: JobEstimate
    rules: tuple[JudgedRule, ...]
    row: TableRow
    table: tuple[TableEntry, ...]
    time: tuple[TimeRule, ...]
    flop: float | None
    notices: tuple[Notice, ...]


@told_by_line
def rules_of(job: StatedJob, sources: Sources) -> JobRules:
    """Every rule of thumb for a job, as people state it, beside our answer.

    Memory is that of one card that holds everything, since the rules know no other: layouts over
    several cards are taken away for the comparison.

    Raises:
        InputError: As for ``estimate``.
    """
    now = estimate_job(job, sources)
    ours = {method: _ours(job, method, now, sources) for method in _METHODS}
    return JobRules(
        estimate=now,
        rules=tuple(_judged(now, ours)),
        row=thumb.table_row(now.resolved.model.total_parameters),
        table=tuple(_table(now, ours)),
        time=time_rules(job, now, sources),
        flop=_flop(now),
        notices=now.notices,
    )


Ours = JobEstimate | Message


def _ours(job: StatedJob, method: str, now: JobEstimate, sources: Sources) -> Ours:
    """The job under a method on one card, or why there is no such answer."""
    try:
        return estimate_job(on_one_card(job, method, now), sources, dataset=now.resolved.dataset)
    except InputError as error:
        return error.mistakes[0].message


def on_one_card(job: StatedJob, method: str, now: JobEstimate) -> StatedJob:
    """The job with another method, on one card, with the batch that it has now."""
    recipe = now.resolved.recipe
    settings = {
        "method": method,
        "hardware.num_nodes": 1,
        "hardware.accelerators_per_node": 1,
        "training.per_device_train_batch_size": recipe.per_device_train_batch_size,
        "training.gradient_accumulation_steps": recipe.gradient_accumulation_steps,
    }
    changed = with_settings(job, settings)
    stated = replace(changed.recipe, parallelism=StatedParallelism())
    if method == "full":
        stated = replace(stated, adapter=StatedAdapter())
    if method != "qlora" or stated.quantization.type not in (None, "nf4", "fp4"):
        stated = replace(stated, quantization=StatedQuantization())
    return replace(changed, recipe=stated)


def _judged(now: JobEstimate, ours: Mapping[str, Ours]) -> Iterator[JudgedRule]:
    model, batch = now.resolved.model, now.resolved.batch
    parameters = float(model.total_parameters)
    asked: list[tuple[Rule, str, bool]] = [
        (thumb.eight_bytes_per_parameter(parameters), "full", False),
        (
            thumb.eight_bytes_with_activations(
                parameters,
                batch=round(batch.sequences),
                length=round(batch.worst_length),
                hidden_size=model.hidden_size,
                num_layers=model.num_layers,
            ),
            "full",
            False,
        ),
        (thumb.eighteen_bytes_per_parameter(parameters), "full", False),
        (thumb.four_times_weights_for_optimizer(parameters), "full", False),
        (thumb.qlora_base(parameters), "qlora", True),
        (thumb.quantized_weights(parameters, bits=4), "qlora", True),
    ]
    if model.active_parameters < 0.9 * model.total_parameters:
        rule = thumb.mixture_of_experts_lora(
            total_parameters=parameters, active_parameters=float(model.active_parameters)
        )
        asked.append((rule, "lora", False))
    for rule, method, weights_only in asked:
        yield _judge(rule, method, ours[method], weights_only=weights_only)


def _judge(rule: Rule, method: str, ours: Ours, *, weights_only: bool) -> JudgedRule:
    if isinstance(ours, Message):
        return JudgedRule(
            rule=rule, method=method, weights_only=weights_only, our_bytes=None, causes=(),
            no_answer=ours,
        )  # fmt: skip
    said = _said(rule)
    held = buckets(ours)
    if weights_only:
        held = {"weights": held["weights"]}
    causes = tuple(
        Cause(
            bucket=bucket,
            rule_bytes=said.get(bucket, 0.0),
            our_bytes=held.get(bucket, 0.0),
            reason=_reason(bucket, ours),
        )
        for bucket in BUCKETS
        if said.get(bucket) or held.get(bucket)
    )
    likely = sum(held.values())
    peak = ours.memory.ranges.peak_bytes
    scale = likely / peak.likely if peak.likely else 1.0
    return JudgedRule(
        rule=rule,
        method=method,
        weights_only=weights_only,
        our_bytes=peak.scaled(scale) if not weights_only else _exact(likely, peak),
        causes=causes,
    )


def _exact(likely: float, peak: Estimate) -> Estimate:
    """Weights are counted, not estimated."""
    return Estimate(low=likely, likely=likely, high=likely, basis=peak.basis)


def _said(rule: Rule) -> dict[str, float]:
    """A rule's terms in our words; what its factor adds is for activations."""
    found: dict[str, float] = {}
    for name, size in rule.terms:
        bucket = "weights" if name == "active_part" else name
        found[bucket] = found.get(bucket, 0.0) + size
    beyond = rule.total_bytes - sum(found.values())
    if abs(beyond) > 1:
        found["activations"] = found.get("activations", 0.0) + beyond
    return found


def buckets(estimate: JobEstimate) -> dict[str, float]:
    """Our terms at the peak, by the words of the rules."""
    word_of = {kind: word for word, kinds in _BUCKETS.items() for kind in kinds}
    found = dict.fromkeys(BUCKETS, 0.0)
    for term in estimate.memory.terms:
        found[word_of.get(term.kind, "other")] += term.value
    return found


def _reason(bucket: str, ours: JobEstimate) -> Message:
    resolved = ours.resolved
    recipe, batch = resolved.recipe, resolved.batch
    reasons: Mapping[str, Callable[[], Message]] = {
        "weights": lambda: message(
            "weights_held",
            "held in {dtype}, {total:,} in all; adapters, scales and half-precision copies among "
            "them",
            dtype=_base_dtype(ours),
            total=resolved.model.total_parameters,
        ),
        "gradients": lambda: message(
            "gradients_held",
            "of the weights that train ({method}), at the moment of the peak: {phase}",
            method=recipe.method.value,
            phase=ours.memory.phase.value,
        ),
        "optimizer": lambda: message(
            "optimizer_held",
            "{optim}, for the weights that train; fp32 copies and its temporaries among it",
            optim=recipe.optimizer.name,
        ),
        "activations": lambda: message(
            "activations_held",
            "{rows:g} rows of {length:,.0f} tokens, checkpointing {checkpointing}, logits of "
            "{vocab:,} words",
            rows=float(batch.sequences),
            length=batch.worst_length,
            checkpointing=recipe.gradient_checkpointing.value,
            vocab=resolved.model.vocab_size,
        ),
        "other": lambda: message("other_held", "buffers and workspaces, which no rule has"),
    }
    return reasons[bucket]()


def _base_dtype(ours: JobEstimate) -> str:
    recipe = ours.resolved.recipe
    if recipe.quantization is not None and recipe.method is not Method.FULL:
        return f"{recipe.quantization.bits} bits"
    return recipe.frozen_dtype.value


def _table(now: JobEstimate, ours: Mapping[str, Ours]) -> Iterator[TableEntry]:
    row = thumb.table_row(now.resolved.model.total_parameters)
    for method in _METHODS:
        found = ours[method]
        known = isinstance(found, JobEstimate)
        size = found.memory.ranges.peak_bytes if isinstance(found, JobEstimate) else None
        yield TableEntry(
            method=method,
            rule_bytes=getattr(row, f"{method}_bytes"),
            rule_cards=getattr(row, f"{method}_cards"),
            our_bytes=size,
            our_cards=math.ceil(size.likely / _CARD_BYTES) if known and size else None,
        )


def _flop(now: JobEstimate) -> float | None:
    run = now.time.run if now.time else None
    statistics = now.resolved.dataset.statistics
    if statistics is None or not statistics.total_tokens:
        return None
    epochs = now.resolved.schedule.num_train_epochs
    tokens = run.real_tokens_per_step * run.steps if run else statistics.total_tokens * epochs
    return thumb.training_flop(
        active_parameters=float(now.resolved.model.active_parameters), tokens=tokens
    )


__all__ = [
    "BUCKETS",
    "Cause",
    "JobRules",
    "JudgedRule",
    "TableEntry",
    "TimeRule",
    "rules_of",
]
