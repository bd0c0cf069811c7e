"""Own measurements carry over as far as jobs are alike, and say how sure that is."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneplan.calibration.own import Observation, Own, Place, alike
from tuneplan.calibration.situations import Situation

PRIOR = 0.2


def place(
    *,
    chip: str = "A",
    method: str = "lora",
    parameters: float = 1e9,
    tokens: float = 4096,
    length: float = 1024,
) -> Place:
    return Place(
        situation=Situation(
            code="transformers", framework="trl", layout="one", method=method, chip=chip
        ),
        parameters=parameters,
        micro_batch_tokens=tokens,
        length=length,
    )


def seen(where: Place, ratio: float, deviation: float = 0.01) -> Observation:
    return Observation(
        place=where, log_ratio=math.log(ratio), deviation=deviation, prior=PRIOR, name="m"
    )


def test_a_pilot_of_the_very_job_is_believed() -> None:
    found = Own(observations=(seen(place(), 1.3),)).correction(place(), PRIOR)
    assert found is not None
    assert found.factor == pytest.approx(1.3, rel=0.01)
    assert found.deviation < 0.03
    assert found.share > 0.99


def test_doubt_grows_with_the_distance_and_never_above_the_prediction_s() -> None:
    own = Own(observations=(seen(place(), 1.3),))
    distances = [
        place(),
        place(length=2048, tokens=8192),
        place(length=2048, tokens=8192, parameters=7e9),
        place(method="full"),
        place(chip="B"),
    ]
    found = [own.correction(one, PRIOR) for one in distances]
    deviations = [one.deviation for one in found if one is not None]
    assert deviations == sorted(deviations)
    assert len(deviations) == len(distances)
    assert deviations[-1] <= math.hypot(PRIOR, 0.021)
    factors = [one.factor for one in found if one is not None]
    assert factors == sorted(factors, reverse=True)
    assert factors[-1] > 1


def test_what_has_nothing_in_common_is_left_alone() -> None:
    own = Own(observations=(seen(place(), 1.3),))
    assert own.correction(place(chip="B", method="full"), PRIOR) is None
    assert Own(observations=()).correction(place(), PRIOR) is None


def test_several_measurements_of_a_job_are_averaged() -> None:
    own = Own(observations=tuple(seen(place(), ratio, 0.05) for ratio in (1.1, 1.2, 1.3)))
    found = own.correction(place(), PRIOR)
    assert found is not None
    assert found.factor == pytest.approx(math.exp(math.log(1.1 * 1.2 * 1.3) / 3), rel=0.02)
    assert found.deviation < 0.05


places = st.builds(
    place,
    chip=st.sampled_from("AB"),
    method=st.sampled_from(["lora", "full"]),
    parameters=st.floats(1e6, 1e12),
    tokens=st.floats(1, 1e6),
    length=st.floats(1, 1e6),
)


@given(places, places)
def test_likeness_is_symmetric_and_whole_for_the_same_job(one: Place, other: Place) -> None:
    assert alike(one, other) == pytest.approx(alike(other, one))
    assert alike(one, one) == pytest.approx(1.0)
    assert 0 <= alike(one, other) <= 1


@given(
    st.lists(st.tuples(places, st.floats(0.2, 5.0), st.floats(0.001, 0.5)), max_size=6),
    places,
    st.floats(0.01, 1.0),
)
def test_more_measurements_never_add_doubt(
    observed: list[tuple[Place, float, float]], target: Place, prior: float
) -> None:
    observations = [seen(where, ratio, deviation) for where, ratio, deviation in observed]
    before = math.inf
    for count in range(len(observations) + 1):
        found = Own(observations=tuple(observations[:count])).correction(target, prior)
        deviation = math.hypot(prior, 0.02) if found is None else found.deviation
        assert deviation <= before + 1e-6
        before = deviation
