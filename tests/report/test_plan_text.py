"""What a plan says of its entries, and of what it rejected."""

from typing import Any

import sample_answers
from tuneplan.contract.answers import PlanAnswer, Rejected, Rejection
from tuneplan.report.page import Page
from tuneplan.report.plan import plan_text

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
    assert "16 x NVIDIA L4, batch 4 on each" in text


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
    assert "The nearest that would do: 16 x NVIDIA L4, LoRA, batch 4 x 1" in text
