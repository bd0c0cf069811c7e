"""Laws of the search: it equals pricing each candidate alone, and money only scales."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from random_jobs import datasets
from tuneplan.contract.reading import load_job
from tuneplan.economics.billing import cost_of
from tuneplan.errors import InputError
from tuneplan.planner.candidates import BATCH_TOLERANCE, for_chip, one_micro_batch
from tuneplan.planner.dataset import read_dataset
from tuneplan.planner.estimate import JobEstimate, estimate_resolved
from tuneplan.planner.offering import rejection
from tuneplan.planner.plan import Plan, plan_job
from tuneplan.planner.resolving import resolve, resolve_platform
from tuneplan.planner.sources import Sources
from tuneplan.spec.answer import Estimate
from tuneplan.spec.offer import Money, Offer
from tuneplan.spec.stated import StatedJob
from tuneplan.units import HOUR_S

SOURCES = Sources(today=date(2026, 11, 30))
CHIPS = ("NVIDIA A100 SXM 80GB", "NVIDIA GeForce RTX 4090", "NVIDIA T4", "NVIDIA L40S")


@st.composite
def searches(draw: st.DrawFn) -> dict[str, Any]:
    """A job that leaves at most some tens of candidates."""

    def some(values: tuple[Any, ...], most: int) -> list[Any]:
        return draw(st.lists(st.sampled_from(values), min_size=1, max_size=most, unique=True))

    limits: dict[str, Any] = {"headroom": draw(st.sampled_from([0.0, 0.2, 0.5]))}
    if draw(st.booleans()):
        limits["deadline"] = draw(st.sampled_from(["20 min", "2 h", "30 h"]))
    if draw(st.booleans()):
        limits["budget"] = draw(st.sampled_from(["0.5 USD", "5 USD", "500 USD"]))
    if draw(st.booleans()):
        limits["allow_interruptible"] = True
    training: dict[str, Any] = {
        "max_length": draw(st.sampled_from([256, 2048])),
        "per_device_train_batch_size": some((1, 2, 4, 16), 2),
        "gradient_checkpointing": some((True, False), 2),
        "packing": draw(st.booleans()),
    }
    if draw(st.booleans()):
        training["global_batch_size"] = draw(st.sampled_from([64, 192]))
    return {
        "model": draw(
            st.sampled_from(["Qwen/Qwen2.5-0.5B-Instruct", "meta-llama/Meta-Llama-3-8B"])
        ),
        "method": some(("full", "lora", "qlora"), 2),
        "data": draw(datasets()),
        "hardware": {
            "accelerator": some(CHIPS, 2),
            "accelerators_per_node": some((1, 2, 4), 2),
            "num_nodes": 1,
        },
        "parallelism": {"strategy": some(("ddp", "zero3", "fsdp"), 1)[0]},
        "training": training,
        "limits": limits,
        "goal": draw(st.sampled_from(["cheapest", "fastest", "balanced"])),
    }


# --- Brute force ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One configuration, estimated alone."""

    key: tuple[Any, ...]
    estimate: JobEstimate
    cost: float
    has_offer: bool

    @property
    def free_fraction(self) -> float:
        fit = self.estimate.memory.fit
        assert fit is not None
        return 1 - fit.needed_bytes.likely / fit.capacity_bytes

    @property
    def total_s(self) -> float:
        return self.estimate.total_s.likely if self.estimate.total_s else math.inf

    @property
    def cards(self) -> int:
        return int(self.key[1])

    @property
    def point(self) -> tuple[float, float, float]:
        """Cost, duration, less head-room: all to be small."""
        return self.cost, self.total_s, -math.floor(self.free_fraction / 0.05)


