"""Budgets of projects: hours, offers, phases, weeks, limits; mistakes with their places."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tuneplan.contract.reading import load_job
from tuneplan.economics.project import Phase
from tuneplan.errors import InvalidRequest
from tuneplan.planner.budget import Budget, budget_jobs
from tuneplan.planner.budget_weeks import calendar
from tuneplan.planner.sources import Sources, sources_for

TODAY = date(2026, 11, 30)
SHEET = """offers:
  - {provider: X, name: hour, accelerator: H100 SXM, num_accelerators: 1, price: 120 TWD, per: hour,
     region: TW, as_of: 2026-11-02}
  - {provider: X, name: month, accelerator: H100 SXM, num_accelerators: 1, price: 50000 TWD,
     per: month, region: TW, discounts: {6 month: 10 %}, as_of: 2026-11-02}
"""
EXACT = {"retry_factor": 1}


def job(tmp_path: Path, sheet: str | None = SHEET, **changes: Any):
    written = {
        "model": "Qwen/Qwen2.5-0.5B-Instruct",
        "method": "lora",
        "data": {"num_samples": 4000, "mean_tokens": 500},
        "hardware": {"accelerator": "H100 SXM", "accelerators_per_node": 1},
        "project": EXACT,
        **changes,
    }
    if sheet is not None:
        path = tmp_path / "prices.yaml"
        path.write_text(sheet, encoding="utf-8")
        written["prices"] = [str(path)]
    return load_job(written)


def budget(*jobs, seed: int = 0, draws: int = 2000) -> Budget:
    return budget_jobs(
        [(one, sources_for(one, today=TODAY)) for one in jobs],
        generator=np.random.default_rng(seed),
        draws=draws,
        seed=seed,
    )


def codes(found: Budget) -> set[str]:
    return {notice.message.code for notice in found.notices}


def offers_of(found: Budget) -> list[str | None]:
    return [phase.offer.name if phase.offer else None for phase in found.jobs[0].phases]


def test_sixty_hours_at_120_are_7200(tmp_path) -> None:
    # Set-up and tests of stated length: 50 h + 10 h x NT$120, and the run beside them.
    project = {**EXACT, "setup_time": "50 h", "evaluation_time": "5 h"}
    found = budget(job(tmp_path, project=project))
    run = found.jobs[0].work.run_hours.likely
    medians = [phase.median_money for phase in found.jobs[0].phases]
    # 50 x 120 = 6,000; (run + 5) x 120; 5 x 120 = 600
    assert medians == pytest.approx([6000, (run + 5) * 120, 600])
    assert sum(medians) - run * 120 == pytest.approx(60 * 120)
    assert offers_of(found) == ["hour", "hour", "hour"]
    assert found.currency == "TWD"
    assert found.jobs[0].idle_cost_per_hour.amount == 120


def test_from_417_hours_on_the_main_phase_is_by_the_month(tmp_path) -> None:
    def with_tests_of(hours: int) -> Budget:
        return budget(job(tmp_path, project={**EXACT, "evaluation_time": f"{hours} h"}))

    below, above = with_tests_of(400), with_tests_of(420)
    assert offers_of(below) == [None, "hour", "hour"]
    # The month is paid whole; the hand-over's 420 h are begun in its rest of 300 h.
    assert offers_of(above) == [None, "month", "month"]
    main, last = above.jobs[0].phases[1:]
    assert main.median_money == pytest.approx(50_000)
    assert main.paid_hours == pytest.approx(720)
    assert last.continues
    assert last.median_money == pytest.approx(50_000)  # 840 h are two months
    assert round(above.jobs[0].break_even.hours, 1) == Decimal("416.7")


def test_everything_is_counted_by_its_formula(tmp_path) -> None:
    project = {
        "num_experiments": 5, "experiment_fraction": 0.2, "num_sweep_runs": 4,
        "sweep_fraction": 0.5, "data_iterations": 3, "retry_factor": 2, "idle_fraction": 0.2,
        "failure_fraction": 0.1, "setup_time": "3 h", "evaluation_time": "1 h",
    }  # fmt: skip
    found = budget(job(tmp_path, project=project))
    run = found.jobs[0].work.run_hours.likely
    proof, main, last = found.jobs[0].phases
    # (5 x 0.2 + 4 x 0.5) runs x 2 x (1 + 0.1 / 2), a fifth of the rental idle, 3 h of set-up
    assert proof.median_rented == pytest.approx(3 + 3 * run * 2 * 1.05 / 0.8)
    assert main.median_rented == pytest.approx((3 * run * 2 * 1.05 + 3) / 0.8)
    assert last.median_rented == pytest.approx(1 / 0.8)
    assert proof.median_busy == pytest.approx(3 * run * 2 * 1.05)


def test_the_same_seed_gives_the_same_budget_and_another_nearly_so(tmp_path) -> None:
    asked = job(tmp_path, project={"retry_factor": [1.5, 3], "failure_fraction": [0, 0.3]})
    one, two, other = (budget(asked, seed=seed, draws=20_000) for seed in (1, 1, 2))
    assert (one.money, one.rented) == (two.money, two.rented)
    assert one.money != other.money
    assert other.money.p80 == pytest.approx(one.money.p80, rel=0.03)
    assert one.money.p10 < one.money.p50 < one.money.p80 < one.money.p95


def test_percentiles_of_money_are_those_of_the_closed_form(tmp_path) -> None:
    # Only set-up is open, U(10, 110) hours: P50 = 60 h, P80 = 90 h, P95 = 105 h at 120 an hour;
    # the run itself is minutes and moves nothing that shows.
    project = {**EXACT, "setup_time": ["10 h", "110 h"]}
    found = budget(job(tmp_path, project=project), draws=50_000)
    beside = found.jobs[0].phases[1].median_money
    for share, hours in ((found.money.p50, 60), (found.money.p80, 90), (found.money.p95, 105)):
        assert share - beside == pytest.approx(hours * 120, rel=0.01)
    assert found.drivers[0].name == "setup_hours"


def test_the_calendar_sums_to_the_median_case_and_has_dates(tmp_path) -> None:
    project = {
        **EXACT, "setup_time": "30 h", "evaluation_time": "100 h", "start": "2026-12-07",
        "proof_of_concept_time": "2 week", "main_time": "4 week", "hand_over_time": "1 week",
    }  # fmt: skip
    found = budget(job(tmp_path, project=project))
    weeks = calendar(found.jobs)
    assert [week.number for week in weeks] == list(range(1, 8))
    assert [week.starts_on for week in weeks][:2] == [date(2026, 12, 7), date(2026, 12, 14)]
    assert sum(week.money for week in weeks) == pytest.approx(
        sum(phase.median_money for phase in found.jobs[0].phases)
    )
    assert {share.phase for share in weeks[0].shares} == {Phase.PROOF_OF_CONCEPT}
    assert weeks[0].rented_hours == pytest.approx(15)
    assert weeks[0].busy_hours == 0


def test_a_month_is_held_for_the_weeks_of_its_phase_and_its_idle_share_is_told(tmp_path) -> None:
    only_month = "offers:\n" + SHEET[SHEET.index("  - {provider: X, name: month") :]
    project = {
        **EXACT,
        "evaluation_time": "84 h",
        "main_time": "6 week",
        "hand_over_time": "1 week",
    }
    found = budget(job(tmp_path, only_month, project=project))
    main, last = found.jobs[0].phases[1:]
    # 6 weeks are 1,008 h: two months; 7 weeks are 1,176 h: still two
    assert main.paid_hours == pytest.approx(1440)
    assert (main.median_money, last.median_money) == pytest.approx((100_000, 0))
    weeks = calendar(found.jobs)
    assert weeks[0].rented_hours == 168
    run = found.jobs[0].work.run_hours.likely
    assert weeks[0].idle_fraction == pytest.approx(1 - (84 + run) / 6 / 168)
    # paid where each month begins: hour 0 in week 1, hour 720 in week 5
    assert [round(week.money) for week in weeks] == [50_000, 0, 0, 0, 50_000, 0, 0]


def test_an_idle_node_of_eight_burns_486_an_hour(tmp_path) -> None:
    sheet = """offers:
  - {provider: X, name: node, accelerator: H100 SXM, num_accelerators: 8, price: 350000 TWD,
     per: month, as_of: 2026-11-02}
