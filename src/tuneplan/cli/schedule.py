"""``tuneplan schedule``: several jobs on few accelerators."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuneplan.cli import completing
from tuneplan.cli.answering import NOTHING_FITS, all_option, require_fit_option, show, today
from tuneplan.cli.commands import SpokenCommand
from tuneplan.cli.options import answer_options, refuse_blank
from tuneplan.cli.output import refuse_own_source, write_bytes
from tuneplan.language import say

if TYPE_CHECKING:
    from tuneplan.spec.stated import StatedJob


@click.command("schedule", cls=SpokenCommand)
@click.argument("jobs", nargs=-1, metavar="[JOB]...", shell_complete=completing.files)
@click.option(
    "--pool",
    "pools",
    multiple=True,
    metavar="NAME:CARDS|FILE",
    shell_complete=completing.files,
    help="Machines: H100:8 is one of eight cards, H100:8x2 two of them; or a file of nodes and "
    "jobs. May be given several times.",
)
@click.option(
    "--objective",
    type=click.Choice(("makespan", "cost", "lateness")),
    default="makespan",
    help="What is made least: the time until all is done, the cost, or the lateness by priority. "
    "Deadlines hold unless it is lateness.",
)
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0.5, max=86_400),
    default=15.0,
    show_default=True,
    help="Seconds that the search may take.",
)
@click.option(
    "--to",
    "targets",
    multiple=True,
    metavar="FILE",
    shell_complete=completing.files,
    help="Write it as .html, .md, .json or .xlsx.",
)
@require_fit_option
@all_option
@answer_options
@click.pass_context
def command(
    ctx: click.Context,
    jobs: tuple[str, ...],
    *,
    pools: tuple[str, ...],
    objective: str,
    time_limit: float,
    targets: tuple[str, ...],
    require_fit: bool,
    full: bool,
    as_json: bool,
) -> None:
    """Several jobs on few accelerators: who runs where and when.

    Each JOB is a job file, estimated on every kind of card of the pool. Priorities, deadlines by
    date, and which job waits for which stand in the pool's file.
    """
    from tuneplan.catalog.pools import read_pools
    from tuneplan.planner.schedule import schedule_jobs
    from tuneplan.planner.sources import Sources
    from tuneplan.report.schedule import schedule_text
    from tuneplan.report.schedule_answer import schedule_answer
    from tuneplan.report.schedule_document import schedule_document
    from tuneplan.report.writing import document_file, refuse_unknown_endings
    from tuneplan.spec.portfolio import Aim

    refuse_blank("--pool", pools)
    refuse_blank("--to", targets)
    if not pools:
        raise click.UsageError(say("name the pool: --pool H100:8"))
    refuse_unknown_endings(list(targets))
    day = today()
    sources = Sources(today=day)
    pool = read_pools(pools, sources.accelerators, today=day)
    for target in targets:
        refuse_own_source(target, [*jobs, *pool.files])
    schedule = schedule_jobs(
        _read(jobs),
        pool,
        sources,
        aim=Aim(objective),
        limit_s=time_limit,
        workers=max(8, os.cpu_count() or 1),
    )
    answer = schedule_answer(schedule, as_of=day.isoformat(), written=targets)
    document = schedule_document(answer)
    for target, content in [(each, document_file(document, each)) for each in targets]:
        write_bytes(target, content)
    show(answer, partial(schedule_text, full=full), as_json=as_json)
    if require_fit and not answer.jobs:
        ctx.exit(NOTHING_FITS)


def _read(jobs: tuple[str, ...]) -> list[tuple[str, StatedJob]]:
    """Every job file, with the mistakes of all of them at once."""
    from tuneplan.contract.reading import load_job
    from tuneplan.errors import InputError, InvalidRequest, Mistake

    found: list[tuple[str, StatedJob]] = []
    mistakes: list[Mistake] = []
    for name in jobs:
        try:
            found.append((Path(name).stem, load_job(name)))
        except InputError as error:
            mistakes += error.mistakes
    if mistakes:
        raise InvalidRequest(mistakes)
    return found
