"""``tuneplan rules``: what people say, beside our answer."""

from __future__ import annotations

from functools import partial

import click

from tuneplan.cli.answering import all_option, show, today
from tuneplan.cli.commands import SpokenCommand
from tuneplan.cli.options import JobRequest, answer_options, job_options


@click.command("rules", cls=SpokenCommand)
@job_options
@all_option
@answer_options
def command(job: JobRequest, *, full: bool, as_json: bool) -> None:
    """The rules of thumb that people know, beside our answer for JOB.

    Each is computed exactly as it is stated; the difference is told by cause: weights, gradients,
    optimizer, activations. With an accelerator also what is said of speed, beside this job's time.
    """
    from tuneplan.planner.rules import rules_of
    from tuneplan.planner.sources import sources_for
    from tuneplan.report.rules import rules_text
    from tuneplan.report.rules_answer import rules_answer

    stated, day = job.read(), today()
    answer = rules_answer(rules_of(stated, sources_for(stated, today=day)), as_of=day.isoformat())
    show(answer, partial(rules_text, full=full), as_json=as_json)
