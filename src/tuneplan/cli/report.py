"""``tuneplan report``: the document to hand on."""

from __future__ import annotations

from functools import partial

import click

from tuneplan.cli import completing
from tuneplan.cli.answering import show, today
from tuneplan.cli.commands import SpokenCommand
from tuneplan.cli.configurations import configuration_of
from tuneplan.cli.options import JobRequest, answer_options, job_options, refuse_blank
from tuneplan.cli.output import refuse_own_source, write_bytes
from tuneplan.language import say


@click.command("report", cls=SpokenCommand)
@job_options
@click.option(
    "--to",
    "targets",
    multiple=True,
    metavar="FILE",
    shell_complete=completing.files,
    help="Where to write it: .html, .md, .json or .xlsx says how; may be given several times.",
)
@click.option(
    "--of",
    type=click.Choice(("plan", "estimate")),
    help="What is reported; without it an estimate where the job says on which and how many "
    "accelerators it runs, else a plan.",
)
@answer_options
def command(job: JobRequest, *, targets: tuple[str, ...], of: str | None, as_json: bool) -> None:
    """The document to hand on: what it needs, how long, how much, what else, and why.

    JOB is a job file (YAML, JSON or TOML; - is standard input), the configuration of a framework
    or a launch script. It may be left out and given as flags. Every format is made from one
    document, so the same figures stand in each.
    """
    from tuneplan.planner.reporting import report_on
    from tuneplan.planner.sharing import processes_at_hand
    from tuneplan.planner.sources import sources_for
    from tuneplan.report.report_answer import report_answer
    from tuneplan.report.reported import report_document, report_text
    from tuneplan.report.writing import document_file, refuse_unknown_endings

    refuse_blank("--to", targets)
    if not targets and not as_json:
        raise click.UsageError(say("name a file: --to report.html"))
    refuse_unknown_endings(list(targets))
    configuration, day = configuration_of(job), today()
    for target in targets:
        refuse_own_source(target, configuration.files)
    sources = sources_for(configuration.job, today=day)
    reported = report_on(configuration, sources, of=of, processes=processes_at_hand())
    document = report_document(reported, as_of=day.isoformat())
    for target, content in [(each, document_file(document, each)) for each in targets]:
        write_bytes(target, content)
    show(report_answer(document, written=targets), partial(report_text), as_json=as_json)