"""
    hardware = {"accelerator": "H100 SXM", "accelerators_per_node": 8}
    found = budget(job(tmp_path, sheet, hardware=hardware))
    # NT$350,000 / 720 h = NT$486.11
    assert round(found.jobs[0].idle_cost_per_hour.amount) == 486


def test_a_term_longer_than_the_project_is_left_aside_with_its_line(tmp_path) -> None:
    found = budget(job(tmp_path, project={**EXACT, "evaluation_time": "500 h",
                                          "duration": "7 week"}))  # fmt: skip
    # two phases of 500 h fit; the discount from six months on does not count
    assert "discount_longer_than_project" in codes(found)
    short = budget(job(tmp_path, project={**EXACT, "duration": "2 week"}))
    assert offers_of(short) == [None, "hour", None]
    (notice,) = [n for n in short.notices if n.message.code == "term_longer_than_project"]
    assert notice.path.endswith("prices.yaml")
    assert notice.line == 4


def test_a_project_with_no_offer_short_enough_is_refused_at_the_sheet_s_line(tmp_path) -> None:
    only_month = "offers:\n" + SHEET[SHEET.index("  - {provider: X, name: month") :]
    with pytest.raises(InvalidRequest) as caught:
        budget(job(tmp_path, only_month, project={**EXACT, "duration": "2 week"}))
    (mistake,) = caught.value.mistakes
    assert mistake.message.code == "term_longer_than_project"
    assert mistake.path.endswith("prices.yaml")
    assert mistake.line == 2
    assert mistake.how_to_fix is not None


@pytest.mark.parametrize(
    ("changes", "path"),
    [({"hardware": {}}, "hardware.accelerator"), ({"data": {}}, "data")],
)
def test_a_budget_needs_the_hours_of_a_run(tmp_path, changes, path) -> None:
    with pytest.raises(InvalidRequest) as caught:
        budget(job(tmp_path, **changes))
    (mistake,) = caught.value.mistakes
    assert mistake.path == path
    assert mistake.how_to_fix is not None


def test_a_price_in_a_currency_without_a_rate_is_refused(tmp_path) -> None:
    with pytest.raises(InvalidRequest) as caught:
        budget(job(tmp_path, project={**EXACT, "storage_price": "0.05 USD"}))
    (mistake,) = caught.value.mistakes
    assert (mistake.message.code, mistake.path) == ("no_rate_for_price", "project.storage_price")
    rated = SHEET + "rates:\n  - {from: USD, to: TWD, rate: 32, as_of: 2026-11-02}\n"
    project = {**EXACT, "storage_price": "0.05 USD", "storage": "1 TB", "duration": "30 d",
               "egress_price": "3 TWD", "network": "1 Gbit/s"}  # fmt: skip
    found = budget(job(tmp_path, rated, project=project)).jobs[0]
    # 1,000 GB x 0.05 USD x 32, for the whole weeks of 30 days: 4 x 168 / 720 of a month
    assert found.storage_money == pytest.approx(1000 * 0.05 * 32 * 4 * 168 / 720)
    gigabytes = found.estimate.storage.checkpoint_bytes / 1e9
    assert found.egress_money == pytest.approx(gigabytes * 3)
    assert found.work.transfer_in_hours > 0


LIMITED = """offers:
  - {provider: Far, name: cheap, accelerator: H100 SXM, num_accelerators: 1, price: 60 TWD/h,
     region: US, as_of: 2026-11-02}
  - {provider: Near, name: certified, accelerator: H100 SXM, num_accelerators: 1, price: 150 TWD/h,
     region: TW, certifications: [ISO 27001], single_tenant: true, as_of: 2026-11-02}
  - {provider: Near, name: plain, accelerator: H100 SXM, num_accelerators: 1, price: 90 TWD/h,
     region: TW, as_of: 2026-11-02}
