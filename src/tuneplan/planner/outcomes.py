"""An estimate as the plain figures that diagnosis compares."""

from __future__ import annotations

from tuneplan.diagnosis.outcome import Outcome
from tuneplan.estimation.uncertainty import Verdict
from tuneplan.planner.estimate import JobEstimate


def outcome_of(estimate: JobEstimate) -> Outcome:
    """The likely figures of an estimate."""
    memory, time, resolved = estimate.memory, estimate.time, estimate.resolved
    fit, run = memory.fit, time.run if time else None
    cost = estimate.cost.total.likely if estimate.cost else None
    ranks = resolved.parallelism.world_size
    return Outcome(
        peak_bytes=memory.ranges.peak_bytes.likely,
        num_trained=memory.num_trained,
        accelerators=ranks,
        needed_bytes=fit.needed_bytes.likely if fit else None,
        capacity_bytes=fit.capacity_bytes if fit else None,
        probability_fits=fit.probability_fits if fit else None,
        fits=fit is not None and fit.verdict is Verdict.FITS,
        does_not_fit=fit is not None and fit.verdict is Verdict.DOES_NOT_FIT,
        steps=run.steps if run else None,
        train_s=run.train_s.likely if run else None,
        eval_s=run.eval_s.likely if run else None,
        checkpoint_s=run.checkpoint_s.likely if run else None,
        total_s=run.total_s.likely if run else None,
        step_s=time.step.step_s.likely if time else None,
        positions_per_s=time.tokens_per_s_per_accelerator.likely * ranks if time else None,
        padding_fraction=resolved.batch.padding_fraction,
        accelerator_hours=run.accelerator_hours.likely if run else None,
        cost=cost.amount if cost else None,
        currency=cost.currency if cost else None,
    )
