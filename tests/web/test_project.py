"""Project and Accuracy: the answers of their commands, on the page and as JSON."""

import numpy as np

from tuneplan.contract.reading import load_job
from tuneplan.planner.budget import budget_jobs
from tuneplan.planner.sources import sources_for
from tuneplan.report.accuracy_answer import accuracy_answer
from tuneplan.report.budget_answer import budget_answer
from web.asking import DAY, JOB, Elements, client


def test_the_budget_is_that_of_the_command():
    job = load_job(
        {
            "model": "Qwen/Qwen2.5-7B-Instruct",
            "method": "lora",
            "data": {"num_samples": 1000, "mean_tokens": 500},
            "hardware": {"accelerator": "NVIDIA H100 SXM", "accelerators_per_node": 1},
            "project": {"num_experiments": 10, "idle_fraction": [0.1, 0.4]},
        }
    )
    drawn = budget_jobs(
        [(job, sources_for(job, today=DAY))],
        generator=np.random.default_rng(0),
        draws=10_000,
        seed=0,
    )
    expected = budget_answer(drawn, as_of=DAY.isoformat()).model_dump(mode="json")
    answered = client().get(f"/api/project?{JOB}&experiments=10&idle=0.1,0.4")
    assert answered.status_code == 200, answered.text
    assert answered.json() == expected


def test_another_seed_draws_other_cases():
    asking = client()
    money = [asking.get(f"/api/project?{JOB}&seed={seed}").json()["money"] for seed in (0, 1, 1)]
    assert money[0] != money[1] == money[2]


def test_the_distribution_the_tornado_the_calendar_and_the_break_even_are_drawn():
    page = Elements(client().get(f"/project?{JOB}&experiments=20&duration=6+week").text)
    for name in ("tornado", "weeks"):
        assert page.all("figure", **{"data-chart": name}), name
    assert page.one("section", id="calendar")


def test_a_mistake_in_the_project_stands_beside_its_field():
    page = Elements(client().get(f"/project?{JOB}&experiments=many&seed=-1").text)
    assert page.one("input", id="experiments")["aria-invalid"] == "true"
    answered = client().get(f"/api/project?{JOB}&seed=x")
    assert answered.status_code == 400
    assert answered.json()["errors"][0]["path"] == "seed"


def test_fields_of_one_view_stay_in_the_address_of_the_others():
    page = Elements(client().get(f"/fit?{JOB}&experiments=10&skip=true").text)
    tab = next(one["href"] for one in page.all("a") if str(one["href"]).startswith("/project"))
    assert "experiments=10" in str(tab)


def test_our_evidence_is_shown_without_any_question():
    asking = client()
    answered = asking.get("/api/accuracy")
    assert answered.status_code == 200
    assert answered.json() == accuracy_answer(as_of=DAY.isoformat()).model_dump(mode="json")
    page = Elements(asking.get("/accuracy").text)
    assert page.one("figure", **{"data-chart": "reliability"})
    assert "Missed:" in page.text
    assert not page.all("input", id="model")
