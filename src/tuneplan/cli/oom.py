"""``tuneplan oom``: what ran out of memory, and what helps."""

from __future__ import annotations

from functools import partial

import click

from tuneplan.cli import completing
from tuneplan.cli.answering import all_option, show, today
from tuneplan.cli.commands import SpokenCommand
from tuneplan.cli.configurations import configuration_of
from tuneplan.cli.options import JobRequest, answer_options, job_options, refuse_blank
from tuneplan.language import say


@click.command("oom", cls=SpokenCommand)
@job_options
@click.option(
    "--log",
    metavar="FILE",
    shell_complete=completing.files,
    help="Log of the run that failed; - is standard input.",
)
@all_option
@answer_options
def command(job: JobRequest, *, log: str | None, full: bool, as_json: bool) -> None:
    """What ran out of memory, and the fixes in the order of what they cost on this job.

    JOB is a job file, the configuration of a framework or a launch script. With --log FILE the
    message of the run that failed tells the stage, the tensor that was asked for, and whether
    memory was short or in pieces. Without a job the log alone is read.
    """
    from tuneplan.diagnosis.oom_text import read_log
    from tuneplan.planner.oom import diagnose, diagnose_log
    from tuneplan.planner.oom_log import read_log_file
    from tuneplan.planner.sources import sources_for
    from tuneplan.report.oom import oom_text
    from tuneplan.report.oom_answer import oom_answer

    refuse_blank("--log", log)
    if log == "-" and job.source == "-":
        raise click.UsageError(say("only one of the job and the log can be standard input"))
    day = today()
    read = read_log(*read_log_file(log)) if log is not None else None
    if job.given:
        configuration = configuration_of(job)
        sources = sources_for(configuration.job, today=day)
        diagnosis = diagnose(configuration, sources, log=read)
    elif read is not None:
        diagnosis = diagnose_log(read)
    else:
        raise click.UsageError(say("give a job, a log (--log FILE), or both"))
    answer = oom_answer(diagnosis, as_of=day.isoformat())
    show(answer, partial(oom_text, full=full), as_json=as_json)
