"""What each switch of a job buys, against estimates of the changed jobs."""

from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from tuneplan.contract.reading import load_job
from tuneplan.errors import InvalidRequest
from tuneplan.estimation.uncertainty import Verdict
from tuneplan.planner.compare import compare_jobs
from tuneplan.planner.estimate import estimate_job
from tuneplan.planner.lever_table import Effect, JobLevers, levers_job, memories_alike
from tuneplan.planner.sources import Sources
from tuneplan.spec.answer import Basis

SOURCES = Sources(today=date(2026, 11, 30))
ON_ONE = {
    "model": "Qwen/Qwen2.5-0.5B",
    "method": "lora",
    "hardware": {"accelerator": "RTX 4090"},
    "data": {"num_samples": 21_000, "mean_tokens": 850},
}
TOO_LARGE = {**ON_ONE, "model": "Qwen/Qwen2.5-7B", "method": "full"}


def levers_of(job: dict[str, Any], **options: Any) -> JobLevers:
    return levers_job(load_job(job), SOURCES, **options)


@pytest.fixture(name="on_one", scope="module")
def of_one_card() -> JobLevers:
    return levers_of(ON_ONE)


@pytest.fixture(name="too_large", scope="module")
def of_a_job_too_large() -> JobLevers:
    return levers_of(TOO_LARGE, replays=True)


def named(levers: JobLevers) -> dict[str, Effect]:
    return {one.change.name: one for one in levers.effects}


def test_what_a_change_saves_is_what_an_estimate_of_the_changed_job_says(
    on_one: JobLevers,
) -> None:
    effect = named(on_one)["packing"]
    then = estimate_job(effect.change.applied(load_job(ON_ONE)), SOURCES)
    assert effect.saves_bytes is not None
    assert effect.saves_s is not None
    assert then.total_s is not None
    assert on_one.now.total_s is not None
    now = on_one.now.memory.ranges.peak_bytes.likely
    assert effect.saves_bytes.likely == pytest.approx(now - then.memory.ranges.peak_bytes.likely)
    assert effect.saves_s.likely == pytest.approx(on_one.now.total_s.likely - then.total_s.likely)


def test_money_time_and_memory_of_every_change_that_runs_are_known(on_one: JobLevers) -> None:
    for effect in on_one.effects:
        if effect.after is None:
            assert effect.cannot_help_because is not None
            continue
        assert effect.saves_bytes is not None
        assert effect.saves_s is not None
        assert effect.saves_money is not None
        assert effect.saves_s.low <= effect.saves_s.likely <= effect.saves_s.high
        low, high = effect.saves_money.low.amount, effect.saves_money.high.amount
        assert low <= effect.saves_money.likely.amount <= high


def test_what_cannot_be_switched_says_why(on_one: JobLevers) -> None:
    because = named(on_one)["sharding"].cannot_help_because
    assert because is not None
    assert because.code == "one_card"


def test_what_helps_nothing_stands_last_with_the_reason(on_one: JobLevers) -> None:
    helps = [one.cannot_help_because is None for one in on_one.effects]
    assert helps == sorted(helps, reverse=True)
    assert not all(helps)


def test_a_job_that_fits_sees_first_what_saves_most_money(on_one: JobLevers) -> None:
    free = [
        one.saves_money.likely.amount
        for one in on_one.effects
        if one.cannot_help_because is None
        and one.change.note is None
        and one.saves_money is not None
        and one.fit_after is not None
        and one.fit_after.keeps(0.2)
    ]
    assert free == sorted(free, reverse=True)


def test_a_job_that_does_not_fit_sees_first_what_makes_it_fit(too_large: JobLevers) -> None:
    assert too_large.now.memory.fit is not None
    assert too_large.now.memory.fit.verdict is Verdict.DOES_NOT_FIT
    first = too_large.effects[0]
    assert first.fit_after is not None
    assert first.fit_after.verdict is Verdict.FITS
    fitting = [one.fit_after.verdict is Verdict.FITS for one in too_large.effects if one.fit_after]
    assert fitting == sorted(fitting, reverse=True)


def test_offload_is_offered_only_where_room_is_wanted(
    on_one: JobLevers, too_large: JobLevers
) -> None:
    assert not any(one.change.kind == "offload" for one in on_one.effects)
    assert any(one.change.kind == "offload" for one in too_large.effects)


def test_larger_cards_stand_among_the_levers_of_a_job_that_does_not_fit(
    too_large: JobLevers,
) -> None:
    assert any(one.change.kind == "larger_card" for one in too_large.effects)


def test_a_verdict_after_a_change_counts_the_allocator_as_the_one_before(
    too_large: JobLevers,
) -> None:
    replayed, formula = too_large.now, estimate_job(load_job(TOO_LARGE), SOURCES)
    assert replayed.memory.fit is not None
    assert formula.memory.fit is not None
    more = replayed.memory.fit.needed_bytes.likely - formula.memory.fit.needed_bytes.likely
    for effect in too_large.effects:
        if effect.after is None or effect.after.memory.fit is None:
            continue
        assert effect.fit_after is not None
        moved = max(0.0, effect.after.memory.fit.needed_bytes.likely + more)
        assert effect.fit_after.needed_bytes.likely == pytest.approx(moved)


def test_without_a_card_memory_is_told_and_time_is_not() -> None:
    levers = levers_of({**ON_ONE, "hardware": {}})
    assert levers.now.time is None
    assert any(one.saves_bytes is not None for one in levers.effects)
    assert all(one.saves_s is None for one in levers.effects)


def test_an_estimate_made_before_is_taken_as_it_is() -> None:
    job = load_job(ON_ONE)
    now = estimate_job(job, SOURCES)
    assert levers_job(job, SOURCES, now=now).now is now


def test_a_plan_that_cannot_be_does_not_stop_the_comparison() -> None:
    wrong = {**ON_ONE, "model": "Qwen/Nonesuch-9000"}
    good, bad = compare_jobs(
        [lambda: load_job(ON_ONE), lambda: load_job(wrong)], lambda _job: SOURCES, replays=False
    )
    assert good.estimate is not None
    assert bad.estimate is None
    assert [mistake.path for mistake in bad.mistakes] == ["model"]


def test_a_traced_job_is_compared_with_its_changes_by_the_formulas_alone() -> None:
    job = load_job(ON_ONE)
    formula = estimate_job(job, SOURCES)
    ranges = formula.memory.ranges
    peak = replace(ranges.peak_bytes, basis=Basis.TRACED).scaled(2.0)
    memory = replace(formula.memory, ranges=replace(ranges, peak_bytes=peak))
    traced = replace(formula, memory=memory)
    assert memories_alike(traced, traced, SOURCES) == (memory, memory)
    held, then = memories_alike(traced, formula, SOURCES)
    assert held.ranges.peak_bytes == ranges.peak_bytes
    assert then.ranges.peak_bytes == ranges.peak_bytes


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="Nonesuch"):
        levers_of({**ON_ONE, "model": "Qwen/Nonesuch-9000"})
