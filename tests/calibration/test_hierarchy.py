"""Ranges from measured runs: narrow where runs are close, wide where none is."""

from dataclasses import replace

import pytest

from tuneplan.calibration.calibrated import Calibration, fit, from_plain, to_plain
from tuneplan.calibration.evidence import Residual, tally
from tuneplan.calibration.situations import Figure, Situation

HERE = Situation(code="transformers", framework="trl", layout="one", method="lora", chip="A")
PRIOR = (0.04, 0.04)


def residual(place: int, log_ratio: float, **changes) -> Residual:
    made = Residual(
        figure=Figure.ALLOCATED,
        run=f"x-{place}",
        source="x",
        model=f"m{place % 3}",
        situation=HERE,
        log_ratio=log_ratio,
        prior_below=PRIOR[0],
        prior_above=PRIOR[1],
    )
    return replace(made, **changes)


def fitted(*residuals: Residual, **options) -> Calibration:
    return fit(residuals, as_of="2026-12-01", **options)


CLOSE = tuple(residual(n, 0.001 * (-1) ** n) for n in range(30))


def width(calibration: Calibration, situation: Situation = HERE) -> float:
    found = calibration.spread(Figure.ALLOCATED, situation, PRIOR)
    assert found is not None
    return found[0].high_factor / found[0].low_factor - 1


def test_runs_of_the_same_kind_make_the_range_narrow():
    assert width(fitted(*CLOSE)) < 0.02 < sum(PRIOR)


def test_the_further_the_runs_the_wider_the_range():
    calibration = fitted(*CLOSE)
    other_method = replace(HERE, method="full")
    other_layout = replace(HERE, layout="fsdp")
    other_code = replace(HERE, code="litgpt", framework="litgpt")
    widths = [width(calibration, one) for one in (HERE, other_method, other_layout, other_code)]
    assert widths == sorted(widths)
    assert len(set(widths)) == 4


def test_what_resembles_nothing_is_at_least_as_wide_as_the_prior():
    nothing = fitted(residual(0, 0.03, situation=replace(HERE, code="other")))
    found = nothing.leaving_out("x").spread(Figure.ALLOCATED, HERE, PRIOR)
    assert found is not None
    spread, nearest = found
    assert spread.high_factor >= 1.04
    assert spread.low_factor <= 1 / 1.04
    assert nearest.tier == -1
    assert not nearest.is_near


def test_a_source_that_is_left_out_says_nothing():
    both = fitted(*CLOSE, residual(40, 0.02, source="y"))
    alone = fitted(residual(40, 0.02, source="y"))
    assert both.leaving_out("x").spread(Figure.ALLOCATED, HERE, PRIOR) == alone.spread(
        Figure.ALLOCATED, HERE, PRIOR
    )


def test_far_sources_count_once_each_however_many_rows_they_have():
    """Thirty good rows of one program, one bad row of another: a third is not thirty to one."""
    bad = residual(50, 0.2, source="y", situation=replace(HERE, code="litgpt", framework="litgpt"))
    third = replace(HERE, code="torchtune", framework="torchtune")
    assert width(fitted(*CLOSE, bad), third) == pytest.approx(
        width(fitted(*CLOSE[:3], bad), third), rel=0.05
    )


def test_the_side_on_which_runs_lie_gets_the_range():
    above = fitted(*(residual(n, 0.01) for n in range(30)))
    found = above.spread(Figure.ALLOCATED, HERE, PRIOR)
    assert found is not None
    spread = found[0]
    assert spread.high_factor - 1 > 3 * (1 - spread.low_factor)


def test_repeated_runs_of_a_model_count_in_part():
    same = [residual(n, 0.001, model="m") for n in range(5)]
    assert tally(same).weight == pytest.approx(1 + 0.5 * 4)
    assert tally([residual(n, 0.001, model=f"m{n}") for n in range(5)]).weight == 5


RATES = tuple(
    residual(n, -0.1, figure=Figure.TOKENS, source=f"s{n % 6}", model=f"m{n}") for n in range(24)
)


def test_a_factor_is_shrunk_to_the_physics():
    many = fitted(*RATES, shifts=[Figure.TOKENS]).log_shift(Figure.TOKENS, HERE)
    few = fitted(*RATES[:2], shifts=[Figure.TOKENS]).log_shift(Figure.TOKENS, HERE)
    assert -0.1 < many < few < 0


def test_an_unknown_chip_is_left_to_the_physics():
    calibration = fitted(*RATES, shifts=[Figure.TOKENS])
    assert calibration.log_shift(Figure.TOKENS, replace(HERE, chip="B")) == 0.0


def test_a_figure_without_a_factor_is_not_moved():
    assert fitted(*RATES).log_shift(Figure.TOKENS, HERE) == 0.0


def test_what_is_shipped_says_the_same_as_what_was_fitted():
    calibration = fitted(*CLOSE, *RATES, shifts=[Figure.TOKENS])
    again = from_plain(to_plain(calibration))
    assert width(again) == pytest.approx(width(calibration), rel=1e-3)
    assert again.log_shift(Figure.TOKENS, HERE) == pytest.approx(
        calibration.log_shift(Figure.TOKENS, HERE), rel=1e-3
    )
