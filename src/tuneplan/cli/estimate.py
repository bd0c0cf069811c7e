"""``tuneplan estimate``: one configuration."""

from __future__ import annotations

from functools import partial

import click

from tuneplan.cli.answering import (
    NOTHING_FITS,
    all_option,
    anything_fits,
    require_fit_option,
    show,
    today,
)
from tuneplan.cli.calibrating import calibrated_sources, calibration_options
from tuneplan.cli.commands import SpokenCommand
from tuneplan.cli.options import JobRequest, answer_options, job_options


@click.command("estimate", cls=SpokenCommand)
@job_options
@require_fit_option
@all_option
@calibration_options
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
    flags; flags win over the file.
    """
    from tuneplan.planner.estimate import estimate_job
    from tuneplan.report.estimate import estimate_text
    from tuneplan.report.estimate_answer import estimate_answer

    stated, day = job.read(), today()
    sources = calibrated_sources(stated, calibration, store, today=day)
    estimate = estimate_job(stated, sources, replays=True)
    answer = estimate_answer(estimate, as_of=day.isoformat())
    show(answer, partial(estimate_text, full=full), as_json=as_json)
    if require_fit and not anything_fits(answer.fit):
        ctx.exit(NOTHING_FITS)