"""


def test_limits_say_what_they_exclude_and_what_that_costs(tmp_path) -> None:
    limits = {
        "providers": ["Far", "Near"], "residency": "TW", "certifications": ["iso-27001"],
    }  # fmt: skip
    found = budget(job(tmp_path, LIMITED, limits=limits, project={**EXACT, "setup_time": "100 h"}))
    by_name = {one.limit: one for one in found.jobs[0].constraints}
    hours = sum(phase.median_rented for phase in found.jobs[0].phases)
    assert offers_of(found)[0] == "certified"
    certificate, residency = by_name["certifications"], by_name["residency"]
    # with both 150 an hour; without the certificate 90; without residency nothing more is left
    assert certificate.only_by_this == 1
    assert certificate.excluded >= 2  # no bundled offer names a certificate
    assert certificate.unknown == certificate.excluded
    assert certificate.cheapest == pytest.approx(150 * hours)
    assert certificate.cheapest_without == pytest.approx(90 * hours)
    assert residency.cheapest_without == pytest.approx(150 * hours)
    assert residency.examples[0] == "Far: cheap"
    assert by_name["providers"].only_by_this == 0


def test_single_tenant_keeps_what_says_so_and_own_machines(tmp_path) -> None:
    sheet = LIMITED + (
        "  - {provider: Ours, name: own, accelerator: H100 SXM, num_accelerators: 1,\n"
        "     price: 100 TWD/h, on_hand: true, as_of: 2026-11-02}\n"
    )
    found = budget(
        job(tmp_path, sheet, limits={"single_tenant": True, "providers": ["near", "ours"]})
    )
    assert {one.offer.name for one in found.jobs[0].alternatives} == {"certified", "own"}


def test_what_interruptions_add_is_drawn_and_paid(tmp_path) -> None:
    spot = SHEET.replace("per: hour,", "per: hour, interruptible: true, interrupted_every: 1 h, "
                         "restart: 6 min,")  # fmt: skip
    changes = {
        "limits": {"allow_interruptible": True},
        "data": {"num_samples": 400_000, "mean_tokens": 500},
        "training": {"save_steps": 1000},
    }
    calm, rough = budget(job(tmp_path, **changes)), budget(job(tmp_path, spot, **changes))
    assert "interruptions_expected" in codes(rough)
    run = rough.jobs[0].work.run_hours.likely
    assert run > 1
    assert rough.rented.p50 > calm.rented.p50 * 1.05
    assert rough.money.p50 == pytest.approx(rough.rented.p50 * 120, rel=0.001)


def test_jobs_one_after_the_other_share_a_budget(tmp_path) -> None:
    one = job(tmp_path, project={**EXACT, "setup_time": "10 h"})
    both = budget(one, one)
    alone = budget(one)
    assert both.rented.p50 == pytest.approx(2 * alone.rented.p50, rel=0.01)
    assert [phase.first_week for phase in both.jobs[1].phases][:2] == [3, 4]
    assert len(calendar(both.jobs)) == 4
    assert [driver.name for driver in both.drivers] == ["run_hours"]
    assert both.drivers[0].job is None


def test_runs_in_parallel_shorten_the_weeks_and_not_the_machine_hours(tmp_path) -> None:
    project = {**EXACT, "setup_time": "336 h"}
    one = budget(job(tmp_path, project=project)).jobs[0]
    two = budget(job(tmp_path, project={**project, "runs_in_parallel": 2})).jobs[0]
    assert (one.phases[0].weeks, two.phases[0].weeks) == (2, 1)
    assert one.phases[0].median_rented == two.phases[0].median_rented
    assert one.phases[0].median_money == pytest.approx(two.phases[0].median_money)


def test_a_phase_that_is_too_short_for_its_hours_is_told(tmp_path) -> None:
    project = {**EXACT, "setup_time": "400 h", "proof_of_concept_time": "1 week"}
    found = budget(job(tmp_path, project=project))
    (notice,) = [n for n in found.notices if n.message.code == "phase_too_short"]
    assert notice.path == "project.proof_of_concept_time"
    assert notice.message.params["needed"] == 3
    late = budget(job(tmp_path, project={**EXACT, "setup_time": "400 h", "duration": "2 week"}))
    assert "project_too_short" in codes(late)
    assert late.within_duration == 0


def test_without_a_price_the_budget_is_in_hours(tmp_path) -> None:
    asked = job(tmp_path, sheet=None, limits={"providers": ["nobody"]},
                project={"retry_factor": [1, 30]})  # fmt: skip
    found = budget(asked)
    assert found.money is None
    assert "no_price_for_budget" in codes(found)
    assert found.drivers[0].name == "retry_factor"
    assert found.drivers[0].total_at_high > found.drivers[0].total_at_low


def test_every_blank_of_the_project_is_an_assumption(tmp_path) -> None:
    found = budget(job(tmp_path, project={}))
    names = {assumption.name for assumption in found.assumptions}
    assert {
        "project.num_experiments", "project.data_iterations", "project.retry_factor",
        "project.failure_fraction", "project.idle_fraction", "project.setup_time",
        "project.network", "project.main_time",
    } <= names  # fmt: skip
    assert found.jobs[0].work.retry_factor.low == 1.5


def test_bundled_prices_serve_too() -> None:
    asked = load_job(
        {
            "model": "Qwen/Qwen2.5-0.5B-Instruct", "method": "lora",
            "data": {"num_samples": 4000, "mean_tokens": 500},
            "hardware": {"accelerator": "H100 SXM"}, "limits": {"budget": "50 USD"},
        }
    )  # fmt: skip
    found = budget_jobs(
        [(asked, replace(Sources(), today=TODAY))], generator=np.random.default_rng(0), draws=500
    )
    assert found.currency == "USD"
    assert found.within_budget == 1
    assert found.money.p50 > 0
