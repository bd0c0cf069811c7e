"""Answers about money, small but with every part, for the tests of contract and report."""

from __future__ import annotations

import sample_answers
from tuneplan.contract.answers import Offer, header
from tuneplan.contract.budgeted import (
    BreakEven,
    BreakEvenCrossing,
    BreakEvenPoint,
    BudgetAlternative,
    BudgetAnswer,
    BudgetDriver,
    BudgetedJob,
    BudgetPhase,
    CalendarWeek,
    Constraint,
    HourQuantiles,
    MoneyQuantiles,
    WeekPart,
)
from tuneplan.contract.parts import Assumption, Money, Notice, Range
from tuneplan.contract.priced import BreakEvenAnswer, LeftOutCard, PricesRefreshAnswer
from tuneplan.contract.ruled import (
    RuleAnswer,
    RuleCause,
    RulesAnswer,
    RuleTableRow,
    RuleTerm,
    TimeRuleAnswer,
)


def twd(amount: str) -> Money:
    return Money(amount=amount, currency="TWD")


def hours(middle: float) -> HourQuantiles:
    return HourQuantiles(
        p10=0.8 * middle, p50=middle, p80=1.2 * middle, p90=1.3 * middle, p95=1.5 * middle,
        mean=1.05 * middle,
    )  # fmt: skip


def money(middle: int) -> MoneyQuantiles:
    return MoneyQuantiles(
        p10=twd(f"{middle * 8 // 10}.00"), p50=twd(f"{middle}.00"),
        p80=twd(f"{middle * 12 // 10}.00"), p90=twd(f"{middle * 13 // 10}.00"),
        p95=twd(f"{middle * 15 // 10}.00"), mean=twd(f"{middle * 105 // 100}.00"),
    )  # fmt: skip


def offer(name: str, amount: str, per: str) -> Offer:
    return Offer(
        provider="Cloud X", name=name, price=twd(amount), per=per, as_of="2026-11-02",
        source="quotation 2026-118", region="TW",
    )  # fmt: skip


def budget() -> BudgetAnswer:
    hour, month = offer("h100 hour", "120.00", "hour"), offer("h100 month", "50000.00", "720 hours")
    job = sample_answers.estimate().job
    proof = BudgetPhase(
        phase="proof_of_concept", first_week=1, weeks=2, rented_hours=hours(60),
        busy_hours=hours(40), money=money(7200), median_money=twd("7200.00"), paid_hours=60.0,
        idle_fraction=1 / 3, billing="by_the_hour", continues=False, offer=hour,
    )  # fmt: skip
    main = BudgetPhase(
        phase="main", first_week=3, weeks=4, rented_hours=hours(500), busy_hours=hours(420),
        money=money(50000), median_money=twd("50000.00"), paid_hours=720.0,
        idle_fraction=1 - 420 / 720, billing="by_the_term", continues=False, offer=month,
    )  # fmt: skip
    last = BudgetPhase(
        phase="hand_over", first_week=7, weeks=1, rented_hours=hours(10), busy_hours=hours(8),
        money=money(1200), median_money=twd("0.00"), paid_hours=0.0, idle_fraction=None,
        billing="by_the_term", continues=True, offer=month,
    )  # fmt: skip
    return BudgetAnswer(
        **header("budget", as_of="2026-11-30"),
        jobs=[
            BudgetedJob(
                job=job, accelerator="NVIDIA H100 SXM", num_accelerators=1, runs_in_parallel=1,
                run_hours=Range(low=5.5, likely=6.0, high=7.5, basis="analytic"),
                num_experiments=6, num_sweep_runs=4, data_iterations=3,
                phases=[proof, main, last],
                alternatives=[
                    BudgetAlternative(offer=month, money=twd("50000.00"), interruptible=False),
                    BudgetAlternative(offer=hour, money=twd("68400.00"), interruptible=True),
                ],
                break_even=BreakEven(
                    first=hour, second=month, hours=416.666667, cheaper_at_first="first",
                    crossings=[BreakEvenCrossing(hours=416.666667, cheaper="second")],
                    points=[
                        BreakEvenPoint(hours=h, first=twd(f"{120 * h}.00"), second=twd("50000.00"))
                        for h in (100, 200, 720)
                    ],
                ),
                constraints=[
                    Constraint(
                        limit="residency", value="TW", excluded=14, only_by_this=9, unknown=3,
                        examples=["Far: cheap"], cheapest=twd("57200.00"),
                        cheapest_without=twd("41000.00"), costs=twd("16200.00"),
                    ),
                    Constraint(
                        limit="certifications", value=["ISO 27001"], excluded=2, only_by_this=0,
                        unknown=2, examples=[], cheapest=twd("57200.00"),
                        cheapest_without=twd("57200.00"), costs=twd("0.00"),
                    ),
                ],
                idle_cost_per_hour=twd("69.44"), storage_money=twd("812.50"), egress_money=None,
                energy_kwh=Range(low=120, likely=210, high=380, basis="assumed"),
                co2_kg=Range(low=70, likely=135, high=250, basis="assumed"),
            )
        ],
        currency="TWD", seed=0, draws=10_000, rented_hours=hours(570),
        accelerator_hours=hours(570), money=money(58000), median_money=twd("58012.50"),
        drivers=[
            BudgetDriver(
                name="retry_factor", low=1.65, high=2.85, money_at_low=twd("41000.00"),
                money_at_high=twd("83000.00"), swing_fraction=0.72,
            ),
            BudgetDriver(
                name="idle_fraction", job=0, low=0.13, high=0.37, money_at_low=twd("54000.00"),
                money_at_high=twd("61000.00"), swing_fraction=0.12,
            ),
        ],
        calendar=[
            CalendarWeek(
                week=week, starts_on=f"2027-01-{6 * week:02}", rented_hours=168.0, busy_hours=84.0,
                idle_fraction=0.5, money=twd("3600.00"),
                parts=[WeekPart(job=0, phase="main", rented_hours=168.0, busy_hours=84.0,
                                money=twd("3600.00"))],
            )
            for week in range(1, 6)
        ],
        within_budget=0.62, within_duration=0.97,
        assumptions=[
            Assumption(name="project.retry_factor", value=[1.5, 3], reason="usual", source="docs",
                       how_to_set="project.retry_factor: [1.2, 2]")
        ],
        warnings=[Notice(code="stale_price", params={}, message="a price is 120 days old")],
    )  # fmt: skip


