"""``tuneplan plan``: which chips, how many, which settings."""

from __future__ import annotations

from functools import partial

import click

from tuneplan.cli.answering import NOTHING_FITS, all_option, require_fit_option, show, today
from tuneplan.cli.calibrating import calibrated_sources, calibration_options
from tuneplan.cli.commands import SpokenCommand
from tuneplan.cli.options import JobRequest, answer_options, job_options


@click.command("plan", cls=SpokenCommand)
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
    """The ranked plan: which accelerators, how many, which settings; hours and cost.

    JOB is a job file (YAML, JSON or TOML; - is standard input). It may be left out and given as
    flags; flags win over the file. What it states is fixed, a list is a choice, a blank is
    searched. With --calibration own the figures before and after your own measurements stand side
    by side.
    """
    from tuneplan.planner.plan import plan_job
    from tuneplan.planner.sharing import processes_at_hand
    from tuneplan.report.plan import plan_text
    from tuneplan.report.plan_answer import plan_answer

    stated, day = job.read(), today()
    sources = calibrated_sources(stated, calibration, store, today=day)
    plan = plan_job(stated, sources, processes=processes_at_hand())
    answer = plan_answer(plan, as_of=day.isoformat())
    show(answer, partial(plan_text, full=full), as_json=as_json)
    if require_fit and not answer.entries:
        ctx.exit(NOTHING_FITS)
