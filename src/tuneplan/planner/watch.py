"""Use-case: what the plan expects of a run that is watched."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tuneplan.errors import UnreadableFile
from tuneplan.estimation.run_time import RunTime
from tuneplan.language import message
from tuneplan.planner.estimate import JobEstimate
from tuneplan.watching.watcher import Expected

_SLACK: Final = 2.0  # a pause may take twice what is planned before it is a stop


def expected_of(now: JobEstimate | None) -> Expected:
    """What a watcher holds a run against; nothing where no job is known."""
    if now is None:
        return Expected()
    run = now.time.run if now.time else None
    cluster = now.resolved.cluster
    cost_per_s, currency = _cost(now, run)
    return Expected(
        steps=run.steps if run else None,
        step_s=now.time.step.step_s if now.time else None,
        pause_s=_pause_s(run, now) if run else None,
        pause_per_step_s=(
            (run.eval_s.likely + run.checkpoint_s.likely) / run.steps if run and run.steps else 0.0
        ),
        start_up_s=run.start_up_s.high if run else 0.0,
        checkpoint_bytes=round(now.storage.checkpoint_bytes),
        cost_per_s=cost_per_s,
        currency=currency,
        tokens_per_step=run.tokens_per_step if run else None,
        num_accelerators=cluster.num_accelerators if cluster else None,
    )


def _pause_s(run: RunTime, now: JobEstimate) -> float:
    """One evaluation and one checkpoint at the high end of the plan."""
    schedule = now.resolved.schedule
    evaluations = _how_often(schedule.eval_steps, run.steps)
    checkpoints = _how_often(schedule.save_steps, run.steps)
    return _SLACK * (run.eval_s.high / evaluations + run.checkpoint_s.high / checkpoints)


def _how_often(every: float | None, steps: int) -> float:
    """Times in the whole run; ``every`` below 1 is a share of it."""
    if not every:
        return 1.0
    return max(1 / every if every < 1 else steps // every, 1.0)


def _cost(now: JobEstimate, run: RunTime | None) -> tuple[float | None, str | None]:
    if now.cost is None or run is None or run.total_s.likely <= 0:
        return None, None
    total = now.cost.total.likely
    return float(total.amount) / run.total_s.likely, total.currency


def watched_run(source: str) -> Path:
    """The run to watch; it may still be empty, but it must be there.

    Raises:
        UnreadableFile: Nothing is there.
    """
    path = Path(source)
    try:
        there = path.exists()
    except (OSError, ValueError):
        there = False
    if not there:
        text = message(
            "no_such_run",
            "{path} does not exist: name the folder that the run writes to, or its log",
            path=source,
        )
        raise UnreadableFile(text, path=source)
    return path
