"""An estimate of the core as the answer that the contract describes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

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
)
from tuneplan.contract.job_document import job_document
from tuneplan.contract.lint import LintFinding
from tuneplan.contract.parts import (
    Moment,
    MoneyRange,
    Notice,
    Range,
    assumption_model,
    money_decimals,
    money_model,
    notice_model,
    range_model,
    term_models,
    time_term_models,
)
from tuneplan.economics import billing
from tuneplan.economics.money import MoneyRange as CoreMoneyRange
from tuneplan.estimation.uncertainty import Fit as CoreFit
from tuneplan.planner.configuration import Configuration
from tuneplan.planner.estimate import JobEstimate, StorageAnswer
from tuneplan.planner.evaluating import MemoryAnswer, TimeAnswer
from tuneplan.planner.quick_check import quick_findings
from tuneplan.planner.resolving import Resolved
from tuneplan.report.lint_answer import finding_models
from tuneplan.report.storage_answer import storage_path_fields
from tuneplan.spec import answer as core
from tuneplan.spec.hardware import Cluster
from tuneplan.spec.offer import Offer as CoreOffer

if TYPE_CHECKING:
    from tuneplan.planner.traced_timeline import Moment as TracedMoment

DECIDING_QUANTITY = "allocated peak + unusable fragmentation + context"


def estimate_answer(estimate: JobEstimate, *, as_of: str) -> EstimateAnswer:
    """The answer of ``estimate``; ``as_of`` is the day it is given, ``2026-11-30``."""
    return EstimateAnswer(
        **header("estimate", as_of=as_of),
        **dict(estimate_body(estimate)),
        lint=quick_lint(estimate),
        timeline=moment_models(estimate.timeline),
    )


def moment_models(moments: Sequence[TracedMoment]) -> list[Moment]:
    """The timeline of a trace."""
    return [
        Moment(
            t=one.at,
            phase=one.phase,
            allocated_bytes=one.allocated_bytes,
            reserved_bytes=one.reserved_bytes,
        )
        for one in moments
    ]


def quick_lint(estimate: JobEstimate) -> list[LintFinding]:
    """What stands out without another configuration to compare with."""
    configuration = Configuration(job=estimate.resolved.job, imported=None, files=())
    return finding_models(quick_findings(estimate), configuration)


def estimate_body(estimate: JobEstimate) -> EstimateBody:
    """An estimate without a header, as it stands in the entries of a plan too."""
    resolved, time = estimate.resolved, estimate.time
    run = time.run if time else None
    assumptions = unique_assumptions(estimate.assumptions)
    cluster, energy = resolved.cluster, estimate.energy
    return EstimateBody(
        job=job_document(resolved.job, assumptions),
        software=dict(resolved.software),
        hardware=hardware_model(cluster) if cluster else None,
        data=_data(resolved),
        assumptions=[assumption_model(one) for one in assumptions],
        warnings=notice_models(estimate.notices),
        fit=_fit(estimate),
        memory=Memory(**memory_fields(estimate.memory)),
        model=Model(
            total_parameters=resolved.model.total_parameters,
            active_parameters=resolved.model.active_parameters,
            trainable_parameters=estimate.memory.num_trained,
        ),
        time=_time(time) if time else None,
        accelerator_hours=range_model(run.accelerator_hours) if run else None,
        cost=cost_model(estimate.cost) if estimate.cost else None,
        storage=_storage(estimate.storage),
        energy_kwh=range_model(energy.energy_kwh) if energy else None,
        co2_kg=range_model(energy.co2_kg) if energy and energy.co2_kg else None,
    )


def unique_assumptions(assumptions: tuple[core.Assumption, ...]) -> tuple[core.Assumption, ...]:
    """One assumption a name, in the order of the first; what was decided last counts."""
    found: dict[str, core.Assumption] = {}
    for assumption in assumptions:
        found[assumption.name] = assumption
    return tuple(found.values())


def notice_models(notices: tuple[core.Notice, ...]) -> list[Notice]:
    """Warnings, each sentence once."""
    models = [notice_model(notice) for notice in notices]
    return list({model.message: model for model in reversed(models)}.values())[::-1]


def hardware_model(cluster: Cluster) -> Hardware:
    """What the job runs on; ``link`` names the link in a machine and the one between them."""
    links = [cluster.interconnect] if cluster.accelerators_per_node > 1 else []
    links += [cluster.inter_node] if cluster.num_nodes > 1 and cluster.inter_node else []
    return Hardware(
        accelerator=cluster.accelerator.name,
        count=cluster.num_accelerators,
        nodes=cluster.num_nodes,
        link=" + ".join(links) or "none",
        capacity_bytes=cluster.accelerator.capacity_bytes,
    )


def _data(resolved: Resolved) -> Data | None:
    statistics, batch = resolved.dataset.statistics, resolved.batch
    micro_batches = resolved.recipe.gradient_accumulation_steps * resolved.parallelism.data
    known = statistics is not None and statistics.num_samples > 0
    return Data(
        num_samples=statistics.num_samples if statistics is not None and known else None,
        total_tokens=_total_tokens(resolved) if known else None,
        tokens_per_step=batch.positions * micro_batches,
        padding_fraction=batch.padding_fraction if known else None,
        worst_micro_batch_tokens=round(batch.sequences * batch.worst_length),
    )


def _total_tokens(resolved: Resolved) -> Range | None:
    """Tokens of the training samples; as wide as the counting was."""
    statistics, profile = resolved.dataset.statistics, resolved.dataset.profile
    if statistics is None:
        return None
    likely = statistics.total_tokens
    counted = profile.tokens.all if profile else None
    if counted is None or not counted.likely:
        return Range(low=likely, likely=likely, high=likely, basis=statistics.basis)
    share = likely / counted.likely
    return Range(
        low=min(likely, round(counted.low * share)),
        likely=likely,
        high=max(likely, round(counted.high * share)),
        basis=counted.basis,
    )


def _fit(estimate: JobEstimate) -> Fit | list[FitOn] | None:
    if estimate.memory.fit is not None:
        return Fit(**fit_fields(estimate.memory.fit))
    if not estimate.fits_on:
        return None
    return [FitOn(accelerator=name, **fit_fields(fit)) for name, fit in estimate.fits_on]


def fit_fields(fit: CoreFit, *, decided_by: str = DECIDING_QUANTITY) -> dict[str, Any]:
    """The fields of ``Fit``."""
    return {
        "verdict": fit.verdict.value,
        "probability_fits": fit.probability_fits,
        "capacity_bytes": fit.capacity_bytes,
        "headroom_bytes": round(fit.headroom_bytes),
        "deciding_quantity": decided_by,
    }


def memory_fields(memory: MemoryAnswer) -> dict[str, Any]:
    """The fields of ``Memory``."""
    ranges = memory.ranges
    peak = range_model(ranges.peak_bytes, whole=True)
    return {
        "peak_bytes": peak,
        "peak_reserved_bytes": range_model(ranges.peak_reserved_bytes, whole=True),
        "peak_device_bytes": range_model(ranges.peak_device_bytes, whole=True),
        "peak_phase": memory.phase.value,
        "worst_rank": 0,  # in data-parallel layouts all ranks hold the same; rank 0 stands for them
        "terms": term_models(memory.terms, total=int(peak.likely)),
        "by_phase": [
            PhaseMemory(phase=phase.value, size_bytes=round(size))
            for phase, size in memory.by_phase
        ],
        "host_bytes": range_model(memory.host_bytes, whole=True),
    }


def _time(time: TimeAnswer) -> Time:
    run, step = time.run, range_model(time.step.step_s)
    terms = tuple(sorted(time.step.terms, key=lambda term: -term.value))
    return Time(
        step_s=step,
        tokens_per_s_per_accelerator=range_model(time.tokens_per_s_per_accelerator),
        real_tokens_per_s_per_accelerator=(
            range_model(run.real_tokens_per_s_per_accelerator) if run else None
        ),
        samples_per_s=range_model(run.samples_per_s) if run else None,
        mfu_fraction=time.mfu_fraction,
        hfu_fraction=time.hfu_fraction,
        steps=run.steps if run else None,
        train_s=range_model(run.train_s) if run else None,
        eval_s=range_model(run.eval_s) if run else None,
        checkpoint_s=range_model(run.checkpoint_s) if run else None,
        total_s=range_model(run.total_s) if run else None,
        terms=time_term_models(terms),
    )


def cost_model(cost: billing.Cost) -> Cost:
    """A cost with its offer and addends."""
    return Cost(
        total=money_range_model(cost.total),
        offer=offer_model(cost.offer),
        items=[
            CostItem(name=item.name, amount=money_range_model(item.amount)) for item in cost.items
        ],
    )


def offer_model(offer: CoreOffer) -> Offer:
    """An offer with its price: of an hour, or of a term."""
    price, per = (offer.price, "hour")
    if offer.term_price is not None and offer.term_hours:
        price, per = offer.term_price, f"{offer.term_hours} hours"
    return Offer(
        provider=offer.provider,
        name=offer.name,
        price=money_model(price, decimals=4),
        per=per,
        as_of=offer.as_of.isoformat(),
        source=offer.source,
        region=offer.region,
    )


def money_range_model(amount: CoreMoneyRange) -> MoneyRange:
    """A range of money, to the cent; below 1 so fine that the likely amount has three digits."""
    decimals = money_decimals(amount.likely)
    return MoneyRange(
        low=money_model(amount.low, decimals=decimals),
        likely=money_model(amount.likely, decimals=decimals),
        high=money_model(amount.high, decimals=decimals),
    )


def _storage(storage: StorageAnswer) -> Storage:
    return Storage(
        checkpoint_bytes=round(storage.checkpoint_bytes),
        kept_bytes=None if storage.kept_bytes is None else round(storage.kept_bytes),
        dataset_bytes=storage.dataset_bytes,
        **({} if storage.path is None else storage_path_fields(storage.path)),
    )


__all__ = [
    "cost_model",
    "estimate_answer",
    "estimate_body",
    "hardware_model",
    "money_range_model",
    "notice_models",
    "offer_model",
    "unique_assumptions",
]
