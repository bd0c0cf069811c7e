"""One job's project before anything is drawn: its work, weeks and rental."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tuneplan.catalog.offers import offer_notices, rate_notices
from tuneplan.economics.interruptions import interrupted
from tuneplan.economics.project import Hours, Phase, Work, hours_of
from tuneplan.economics.simulation import median_values
from tuneplan.errors import InvalidRequest, Mistake
from tuneplan.frozen import dataclass
from tuneplan.language import message
from tuneplan.planner.budget_calendar import WEEK_HOURS, Weeks, duration_hours, weeks_of
from tuneplan.planner.budget_offers import (
    Rental,
    Renting,
    choose,
    cost_by_phase,
    factors,
    refuse_all,
    within,
)
from tuneplan.planner.budget_work import (
    gigabytes,
    moved_bytes,
    project_storage_bytes,
    work_of,
)
from tuneplan.planner.estimate import JobEstimate, estimate_job
from tuneplan.planner.offering import allowed_offers
from tuneplan.planner.renting import interruption_notices
from tuneplan.planner.resolving import told_by_line
from tuneplan.planner.sources import Sources
from tuneplan.spec.answer import Notice
from tuneplan.spec.offer import Offer
from tuneplan.spec.stated import StatedJob

Floats = NDArray[np.float64]
MONTH_HOURS = 720
# What an estimate tells of its own price and limits is not true of a project's.
_OF_ONE_RUN = (
    *("no_offer", "stale_price", "price_of_the_future", "deadline_missed", "budget_missed"),
    *("sold_by_card", "median_offer", "marketplace_minimum", "form_assumed", "stale_rate"),
    *("month_of_30_days", "no_internal_price", "currency_without_rate"),
    *("interruptions_expected", "interruptions_not_stated", "interrupted_too_often"),
    *("region_preference_unknown", "limit_costs", "limit_leaves_nothing"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """A job's project, in its median case.

    Attributes:
        currency: That of the whole budget.
        rental: None where no price is known.
        median: Hours of every phase.
        held: Hours of the calendar by phase, where its length is stated.
        offers: That the limits and the project's length leave.
        storage_money: For room on disk; None where no price is stated.
        egress_money: For what leaves the provider; None where no price is stated.
    """

    estimate: JobEstimate
    sources: Sources
    currency: str
    work: Work
    renting: Renting
    rental: Rental | None
    weeks: Weeks
    median: Mapping[Phase, Hours]
    held: Mapping[Phase, float]
    offers: tuple[Offer, ...]
    notices: tuple[Notice, ...]
    storage_money: float | None
    egress_money: float | None

    @property
    def job(self) -> StatedJob:
        """As stated."""
        return self.estimate.resolved.job

    @property
    def fixed_money(self) -> float:
        """What does not depend on the hours."""
        return (self.storage_money or 0.0) + (self.egress_money or 0.0)

    def rented(self, hours: Mapping[Phase, Hours]) -> Floats:
        """Machine hours of all phases, what interruptions add on average among them."""
        offers = self.rental.offers if self.rental else {}
        parts = [
            part.rented(self.renting.likely_lost(offers[phase], part) if phase in offers else 0.0)
            for phase, part in hours.items()
        ]
        return np.asarray(sum(parts))

    def money(self, hours: Mapping[Phase, Hours]) -> Floats:
        """Cost of all phases and of what does not depend on hours."""
        if self.rental is None:
            return np.zeros(1)
        costs = cost_by_phase(self.rental, hours, self.renting, self.held)
        return np.asarray(sum(costs.values())) + self.fixed_money


@told_by_line
def plan_project(job: StatedJob, sources: Sources, currency: str) -> PlannedJob:
    """Work, weeks and rental of one job.

    Raises:
        InvalidRequest: The hours of a run are not known, every offer binds for longer than the
            project, or a price is in a currency without a rate.
        InputError: As for ``estimate``.
    """
    estimate = estimate_job(job, sources)
    work = work_of(job, estimate)
    resolved, project = estimate.resolved, job.project
    cluster = resolved.cluster
    run = estimate.time.run if estimate.time else None
    assert cluster is not None and run is not None  # noqa: S101, PT018 - work_of has refused
    in_parallel = project.runs_in_parallel or 1
    median = hours_of(work, median_values(work))
    clock = {phase: float(part.rented()[0]) / in_parallel for phase, part in median.items()}
    weeks = weeks_of(project, clock)
    listed = sources.offers.of(cluster.accelerator.name)
    allowed = allowed_offers(listed, cluster, job.limits)
    rates = sources.offers.rates
    offers, aside, notices = within(allowed.offers, duration_hours(project))
    usable = factors((offer.price.currency for offer in offers), currency, rates)
    if aside and not usable:
        raise refuse_all(aside)
    share = float(resolved.schedule.saved_share(run.steps, run.steps_per_epoch))
    renting = Renting(
        num_accelerators=cluster.num_accelerators,
        in_parallel=in_parallel,
        segment_hours=share * work.run_hours.likely,
        factor=usable,
    )
    held = (
        {phase: float(WEEK_HOURS * count) for phase, count in weeks.length.items()}
        if weeks.held
        else {}
    )
    rental = choose(that_end(offers, work, renting), median, renting, held)
    notices += [*_of_run(estimate, job), *allowed.notices, *weeks.notices]
    if rental is None:
        text = message(
            "no_price_for_budget",
            "no price for {name} is known in {currency}, or the limits allow none: hours alone",
            name=cluster.accelerator.name,
            currency=currency,
        )
        notices.append(Notice(message=text))
    else:
        notices += _of_offers(rental, sources, work, renting)
    storage, egress = _fixed_money(job, estimate, weeks, currency, sources)
    return PlannedJob(
        estimate=estimate,
        sources=sources,
        currency=currency,
        work=work,
        renting=renting,
        rental=rental,
        weeks=weeks,
        median=median,
        held=held,
        offers=tuple(offers),
        notices=tuple(notices),
        storage_money=storage,
        egress_money=egress,
    )


def that_end(offers: Sequence[Offer], work: Work, renting: Renting) -> list[Offer]:
    """Without spot offers on which a run hardly ever comes to its end."""
    kept = []
    for offer in offers:
        known = offer.interruptions
        if (
            known is None
            or interrupted(
                work_hours=work.run_hours.likely,
                segment_hours=renting.segment_hours,
                every_hours=known.every_hours / renting.instances(offer),
                restart_hours=known.restart_hours,
            ).ends
        ):
            kept.append(offer)
    return kept


def _of_run(estimate: JobEstimate, job: StatedJob) -> list[Notice]:
    """What one run's estimate has to tell that holds for a project too."""
    found = [one for one in estimate.notices if one.message.code not in _OF_ONE_RUN]
    if job.project.num_experiments and not job.project.experiment_fraction:
        text = message(
            "experiments_in_full",
            "every experiment is counted as a full run: project.experiment_fraction makes it less",
        )
        found.append(Notice(message=text, path="project.num_experiments"))
    return found


