"""The estimate as a predictor: a job with blanks to the figures that runs are held against."""

from __future__ import annotations

from tuneplan.planner.estimate import estimate_job
from tuneplan.planner.sources import Sources
from tuneplan.runs.comparison import Prediction
from tuneplan.spec.stated import StatedJob


class Predictor:
    """Memory, speed and verdict of a job, by formula."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def __call__(self, job: StatedJob) -> Prediction:
        """Predict; raises ``InputError`` where the job cannot be estimated."""
        answer = estimate_job(job, self._sources, replays=True)
        ranges, time = answer.memory.ranges, answer.time
        run = time.run if time else None
        return Prediction(
            peak_bytes=ranges.peak_bytes,
            peak_reserved_bytes=ranges.peak_reserved_bytes,
            peak_device_bytes=ranges.peak_device_bytes,
            tokens_per_s_per_accelerator=time.tokens_per_s_per_accelerator if time else None,
            real_tokens_per_s_per_accelerator=(
                run.real_tokens_per_s_per_accelerator if run else None
            ),
            step_s=time.step.step_s if time else None,
            verdict=answer.memory.fit.verdict.value if answer.memory.fit else None,
            memory_terms=answer.memory.terms,
            time_terms=tuple(sorted(time.step.terms, key=lambda t: -t.value)) if time else (),
        )
