"""What decides a fit, in sentences and as a sum."""

import pytest

import sample_answers
from tuneplan.contract.answers import Fit
from tuneplan.report.verdict import fit_sentence, needed_text
from tuneplan.units import GIB


def fit(verdict: str, probability: float | None, headroom_gib: float = 1.0) -> Fit:
    return Fit(
        verdict=verdict,
        probability_fits=probability,
        capacity_bytes=24 * GIB,
        headroom_bytes=round(headroom_gib * GIB),
        deciding_quantity="allocated peak + unusable fragmentation + context",
    )


def test_a_tight_fit_below_one_half_says_that_it_more_likely_does_not_fit() -> None:
    text = fit_sentence(fit("tight", 0.28, -0.5))
    assert text.startswith("TIGHT, more likely not: it fits with 28% probability.")


@pytest.mark.parametrize("probability", [0.5, 0.88, None])
def test_a_tight_fit_from_one_half_on_says_its_probability_only(probability: float | None) -> None:
    text = fit_sentence(fit("tight", probability))
    assert text.startswith("TIGHT. It needs 23.0 GiB of the 24.0 GiB")


@pytest.mark.parametrize("verdict", ["fits", "tight", "does_not_fit"])
def test_a_verdict_names_what_the_need_is_made_of(verdict: str) -> None:
    text = fit_sentence(fit(verdict, 0.5))
    assert "(allocated peak + unusable fragments + CUDA context)" in text


def test_the_parts_of_the_need_stand_as_a_sum() -> None:
    # need 79.1 - 55.9 = 23.2; context 24.2 - 23.6 = 0.6; fragments 23.2 - 22.4 - 0.6 = 0.2
    assert needed_text(sample_answers.estimate()) == (
        "23.2 GiB = 22.4 GiB allocated peak + 0.20 GiB unusable fragments + 0.60 GiB CUDA context"
    )


def test_without_a_card_there_is_no_sum() -> None:
    answer = sample_answers.estimate().model_copy(update={"fit": None})
    assert needed_text(answer) is None
