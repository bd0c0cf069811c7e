"""``tuneplan estimate``: one configuration."""

from __future__ import annotations

from functools import partial

import click

from tuneplan.cli import completing
from tuneplan.cli.answering import (
    NOTHING_FITS,
    all_option,
    anything_fits,
    require_fit_option,
    show,
    today,
)
from tuneplan.cli.commands import SpokenCommand
from tuneplan.cli.options import JobRequest, answer_options, job_options, refuse_blank
from tuneplan.language import say


@click.command("estimate", cls=SpokenCommand)
@job_options
@require_fit_option
@all_option
@click.option(
    "--calibration",
    type=click.Choice(["none", "shipped", "own"]),
    default="shipped",
    show_default=True,
    help="Ranges from physics and stated priors alone, from published runs, or from these and "
    "your own measurements (tuneplan store list).",
)
@click.option(
    "--store", metavar="FILE", shell_complete=completing.files, help="Of your own measurements."
)
@answer_options
@click.pass_context
def command(
    ctx: click.Context,
    job: JobRequest,
    *,
    require_fit: bool,
    full: bool,
    calibration: str,
    store: str | None,
    as_json: bool,
) -> None:
    """Whether one configuration fits, how fast it is and what it costs.

    JOB is a job file (YAML, JSON or TOML; - is standard input). It may be left out and given as
    flags; flags go before the file.
    """
    from tuneplan.planner.estimate import estimate_job
    from tuneplan.planner.sources import sources_for
    from tuneplan.report.estimate import estimate_text
    from tuneplan.report.estimate_answer import estimate_answer

    stated, day = job.read(), today()
    refuse_blank("--store", store)
    sources = sources_for(stated, today=day, calibrated=calibration != "none")
    if calibration == "own":
        from tuneplan.planner.recalibrating import with_own

        sources, unused = with_own(sources, store)
        for notice in unused:
            click.echo(str(notice.message), err=True)
    elif store is not None:
        raise click.UsageError(say("--store is read with --calibration own"))
    estimate = estimate_job(stated, sources, replays=True)
    answer = estimate_answer(estimate, as_of=day.isoformat())
    show(answer, partial(estimate_text, full=full), as_json=as_json)
    if require_fit and not anything_fits(answer.fit):
        ctx.exit(NOTHING_FITS)
