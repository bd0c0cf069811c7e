import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneplan.runs.comparison import Comparison, Quantity
from tuneplan.runs.summaries import Case, summarise


def case(error, *, source="a", quantity=Quantity.ALLOCATED, method="lora", cards="single"):
    return Case(
        run_id=f"{source}-{error}",
        source=source,
        method=method,
        framework="trl",
        accelerator="A100 80GB",
        cards=cards,
        comparison=Comparison(
            quantity=quantity,
            measured=100.0,
            likely=100.0 * (1 + error),
            low=100.0 * (1 + error) * 0.9,
            high=100.0 * (1 + error) * 1.1,
        ),
    )


def of(summaries, quantity=Quantity.ALLOCATED, **group):
    names = ("method", "framework", "accelerator", "source", "cards", "size")
    (found,) = [
        item
        for item in summaries
        if item.quantity is quantity
        and all(getattr(item, name) == group.get(name) for name in names)
    ]
    return found


def test_the_figures_of_five_runs_by_hand():
    # errors -10 %, +2 %, +4 %, +6 %, +20 %: absolute 2, 4, 6, 10, 20
    everything = of(summarise([case(e) for e in (-0.10, 0.02, 0.04, 0.06, 0.20)]))
    assert everything.count == 5
    assert everything.median_abs_error_fraction == pytest.approx(0.06)
    # P90 of 5 values: position 0.9 x 4 = 3.6, so 10 + 0.6 x (20 - 10) = 16 %
    assert everything.p90_abs_error_fraction == pytest.approx(0.16)
    assert everything.bias_fraction == pytest.approx(0.04)
    # 100 lies in [0.9, 1.1] x likely for 102, 104, 106 and 90 x 1.1 = 99 < 100: not for 90 and 120
    assert everything.coverage_fraction == pytest.approx(3 / 5)
    assert everything.median_width_fraction == pytest.approx(0.2)


def test_a_source_with_many_runs_does_not_decide_the_median_over_sources():
    cases = [case(0.01, source="many") for _ in range(98)]
    cases += [case(0.5, source="few"), case(0.3, source="other")]
    everything = of(summarise(cases))
    assert everything.median_abs_error_fraction == pytest.approx(0.01)
    assert everything.source_median_abs_error_fraction == pytest.approx(0.3)
    assert everything.num_sources == 3


def test_memory_kinds_are_never_pooled():
    cases = [case(0.1), case(0.4, quantity=Quantity.RESERVED), case(0.2, quantity=Quantity.DEVICE)]
    summaries = summarise(cases)
    assert {item.quantity for item in summaries} == {
        Quantity.ALLOCATED,
        Quantity.RESERVED,
        Quantity.DEVICE,
    }
    assert all(item.count == 1 for item in summaries)


def test_groups_are_those_asked_for():
    cases = [case(0.1, cards="several", method="full"), case(0.2, source="b")]
    summaries = summarise(cases)
    assert of(summaries, cards="several").median_abs_error_fraction == pytest.approx(0.1)
    assert of(summaries, method="lora").median_abs_error_fraction == pytest.approx(0.2)
    assert of(summaries, source="b").count == 1
    assert of(summaries, accelerator="A100 80GB").count == 2


def test_nothing_compared_gives_no_summary():
    assert summarise([]) == ()


errors = st.lists(
    st.tuples(st.floats(min_value=-0.9, max_value=3), st.sampled_from("abc")), min_size=1
)


@given(errors)
def test_each_grouping_counts_every_run_once_and_order_does_not_matter(pairs):
    cases = [case(error, source=source) for error, source in pairs]
    summaries = summarise(cases)
    everything = of(summaries)
    assert everything.count == len(cases)
    assert sum(item.count for item in summaries if item.source is not None) == len(cases)
    assert everything.median_abs_error_fraction <= everything.p90_abs_error_fraction
    assert set(summarise(cases[::-1])) == set(summaries)
