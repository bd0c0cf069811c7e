"""Project: what it costs until the model is handed over, as chances, with a calendar."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuneplan.language import say
from tuneplan.web.fields import Field
from tuneplan.web.views.view import View

if TYPE_CHECKING:
    from tuneplan.contract.budgeted import BudgetAnswer
    from tuneplan.report.view import Section
    from tuneplan.web.form import Form
    from tuneplan.web.world import World

_DRAWS: Final = 10_000
_COUNTS: Final = (0, 1, 2, 3, 5, 8, 10, 15, 20, 30, 50, 80, 100)


def budget_of(form: Form, world: World) -> BudgetAnswer:
    """The budget of the project that a form asks for."""
    import numpy as np

    from tuneplan.planner.budget import budget_jobs
    from tuneplan.report.budget_answer import budget_answer

    job = form.job()
    seed = form.whole("seed", default=0, low=0, high=2**31)
    budget = budget_jobs(
        [(job, world.sources(job))],
        generator=np.random.default_rng(seed),
        draws=_DRAWS,
        seed=seed,
    )
    return budget_answer(budget, as_of=world.today.isoformat())


def _sections(answer: BudgetAnswer, _form: Form) -> tuple[Section, ...]:
    from tuneplan.report.budget_document import budget_document

    return budget_document(answer).sections


VIEW = View(
    name="project",
    title=lambda: say("Project"),
    purpose=lambda: say("What a project costs: experiments, repetitions, idle time, storage."),
    schema="budget",
    answer=budget_of,
    sections=_sections,
    fields=(
        Field(
            name="experiments",
            key="project.num_experiments",
            label=lambda: say("Experiments before the main run"),
            kind="number",
            stops=_COUNTS,
        ),
        Field(
            name="sweep_runs",
            key="project.num_sweep_runs",
            label=lambda: say("Runs that look for settings"),
            kind="number",
            stops=_COUNTS,
        ),
        Field(
            name="iterations",
            key="project.data_iterations",
            label=lambda: say("Full runs, one for each version of the data"),
            kind="number",
            stops=(1, 2, 3, 4, 5, 6, 8, 10),
        ),
        Field(
            name="parallel_runs",
            key="project.runs_in_parallel",
            label=lambda: say("Runs at the same time"),
            kind="number",
            stops=(1, 2, 3, 4, 6, 8),
        ),
        Field(
            name="idle",
            key="project.idle_fraction",
            label=lambda: say("Share of rented hours in which nothing runs"),
            many=True,
            kind="number",
            example="0.1, 0.4",
        ),
        Field(
            name="start",
            key="project.start",
            label=lambda: say("First day"),
            example="2027-01-11",
        ),
        Field(
            name="duration",
            key="project.duration",
            label=lambda: say("Length of the project"),
            example="6 week",
        ),
        Field(
            name="seed",
            label=lambda: say("Seed of the random numbers"),
            kind="number",
            example="0",
        ),
    ),
    lead=("model", "method", "gpu", "count"),
)
