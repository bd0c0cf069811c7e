"""``tuneplan explain``: where a figure comes from."""

from __future__ import annotations

from dataclasses import replace

import click

from tuneplan.cli.answering import show, today
from tuneplan.cli.commands import SpokenCommand
from tuneplan.cli.options import JobRequest, answer_options, job_options
from tuneplan.language import say


@click.command("explain", cls=SpokenCommand)
@job_options
@click.argument("figure", required=False, metavar="FIGURE")
@answer_options
def command(job: JobRequest, *, figure: str | None, as_json: bool) -> None:
    """Formula, inputs, basis and source of one FIGURE of the estimate of JOB.

    FIGURE is a path in the answer, such as memory.peak_bytes or time.step_s. JOB may be left out
    and given as flags: tuneplan explain time.step_s --model 7B.
    """
    from tuneplan.planner.estimate import estimate_job
    from tuneplan.planner.sources import sources_for
    from tuneplan.report.explain import explain_text
    from tuneplan.report.explain_answer import check_figure, explain_answer, whole_name

    if figure is None:  # one word is the figure, not the job
        figure, job = job.source, replace(job, source=None)
    elif job.source is not None and whole_name(job.source) and not whole_name(figure):
        figure, job = job.source, replace(job, source=figure)  # the other order is as clear
    if figure is None:
        raise click.UsageError(say("name a FIGURE, such as memory.peak_bytes"))
    figure = check_figure(figure)
    stated, day = job.read(), today()
    sources = replace(
        sources_for(stated, today=day), trace_folder=None
    )  # of formulas, not of a trace
    estimate = estimate_job(stated, sources, replays=True)
    answer = explain_answer(estimate, figure, as_of=day.isoformat(), sources=sources)
    show(answer, explain_text, as_json=as_json)
