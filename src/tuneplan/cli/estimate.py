"""``tuneplan estimate``: one configuration."""

from __future__ import annotations

import click

from tuneplan.cli.answering import NOTHING_FITS, anything_fits, require_fit_option, show, today
from tuneplan.cli.commands import SpokenCommand
from tuneplan.cli.options import JobRequest, answer_options, job_options


@click.command("estimate", cls=SpokenCommand)
@job_options
@require_fit_option
@answer_options
@click.pass_context
def command(ctx: click.Context, job: JobRequest, *, require_fit: bool, as_json: bool) -> None:
    """Whether one configuration fits, how fast it is and what it costs.

    JOB is a job file (YAML, JSON or TOML; - is standard input). It may be left out and given as
    flags; flags go before the file.
    """
    from tuneplan.planner.answering import estimate_answer
    from tuneplan.report.estimate import estimate_text

    answer = estimate_answer(job.read(), as_of=today())
    show(answer, estimate_text, as_json=as_json)
    if require_fit and not anything_fits(answer.fit):
        ctx.exit(NOTHING_FITS)
