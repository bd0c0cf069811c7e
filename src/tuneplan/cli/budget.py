"""``tuneplan budget``: the money of a project over time."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import click

from tuneplan.cli.answering import all_option, show, today
from tuneplan.cli.commands import SpokenCommand
from tuneplan.cli.options import JobRequest, answer_options, job_options


@click.command("budget", cls=SpokenCommand)
@job_options
@click.argument("more", nargs=-1, metavar="[JOB]...")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Of the random numbers: the same seed gives the same answer.",
)
@click.option(
    "--draws",
    type=click.IntRange(100, 1_000_000),
    default=10_000,
    show_default=True,
    help="Cases that are drawn.",
)
@all_option
@answer_options
def command(
    job: JobRequest, *, more: tuple[str, ...], seed: int, draws: int, full: bool, as_json: bool
) -> None:
    """What a project costs: experiments, sweeps, versions of the data, repetitions, idle time.

    JOB is a job file whose project section says what is done around the run; several jobs are done
    one after the other. The answer: hours and money as chances (P50, P80, P95), three phases, a
    calendar by weeks, what moves the total most, which offers, and what the limits cost.
    """  # fmt: skip
    import numpy as np

    from tuneplan.planner.budget import budget_jobs
    from tuneplan.planner.sources import sources_for
    from tuneplan.report.budget import budget_text
    from tuneplan.report.budget_answer import budget_answer

    day = today()
    stated = [job.read(), *(replace(job, source=name).read() for name in more)]
    budget = budget_jobs(
        [(one, sources_for(one, today=day)) for one in stated],
        generator=np.random.default_rng(seed),
        draws=draws,
        seed=seed,
    )
    answer = budget_answer(budget, as_of=day.isoformat())
    show(answer, partial(budget_text, full=full), as_json=as_json)
