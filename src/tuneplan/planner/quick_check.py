"""What the rules of a check see in one estimate, with nothing to compare it with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from tuneplan.diagnosis.finding import Case, Finding
from tuneplan.diagnosis.lint import lint
from tuneplan.diagnosis.outcome import Outcome, Variant
from tuneplan.estimation.batches import sample_lengths
from tuneplan.estimation.run_time import RunTime
from tuneplan.planner.estimate import JobEstimate
from tuneplan.planner.outcomes import outcome_of
from tuneplan.spec.data import TokenStatistics
from tuneplan.spec.parallelism import Strategy

_QUANTILES: Final = (0.5, 0.95, 0.99, 1.0)
_WEIGHTS: Final = (
    *("frozen_weights", "quantized_weights", "quantization_constants"),
    *("trained_weights", "adapters", "reference_model"),
)
_STATES: Final = ("optimizer_states", "master_weights")


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