def _of_offers(rental: Rental, sources: Sources, work: Work, renting: Renting) -> list[Notice]:
    found: list[Notice] = []
    for offer in dict.fromkeys(rental.offers.values()):
        found += offer_notices(offer, sources.today)
        found += interruption_notices(
            offer,
            renting.num_accelerators,
            work.run_hours,
            checkpoint_hours=renting.segment_hours,
        )
    return [*found, *rate_notices(sources.offers.rates, sources.today)]


def _fixed_money(
    job: StatedJob, estimate: JobEstimate, weeks: Weeks, currency: str, sources: Sources
) -> tuple[float | None, float | None]:
    """Money for storage over the project's weeks, and for what leaves the provider."""
    project = job.project
    months = weeks.total * WEEK_HOURS / MONTH_HOURS
    stored = gigabytes(project_storage_bytes(job, estimate)) * months
    leaving = gigabytes(moved_bytes(estimate).out_bytes)
    found: list[float | None] = []
    mistakes = []
    for key, price, amount in (
        ("storage_price", project.storage_price, stored),
        ("egress_price", project.egress_price, leaving),
    ):
        factor = factors([price[1]], currency, sources.offers.rates) if price else {}
        if price is not None and price[1] not in factor:
            text = message(
                "no_rate_for_price",
                "the amount is in {currency} and no rate into {wanted} is known: add it under "
                "rates in a price sheet",
                currency=price[1],
                wanted=currency,
            )
            mistakes.append(Mistake(message=text, path=f"project.{key}"))
            continue
        found.append(None if price is None else float(price[0]) * amount * factor[price[1]])
    if mistakes:
        raise InvalidRequest(mistakes)
    return found[0], found[1]


def with_factors(planned: PlannedJob, offers: Sequence[Offer]) -> Renting:
    """How the job's machines are rented, with the currencies of other offers."""
    found = factors(
        (offer.price.currency for offer in offers),
        planned.currency,
        planned.sources.offers.rates,
    )
    return replace(planned.renting, factor=found)
