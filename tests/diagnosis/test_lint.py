"""Each rule of the lint fires on its mistake, and is silent where there is none."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from diagnosis.lint_cases import (
    CHATS,
    FIRES,
    LONG_LENGTHS,
    NOW,
    ON_8,
    SILENT,
    SOUND,
    T4,
    case,
    variant,
)
from tuneplan.diagnosis.finding import Case, Finding, Severity
from tuneplan.diagnosis.lint import lint, not_judged, silenced
from tuneplan.diagnosis.registry import RULES
from tuneplan.spec.recipe import DType
from tuneplan.spec.stated import StatedLint
from tuneplan.units import GIB


def pairs(table: Mapping[str, list[Case]]) -> list[Any]:
    return [
        pytest.param(rule, one, id=f"{rule}-{number}")
        for rule, cases in table.items()
        for number, one in enumerate(cases)
    ]


def findings(rule: str, one: Case) -> list[Finding]:
    return [finding for finding in lint(one) if finding.rule == rule]


def test_every_rule_is_tried_on_its_mistake_and_on_a_sound_job() -> None:
    assert set(FIRES) == set(SILENT) == set(RULES)


@pytest.mark.parametrize(("rule", "one"), pairs(FIRES))
def test_a_rule_fires_on_its_mistake_with_figures_of_the_job(rule: str, one: Case) -> None:
    (finding,) = findings(rule, one)
    assert any(character.isdigit() for character in str(finding.message))
    assert finding.evidence
    assert finding.keys
    assert finding.fix is not None or rule == "zero2_splits_no_weights"
    assert "{" not in f"{finding.message}{finding.fix}"


@pytest.mark.parametrize(("rule", "one"), pairs(SILENT))
def test_a_rule_is_silent_where_its_mistake_is_not_made(rule: str, one: Case) -> None:
    assert findings(rule, one) == []


def test_nothing_stands_out_in_a_sound_job() -> None:
    assert lint(SOUND) == ()


def test_what_matters_most_comes_first() -> None:
    found = lint(
        case(accelerator=T4, of_recipe={"compute_dtype": DType.BFLOAT16},
             statistics=replace(CHATS, total_tokens=10_000),
             now=replace(NOW, needed_bytes=70 * GIB))
    )  # fmt: skip
    assert [finding.severity for finding in found] == [
        Severity.ERROR,
        Severity.WARNING,
        Severity.ADVICE,
    ]


def test_steps_that_were_counted_in_samples_are_turned_into_steps_of_packed_rows() -> None:
    # 938 steps x 32 rows x 3.4 samples / 10,000 samples = 10.2 passes over the data, not 3
    (finding,) = findings("samples_as_tokens", FIRES["samples_as_tokens"][1])
    assert finding.evidence["num_train_epochs"] == pytest.approx(10.2, abs=0.05)
    assert "276" in str(finding.fix)  # 938 / 3.4, rounded up


def test_a_shorter_context_of_packed_rows_comes_with_its_accumulation() -> None:
    settings = {"training.max_length": 1024, "training.gradient_accumulation_steps": 4}
    packed = variant("shorter_context", settings, peak_bytes=30 * GIB)
    (finding,) = findings("context_beyond_data", case(lengths=LONG_LENGTHS, variants=[packed]))
    assert "set max_length to 1024 and gradient_accumulation_steps to 4" in str(finding.fix)


def test_no_probability_is_told_as_a_certainty() -> None:
    nearly = case(now=replace(NOW, needed_bytes=70 * GIB, probability_fits=0.9999))
    (finding,) = findings("no_headroom", nearly)
    assert "over 99% probability" in str(finding.message)


def test_a_rarer_evaluation_is_proposed_that_takes_a_twentieth_of_the_run() -> None:
    # every 200 steps takes 0.9 h of 3 h; 0.15 h is a twentieth: every 1,200 steps, but there are
    # 1,000 steps only
    (finding,) = findings("evaluation_forgotten", FIRES["evaluation_forgotten"][0])
    assert str(finding.fix) == "write eval_steps: 1000"


def test_a_rule_that_could_say_nothing_is_named_with_what_is_not_known() -> None:
    assert not_judged(SOUND) == {}
    blind = case(statistics=None, accelerator=None, now=replace(NOW, total_s=None))
    assert not_judged(blind)["no_headroom"] == "accelerator"
    assert not_judged(blind)["context_beyond_data"] == "data"
    assert not_judged(blind)["no_packing"] == "run"
    assert set(not_judged(blind)) <= set(RULES)


@pytest.mark.parametrize(("rule", "one"), pairs(FIRES))
def test_a_silenced_rule_says_nothing_and_is_named(rule: str, one: Case) -> None:
    quiet = replace(one, job=replace(one.job, lint=StatedLint(ignore=(rule,))))
    assert findings(rule, quiet) == []
    assert rule in silenced(quiet)
    assert rule not in not_judged(replace(quiet, statistics=None, accelerator=None))
    assert silenced(one) == ()


def test_rules_that_compare_are_those_that_look_at_another_configuration() -> None:
    for name, cases in FIRES.items():
        alone = [findings(name, replace(one, variants={})) for one in cases]
        assert any(alone) or RULES[name].compares, name


def test_gpu_hours_of_a_short_run_have_digits_enough_to_differ() -> None:
    # 2 cards for 250 s are 0.139 GPU-hours, 1 card for 370 s is 0.103: rounded to 0.1, both alike
    short = variant("fewer_cards", {"hardware.accelerators_per_node": 1}, total_s=370.0,
                    accelerator_hours=370 / 3600)  # fmt: skip
    now = replace(NOW, total_s=250.0, accelerator_hours=500 / 3600)
    (finding,) = findings("more_cards", case(parallelism=ON_8, now=now, variants=[short]))
    assert "0.139 GPU-hours" in str(finding.message)
    assert "0.103:" in str(finding.message)
