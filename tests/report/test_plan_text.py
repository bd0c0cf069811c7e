"""What a plan says of its entries, and of what it rejected."""

from decimal import Decimal
from typing import Any

import sample_answers
from tuneplan.contract.answers import PlanAnswer, Rejected, Rejection
from tuneplan.contract.parts import money_decimals
from tuneplan.report.labels import cards_text
from tuneplan.report.page import Page
from tuneplan.report.plan import plan_text
from tuneplan.spec.offer import Money

CARDS = {
    "hardware.accelerator": "NVIDIA L4",
    "hardware.num_nodes": 2,
    "hardware.accelerators_per_node": 8,
    "method": "lora",
    "training.per_device_train_batch_size": 4,
}


def rejection(code: str, count: int, **more: Any) -> Rejection:
    return Rejection(code=code, count=count, message=f"because of {code}", **more)


def plan_of(*reasons: Rejection, empty: bool = False) -> PlanAnswer:
    rejected = Rejected(total=sum(one.count for one in reasons), by_reason=list(reasons))
    answer = sample_answers.plan().model_copy(update={"rejected": rejected})
    return answer.model_copy(update={"entries": []}) if empty else answer


def text_of(answer: PlanAnswer, width: int = 100) -> str:
    return " ".join(plan_text(answer, Page(width=width)).split())


def test_an_entry_says_in_how_many_steps_it_trains() -> None:
    assert "820 steps" in plan_text(sample_answers.plan(), Page())


def test_a_batch_that_is_too_large_is_told_by_cards_and_batch() -> None:
    text = text_of(plan_of(rejection("other_global_batch", 9, example=CARDS)))
    assert "2 machines x 8 NVIDIA L4, batch 4 on each" in text


def test_an_example_without_its_number_of_machines_claims_no_number_of_cards() -> None:
    known = {key: CARDS[key] for key in ("hardware.accelerator", "method")}
    text = text_of(plan_of(rejection("other_global_batch", 9, example=known)))
    assert "1 x NVIDIA L4" not in text
    assert "NVIDIA L4" in text


def test_without_a_plan_the_limit_that_took_away_most_is_named() -> None:
    reasons = (
        rejection("other_global_batch", 900),
        rejection("does_not_fit", 500),
        rejection("deadline", 40),
        rejection("budget", 60),
    )
    text = text_of(plan_of(*reasons, empty=True))
    assert "To relax first: limits.budget, for 60 candidates fail there (because of budget)." in (
        text
    )


def test_without_a_plan_and_without_limits_the_most_frequent_reason_is_named() -> None:
    text = text_of(plan_of(rejection("does_not_fit", 500), rejection("other", 5), empty=True))
    assert "To relax first: the cards (larger or more of them) or the method (qlora)" in text


def test_the_nearest_that_would_do_is_shown_where_there_is_one() -> None:
    reasons = (rejection("budget", 60), rejection("deadline", 40, nearest_feasible=CARDS))
    text = text_of(plan_of(*reasons, empty=True))
    assert "To relax first: limits.deadline" in text
    assert "The nearest that would do: 2 machines x 8 NVIDIA L4, LoRA, batch 4 x 1" in text


def test_cards_of_several_machines_are_told_by_machine() -> None:
    assert cards_text("NVIDIA L40S", 2, 1) == "2 x NVIDIA L40S"
    assert cards_text("NVIDIA L40S", 2, 2) == "2 machines x 1 NVIDIA L40S"
    assert cards_text("NVIDIA L40S", 16, 2) == "2 machines x 8 NVIDIA L40S"


def without_costs(answer: PlanAnswer, *, timed: bool) -> PlanAnswer:
    gone: dict[str, Any] = {"cost": None} if timed else {"cost": None, "time": None}
    entries = [
        one.model_copy(update={"labels": [], "estimate": one.estimate.model_copy(update=gone)})
        for one in answer.entries
    ]
    return answer.model_copy(update={"entries": entries})


def test_without_data_no_plan_is_called_the_cheapest() -> None:
    text = text_of(without_costs(sample_answers.plan(), timed=False))
    assert "cheapest" not in text
    assert "least card-time a step first" in text
    assert "Duration and cost need the data: a file (--data)" in text


def test_without_a_price_card_hours_order_the_plans() -> None:
    text = text_of(without_costs(sample_answers.plan(), timed=True))
    assert "fewest card-hours first" in text
    assert "so no cost is known" in text
    assert "cheapest" not in text


def test_small_costs_are_compared_with_three_digits() -> None:
    digits = {"0.004321": 5, "0.0123456": 4, "0.35": 3, "1.5": 2, "12345": 2, "0": 2}
    for amount, decimals in digits.items():
        assert money_decimals(Money(amount=Decimal(amount), currency="USD")) == decimals
