"""Use-case: what each ``max_length`` costs on a job, in hours and money."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tuneplan.errors import InputError
from tuneplan.estimation.uncertainty import Verdict
from tuneplan.frozen import dataclass
from tuneplan.planner.changing import with_settings
from tuneplan.planner.dataset import Dataset
from tuneplan.planner.estimate import estimate_job
from tuneplan.spec.answer import Estimate
from tuneplan.spec.stated import StatedJob

if TYPE_CHECKING:
    from tuneplan.economics.billing import Cost
    from tuneplan.language import Message
    from tuneplan.planner.sources import Sources
    from tuneplan.tokens.profile import DataProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthPrice:
    """One ``max_length`` on a job.

    Attributes:
        total_s: Wall clock of the run; None where the job names no accelerator.
        accelerator_hours: As ``total_s``.
        cost: None without an offer for the accelerator.
        verdict: Whether it fits; None without an accelerator.
        problem: Why the job cannot be estimated at this length.
    """

    max_length: int
    total_s: Estimate | None = None
    accelerator_hours: Estimate | None = None
    cost: Cost | None = None
    verdict: Verdict | None = None
    problem: Message | None = None


def price_lengths(
    job: StatedJob, profile: DataProfile, lengths: Iterable[int], sources: Sources
) -> tuple[LengthPrice, ...]:
    """Estimate the job on the profiled data at each ``max_length``.

    All else stays as the job states it, so that the prices differ by the length alone.

    Raises:
        InputError: The job itself is wrong, at any length.
    """
    statistics = profile.statistics(eval_fraction=job.data.eval_fraction or 0.0)
    data = Dataset(statistics=statistics, profile=profile)
    wanted = sorted(set(lengths))
    prices: list[LengthPrice] = []
    refused: InputError | None = None
    for length in wanted:
        stated = with_settings(job, {"training.max_length": length})
        try:
            found = estimate_job(stated, sources, dataset=data)
        except InputError as error:
            refused = error
            prices.append(LengthPrice(max_length=length, problem=error.mistakes[0].message))
            continue
        run = found.time.run if found.time else None
        fit = found.memory.fit
        prices.append(
            LengthPrice(
                max_length=length,
                total_s=run.total_s if run else None,
                accelerator_hours=run.accelerator_hours if run else None,
                cost=found.cost,
                verdict=fit.verdict if fit else None,
            )
        )
    if refused is not None and all(price.problem for price in prices):
        raise refused
    return tuple(prices)