def rules() -> RulesAnswer:
    gb = 1e9
    ours = Range(low=118e9, likely=121e9, high=126e9, basis="analytic")
    return RulesAnswer(
        **header("rules", as_of="2026-11-30"),
        job=sample_answers.estimate().job,
        total_parameters=7_000_000_000, active_parameters=7_000_000_000,
        rules=[
            RuleAnswer(
                code="eight_bytes", statement="8 bytes a parameter: weights 2, gradients 2, "
                "optimizer 4", method="full", weights_only=False,
                terms=[RuleTerm(name="weights", size_bytes=14 * gb),
                       RuleTerm(name="gradients", size_bytes=14 * gb),
                       RuleTerm(name="optimizer", size_bytes=28 * gb)],
                rule_bytes=56 * gb, our_bytes=ours, difference_bytes=65 * gb,
                causes=[
                    RuleCause(name="weights", rule_bytes=14 * gb, our_bytes=28 * gb,
                              difference_bytes=14 * gb, reason="held in float32"),
                    RuleCause(name="gradients", rule_bytes=14 * gb, our_bytes=28 * gb,
                              difference_bytes=14 * gb, reason="of the weights that train"),
                    RuleCause(name="optimizer", rule_bytes=28 * gb, our_bytes=56 * gb,
                              difference_bytes=28 * gb, reason="adamw_torch_fused"),
                    RuleCause(name="activations", rule_bytes=0, our_bytes=9 * gb,
                              difference_bytes=9 * gb, reason="8 rows of 1,024 tokens"),
                ],
                why="AdamW in fp32 takes 8",
            ),
            RuleAnswer(
                code="qlora_base", statement="0.6 bytes a parameter for the 4-bit base",
                method="qlora", weights_only=True,
                terms=[RuleTerm(name="weights", size_bytes=4.2 * gb)], rule_bytes=4.2 * gb,
                causes=[], why="embeddings stay in 16 bits", no_answer="no such method here",
            ),
        ],
        table_parameters=7e9,
        table=[
            RuleTableRow(method="qlora", rule_low_bytes=10 * gb, rule_high_bytes=10 * gb,
                         rule_cards=1),
            RuleTableRow(method="lora", rule_low_bytes=20 * gb, rule_high_bytes=20 * gb,
                         rule_cards=1, our_bytes=ours, our_cards=2),
            RuleTableRow(method="full", rule_low_bytes=140 * gb, rule_high_bytes=160 * gb,
                         rule_cards=2, our_bytes=ours, our_cards=2),
        ],
        time_rules=[
            TimeRuleAnswer(code="checkpointing_fifth", statement="checkpointing costs a fifth",
                           said_low=0.2, said_high=0.2, is_factor=False, ours=0.31,
                           why="the forward pass is done twice"),
            TimeRuleAnswer(code="h100_twice_a100", statement="an H100 is twice an A100",
                           said_low=2, said_high=2, is_factor=True, why="no such card here"),
        ],
        training_flop=2.27e17, petaflop_s_days=0.0026,
        assumptions=[
            Assumption(name="framework", value="trl", reason="usual", source="docs",
                       how_to_set="framework: trl")
        ],
        warnings=[Notice(code="no_data", params={}, message="nothing is said about the data")],
    )  # fmt: skip


def refreshed() -> PricesRefreshAnswer:
    return PricesRefreshAnswer(
        **header("prices refresh", as_of="2026-11-30"),
        file="tuneplan/prices/offers.csv", num_offers=1204, num_before=1180,
        providers=["AWS", "Azure", "GCP", "Lambda", "RunPod"],
        accelerators=["NVIDIA A100 SXM 80GB", "NVIDIA H100 SXM"],
        left_out=[LeftOutCard(card="K80 12 GB", num_offers=31)], num_counting=1502,
        oldest_days=633, warnings=[],
    )  # fmt: skip


def two_offers() -> BreakEvenAnswer:
    (job,) = budget().jobs
    assert job.break_even is not None
    return BreakEvenAnswer(
        **header("prices break-even", as_of="2026-11-30"),
        num_accelerators=1, horizon_hours=1440.0, currency="TWD", break_even=job.break_even,
        warnings=[Notice(code="stale_price", params={}, message="a price is 120 days old")],
    )  # fmt: skip
