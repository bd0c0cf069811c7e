"""``tuneplan budget``: the money of a project over time."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import click

from tuneplan.cli import completing
from tuneplan.cli.answering import all_option, show, today
from tuneplan.cli.commands import SpokenCommand
from tuneplan.cli.options import JobRequest, answer_options, job_options, refuse_blank
from tuneplan.cli.output import refuse_own_source, write_bytes


@click.command("budget", cls=SpokenCommand)
@job_options
@click.argument("more", nargs=-1, metavar="[JOB]...", shell_complete=completing.files)
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
@click.option(
    "--to",
    "targets",
    multiple=True,
    metavar="FILE",
    shell_complete=completing.files,
    help="Write it as .html, .md, .json or .xlsx.",
)
@all_option
@answer_options
def command(
    job: JobRequest,
    *,
    more: tuple[str, ...],
    seed: int,
    draws: int,
    targets: tuple[str, ...],
    full: bool,
    as_json: bool,
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
    from tuneplan.report.budget_document import budget_document
    from tuneplan.report.writing import document_file, refuse_unknown_endings

    refuse_blank("--to", targets)
    refuse_unknown_endings(list(targets))
    for target in targets:
        refuse_own_source(target, [name for name in (job.source, *more) if name])
    day = today()
    stated = [job.read(), *(replace(job, source=name).read() for name in more)]
    budget = budget_jobs(
        [(one, sources_for(one, today=day)) for one in stated],
        generator=np.random.default_rng(seed),
        draws=draws,
        seed=seed,
    )
    answer = budget_answer(budget, as_of=day.isoformat())
    if targets:
        document = budget_document(answer)
        for target, content in [(each, document_file(document, each)) for each in targets]:
            write_bytes(target, content)
    show(answer, partial(budget_text, full=full), as_json=as_json)