def every_candidate(job: Mapping[str, Any]) -> Iterator[Candidate]:
    """All combinations of what the job leaves open, each a job of its own."""
    hardware, training = job["hardware"], job["training"]
    wanted = training.get("global_batch_size")
    smallest = min(hardware["accelerators_per_node"]) * min(training["per_device_train_batch_size"])
    for chip, cards, method, again, size in itertools.product(
        hardware["accelerator"],
        hardware["accelerators_per_node"],
        job["method"],
        training["gradient_checkpointing"],
        training["per_device_train_batch_size"],
    ):
        alone = {
            **job,
            "method": method,
            "hardware": {"accelerator": chip, "accelerators_per_node": cards, "num_nodes": 1},
            "training": {
                **training,
                "gradient_checkpointing": again,
                "per_device_train_batch_size": size,
            },
            "parallelism": "single" if cards == 1 else job["parallelism"],
        }
        alone["training"].pop("global_batch_size", None)
        found = _alone(load_job(alone), size, wanted or max(32, smallest))
        if found is not None:
            estimate, accumulation = found
            cost, has_offer = _cheapest(estimate, load_job(job))
            yield Candidate(
                key=(chip, cards, method, again, size, accumulation),
                estimate=estimate,
                cost=cost,
                has_offer=has_offer,
            )


def _alone(stated: StatedJob, size: int, wanted: int) -> tuple[JobEstimate, int] | None:
    """The full estimate with the accumulation that makes about ``wanted`` samples a step."""
    try:
        platform = resolve_platform(stated, SOURCES)
        assert platform.cluster is not None
        cards, chip = platform.cluster.num_accelerators, platform.cluster.accelerator
        model = SOURCES.models.resolve(stated.model).architecture
        dataset = read_dataset(stated)
        # Packed rows alone in the space count as rows, as the frameworks count them.
        accumulation = max(1, round(wanted / (size * cards)))
        if abs(accumulation * size * cards / wanted - 1) > BATCH_TOLERANCE:
            return None
        recipe = for_chip(one_micro_batch(stated.recipe, size, accumulation), chip)
        resolved = resolve(
            replace(stated, recipe=recipe), model=model, platform=platform, dataset=dataset
        )
        return estimate_resolved(resolved, SOURCES), accumulation
    except InputError:
        return None


def _cheapest(estimate: JobEstimate, asked: StatedJob) -> tuple[float, bool]:
    cluster = estimate.resolved.cluster
    assert cluster is not None
    listed = SOURCES.offers.of(cluster.accelerator.name)
    allowed = [
        offer
        for offer in listed
        if rejection(offer, cluster.num_nodes, cluster.accelerators_per_node, asked.limits) is None
    ]
    if not allowed or estimate.total_s is None:
        return math.nan, bool(allowed) or not listed
    hours = estimate.total_s.scaled(1 / HOUR_S)
    costs = [
        cost_of(offer, num_accelerators=cluster.num_accelerators, hours=hours) for offer in allowed
    ]
    return min(float(cost.total.likely.amount) for cost in costs), True


def keeps_limits(one: Candidate, asked: StatedJob) -> bool:
    limits = asked.limits
    return (
        one.free_fraction >= limits.headroom_fraction
        and (limits.deadline_s is None or one.total_s <= limits.deadline_s)
        and (limits.budget is None or one.cost <= float(limits.budget))
        and one.has_offer
    )


def key_of(settings_: Mapping[str, Any]) -> tuple[Any, ...]:
    return (
        settings_["hardware.accelerator"],
        settings_["hardware.accelerators_per_node"],
        settings_["method"],
        settings_["training.gradient_checkpointing"],
        settings_["training.per_device_train_batch_size"],
        settings_["training.gradient_accumulation_steps"],
    )


def worth(goal: str, one: Candidate) -> float:
    """What a goal makes small."""
    if goal == "fastest":
        return one.total_s
    return one.cost if goal == "cheapest" else one.cost * one.total_s


