"""An estimate of the core as the answer that the contract describes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tuneplan.contract.answers import (
    Cost,
    CostItem,
    Data,
    EstimateAnswer,
    EstimateBody,
    Fit,
    FitOn,
    Hardware,
    Memory,
    Model,
    Offer,
    PhaseMemory,
    Storage,
    Time,
    header,
    job_document,
)
from tuneplan.contract.parts import (
    MoneyRange,
    Range,
    assumption_model,
    money_model,
    notice_model,
    range_model,
    term_model,
    time_term_model,
)
from tuneplan.language import say
from tuneplan.spec.answer import Estimate, Term

if TYPE_CHECKING:
    from tuneplan.economics import billing, money
    from tuneplan.estimation import uncertainty
    from tuneplan.planner.estimate import JobEstimate
    from tuneplan.planner.evaluating import MemoryAnswer, TimeAnswer
    from tuneplan.planner.resolving import Resolved


def estimate_answer(estimate: JobEstimate, *, as_of: str) -> EstimateAnswer:
    """The answer of ``estimate``; ``as_of`` is the day it is given."""
    body = estimate_body(estimate)
    fields = {name: getattr(body, name) for name in EstimateBody.model_fields}
    return EstimateAnswer(**header("estimate", as_of=as_of), **fields)


def estimate_body(estimate: JobEstimate) -> EstimateBody:
    """The answer without its header, as the entries of a plan hold it."""
    resolved, energy = estimate.resolved, estimate.energy
    run = estimate.time.run if estimate.time else None
    return EstimateBody(
        job=job_document(resolved.job),
        software=dict(resolved.software),
        hardware=_hardware(resolved),
        data=_data(estimate),
        assumptions=[assumption_model(one) for one in estimate.assumptions],
        warnings=[notice_model(one) for one in estimate.notices],
        fit=_fit(estimate),
        memory=_memory(estimate.memory),
        model=Model(
            total_parameters=resolved.model.total_parameters,
            active_parameters=resolved.model.active_parameters,
            trainable_parameters=estimate.memory.num_trained,
        ),
        time=_time(estimate.time) if estimate.time else None,
        accelerator_hours=_range(run.accelerator_hours if run else None),
        cost=_cost(estimate.cost) if estimate.cost else None,
        storage=Storage(
            checkpoint_bytes=round(estimate.storage.checkpoint_bytes),
            kept_bytes=_whole(estimate.storage.kept_bytes),
            dataset_bytes=estimate.storage.dataset_bytes,
        ),
        energy_kwh=_range(energy.energy_kwh if energy else None),
        co2_kg=_range(energy.co2_kg if energy else None),
    )


def _range(estimate: Estimate | None, *, whole: bool = False) -> Range | None:
    return None if estimate is None else range_model(estimate, whole=whole)


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _hardware(resolved: Resolved) -> Hardware | None:
    cluster = resolved.cluster
    if cluster is None:
        return None
    return Hardware(
        accelerator=cluster.accelerator.name,
        count=cluster.num_accelerators,
        nodes=cluster.num_nodes,
        link=cluster.interconnect,
        capacity_bytes=cluster.accelerator.capacity_bytes,
    )


def _data(estimate: JobEstimate) -> Data:
    resolved = estimate.resolved
    batch, statistics = resolved.batch, resolved.dataset.statistics
    run = estimate.time.run if estimate.time else None
    total = None
    if statistics is not None:
        tokens = float(statistics.total_tokens)
        total = Estimate(low=tokens, likely=tokens, high=tokens, basis=statistics.basis)
    return Data(
        num_samples=statistics.num_samples if statistics else None,
        total_tokens=_range(total, whole=True),
        tokens_per_step=run.tokens_per_step if run else None,
        padding_fraction=max(0.0, 1.0 - batch.real_tokens / batch.positions)
        if statistics is not None and batch.positions
        else None,
        worst_micro_batch_tokens=round(batch.sequences * batch.worst_length),
    )


def _fit(estimate: JobEstimate) -> Fit | list[FitOn] | None:
    if estimate.memory.fit is not None:
        return _verdict(estimate.memory.fit)
    rows = [FitOn(accelerator=name, **_verdict(fit).model_dump()) for name, fit in estimate.fits_on]
    return rows or None


def _verdict(fit: uncertainty.Fit) -> Fit:
    return Fit(
        verdict=fit.verdict.value,
        probability_fits=fit.probability_fits,
        capacity_bytes=fit.capacity_bytes,
        headroom_bytes=round(fit.headroom_bytes),
        deciding_quantity=say("allocated peak + unusable fragmentation + context"),
    )


def _memory(memory: MemoryAnswer) -> Memory:
    return Memory(
        peak_bytes=range_model(memory.ranges.peak_bytes, whole=True),
        peak_reserved_bytes=range_model(memory.ranges.peak_reserved_bytes, whole=True),
        peak_device_bytes=range_model(memory.ranges.peak_device_bytes, whole=True),
        peak_phase=memory.phase.value,
        worst_rank=0,
        terms=[term_model(term) for term in _largest_first(memory.terms)],
        by_phase=[
            PhaseMemory(phase=phase.value, size_bytes=round(size))
            for phase, size in memory.by_phase
        ],
        host_bytes=range_model(memory.host_bytes, whole=True),
    )


def _largest_first(terms: Iterable[Term]) -> list[Term]:
    return sorted(terms, key=lambda term: -term.value)


def _time(time: TimeAnswer) -> Time:
    run = time.run
    return Time(
        step_s=range_model(time.step.step_s),
        tokens_per_s_per_accelerator=range_model(time.tokens_per_s_per_accelerator),
        real_tokens_per_s_per_accelerator=_range(
            run.real_tokens_per_s_per_accelerator if run else None
        ),
        samples_per_s=_range(run.samples_per_s if run else None),
        mfu_fraction=time.mfu_fraction,
        hfu_fraction=time.hfu_fraction,
        steps=run.steps if run else None,
        train_s=_range(run.train_s if run else None),
        eval_s=_range(run.eval_s if run else None),
        checkpoint_s=_range(run.checkpoint_s if run else None),
        total_s=_range(run.total_s if run else None),
        terms=[time_term_model(term) for term in _largest_first(time.step.terms)],
    )


def _cost(cost: billing.Cost) -> Cost:
    offer = cost.offer
    return Cost(
        total=money_range_model(cost.total),
        offer=Offer(
            provider=offer.provider,
            name=offer.name,
            price=money_model(offer.price),
            per="hour",
            as_of=offer.as_of.isoformat(),
            source=offer.source,
            region=offer.region,
        ),
        items=[
            CostItem(name=item.name, amount=money_range_model(item.amount)) for item in cost.items
        ],
    )


def money_range_model(amount: money.MoneyRange) -> MoneyRange:
    """A range of money, each end rounded to the cent."""
    return MoneyRange(
        low=money_model(amount.low),
        likely=money_model(amount.likely),
        high=money_model(amount.high),
    )
