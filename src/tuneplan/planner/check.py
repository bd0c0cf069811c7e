"""Use-case: a configuration checked: does it fit, how long, how much, what is wrong with it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from tuneplan.diagnosis.finding import Case, Finding
from tuneplan.diagnosis.lint import lint, not_judged, silenced
from tuneplan.diagnosis.outcome import Outcome, Variant
from tuneplan.estimation.batches import sample_lengths
from tuneplan.estimation.run_time import RunTime
from tuneplan.frozen import dataclass
from tuneplan.planner.best_changes import BestChange, best_changes
from tuneplan.planner.estimate import JobEstimate, estimate_job
from tuneplan.planner.importing import Configuration, in_own_words
from tuneplan.planner.outcomes import outcome_of
from tuneplan.planner.resolving import told_by_line
from tuneplan.planner.sources import Sources
from tuneplan.planner.variants import TriedChange, Trying
from tuneplan.spec.data import TokenStatistics
from tuneplan.spec.parallelism import Strategy
from tuneplan.spec.stated import StatedJob

_QUANTILES: Final = (0.5, 0.95, 0.99, 1.0)
_WEIGHTS: Final = (
    *("frozen_weights", "quantized_weights", "quantization_constants"),
    *("trained_weights", "adapters", "reference_model"),
)
_MUST_FIT: Final = ("no_checkpointing", "one_card", "packing")
_STATES: Final = ("optimizer_states", "master_weights")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCheck:
    """What a check says about a job.

    Attributes:
        configuration: What was read.
        findings: What the rules found, what matters most first.
        not_judged: Rules that could say nothing, and what is not known: ``accelerator``, ``data``
            or ``run``.
        best_changes: At most three.
        silenced: Rules that the job silences and that would have said something.
    """

    configuration: Configuration
    estimate: JobEstimate
    findings: tuple[Finding, ...]
    not_judged: Mapping[str, str]
    best_changes: tuple[BestChange, ...]
    silenced: tuple[str, ...] = ()


def check_configuration(configuration: Configuration, sources: Sources) -> JobCheck:
    """Estimate one configuration, look for the usual mistakes, try what could be changed.

    Raises:
        InputError: Everything the user can mend, at the keys and lines of the user's own files.
    """
    with in_own_words(configuration):
        return _check(configuration.job, configuration, sources)


@told_by_line
def _check(job: StatedJob, configuration: Configuration, sources: Sources) -> JobCheck:
    estimate = estimate_job(job, sources, replays=True)
    now = outcome_of(estimate)
    trying = Trying(job, estimate, sources)
    tried = trying.all()
    case = case_of(estimate, now, _variants(trying, tried))
    return JobCheck(
        configuration=configuration,
        estimate=estimate,
        findings=lint(case),
        not_judged=not_judged(case),
        best_changes=best_changes(trying, tried, now),
        silenced=silenced(case),
    )


def quick_findings(estimate: JobEstimate) -> tuple[Finding, ...]:
    """What the rules find that need no other configuration beside this one."""
    return lint(case_of(estimate, outcome_of(estimate), {}))


def case_of(estimate: JobEstimate, now: Outcome, variants: Mapping[str, Variant]) -> Case:
    """An estimate as the rules look at it."""
    resolved = estimate.resolved
    run = estimate.time.run if estimate.time else None
    recipe, batch, schedule = resolved.recipe, resolved.batch, resolved.schedule
    chip, cluster = resolved.accelerator, resolved.cluster
    peak = chip.peak_flop_per_s(recipe.compute_dtype) if chip else None
    mfu = run.mfu_fraction if run else None
    statistics, profile = resolved.dataset.statistics, resolved.dataset.profile
    sizes = {term.kind: term.value for term in estimate.memory.terms}
    layout = resolved.parallelism
    split = (*_STATES, "gradients") if layout.strategy is Strategy.ZERO2 else _STATES
    return Case(
        job=resolved.job,
        model=resolved.model,
        recipe=recipe,
        parallelism=layout,
        accelerator=chip,
        num_nodes=cluster.num_nodes if cluster else 1,
        statistics=statistics,
        now=now,
        mean_tokens_known=all(
            one.name != "data.mean_tokens" for one in resolved.dataset.assumptions
        ),
        lengths=_lengths(resolved.dataset.statistics),
        samples_per_row=batch.samples / batch.sequences if recipe.packing else 1.0,
        max_steps=schedule.max_steps,
        eval_steps=_interval(schedule.eval_steps, run),
        save_steps=_interval(schedule.save_steps, run),
        flop=mfu * run.train_s.likely * peak * layout.world_size if run and mfu and peak else None,
        peak_flop_per_s=peak,
        weights_bytes=sum(sizes.get(kind, 0.0) for kind in _WEIGHTS),
        split_bytes=sum(sizes.get(kind, 0.0) for kind in split),
        num_duplicates=(profile.duplicates or 0) if profile is not None else 0,
        variants=variants,
    )


def _interval(every: float | None, run: RunTime | None) -> int | None:
    """Whole steps; a share of a run is as long as the run makes it."""
    if every is None or every >= 1:
        return None if every is None else int(every)
    return max(1, math.ceil(every * run.steps)) if run else None


def _lengths(statistics: TokenStatistics | None) -> dict[float, float]:
    if statistics is None or not statistics.num_samples:
        return {}
    lengths = sample_lengths(statistics)
    found = np.quantile(lengths, _QUANTILES)
    return dict(zip(_QUANTILES, map(float, found), strict=True))


def _variants(trying: Trying, tried: Sequence[TriedChange]) -> dict[str, Variant]:
    """The changes that rules look at, by name; whether they fit is told with a replay."""
    headroom = trying.job.limits.headroom_fraction
    found = {one.change.name: _variant(one, one.outcome) for one in tried}
    for one in tried:
        if one.change.name in _MUST_FIT and one.outcome.fits:
            full = outcome_of(trying.in_full(one))
            found[one.change.name] = _variant(one, full)
    fewer = [one for one in tried if one.change.kind == "fewer_cards"]
    fewer = [one for one in fewer if one.outcome.fits and one.outcome.keeps(headroom)]
    if fewer:
        fewest = min(fewer, key=_cards)
        found["fewer_cards"] = found[fewest.change.name]
    return found


def _cards(one: TriedChange) -> int:
    return int(one.change.settings["hardware.accelerators_per_node"])


def _variant(one: TriedChange, outcome: Outcome) -> Variant:
    return Variant(
        name=one.change.name,
        change=one.change.message,
        settings=dict(one.change.settings),
        outcome=outcome,
    )