@given(searches())
@settings(max_examples=10)
def test_the_search_finds_what_pricing_each_candidate_alone_finds(written):
    asked, plan = load_job(written), plan_job(load_job(written), SOURCES)
    alone = {one.key: one for one in every_candidate(written)}
    feasible = [one for one in alone.values() if keeps_limits(one, asked)]
    assert bool(plan.entries) == bool(feasible)
    front = {
        one.key for one in feasible if not any(_beats(other.point, one.point) for other in feasible)
    }
    assert len(plan.pareto) == len(front)
    for entry in plan.entries:
        one = alone[key_of(entry.settings)]
        assert one in feasible
        assert entry.pareto == (one.key in front)
        assert entry.estimate.total_s is not None
        assert entry.estimate.total_s.likely == pytest.approx(one.total_s, rel=1e-9)
    if not feasible:
        return
    best = alone[key_of(plan.entries[0].settings)]
    least = min(worth(written["goal"], one) for one in feasible)
    assert worth(written["goal"], best) == pytest.approx(least, rel=1e-8)
    for label in ("cheapest", "fastest", "balanced"):
        (labelled,) = [entry for entry in plan.entries if label in entry.labels]
        least = min(worth(label, one) for one in feasible)
        assert worth(label, alone[key_of(labelled.settings)]) == pytest.approx(least, rel=1e-8)
    (smallest,) = [entry for entry in plan.entries if "smallest" in entry.labels]
    assert key_of(smallest.settings)[1] == min(one.cards for one in feasible)


def _beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


# --- Prices -------------------------------------------------------------------------------------


def scaled(factor: Decimal) -> Sources:
    """The same catalogues with every price times a factor."""

    def dearer(money: Money | None) -> Money | None:
        return money and money.times(factor)

    def offer(one: Offer) -> Offer:
        return replace(one, price=one.price.times(factor), term_price=dearer(one.term_price))

    found = Sources(today=SOURCES.today)
    offers = SOURCES.offers
    vars(found)["offers"] = replace(offers, offers=tuple(map(offer, offers.offers)))
    return found


def shown(plan: Plan) -> list[tuple[Any, ...]]:
    return [(entry.id, entry.labels, entry.pareto) for entry in plan.entries]


@given(searches(), st.sampled_from(["0.25", "3", "1000"]))
@settings(max_examples=10)
def test_prices_times_k_are_costs_times_k_and_the_same_ranking(written, times):
    factor = Decimal(times)
    limits = dict(written["limits"])
    if "budget" in limits:
        amount, currency = limits["budget"].split()
        limits["budget"] = f"{Decimal(amount) * factor} {currency}"
    one = plan_job(load_job(written), SOURCES)
    other = plan_job(load_job({**written, "limits": limits}), scaled(factor))
    assert shown(one) == shown(other)
    assert one.pareto == other.pareto
    for here, there in zip(one.entries, other.entries, strict=True):
        costs = here.estimate.cost, there.estimate.cost
        assert (costs[0] is None) == (costs[1] is None)
        if costs[0] is not None and costs[1] is not None:
            for name in ("low", "likely", "high"):
                amounts = [getattr(cost.total, name).amount for cost in costs]
                assert float(amounts[1]) == pytest.approx(float(amounts[0] * factor))


@given(
    st.sampled_from(SOURCES.offers.offers),
    st.integers(1, 16),
    st.floats(0.01, 5000),
    st.sampled_from([Decimal("0.1"), Decimal(7)]),
)
@settings(max_examples=60)
def test_the_cost_of_any_offer_scales_with_its_price(offer, cards, hours, factor):
    spread = Estimate(low=0.9 * hours, likely=hours, high=1.2 * hours)
    dearer = replace(
        offer,
        price=offer.price.times(factor),
        term_price=offer.term_price and offer.term_price.times(factor),
    )
    one = cost_of(offer, num_accelerators=cards, hours=spread).total
    other = cost_of(dearer, num_accelerators=cards, hours=spread).total
    for name in ("low", "likely", "high"):
        assert getattr(other, name).amount == pytest.approx(getattr(one, name).amount * factor)
