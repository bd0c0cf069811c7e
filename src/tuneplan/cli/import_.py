"""``tuneplan import``: a job file from somebody's own configuration."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from tuneplan.cli import completing
from tuneplan.cli.answering import show, today
from tuneplan.cli.commands import SpokenCommand
from tuneplan.cli.configurations import framework_option
from tuneplan.cli.options import answer_options, refuse_blank
from tuneplan.cli.output import refuse_own_source, write_file


@click.command("import", cls=SpokenCommand)
@click.argument("config", metavar="CONFIG", shell_complete=completing.files)
@framework_option
@click.option(
    "--output",
    "-o",
    metavar="FILE",
    shell_complete=completing.files,
    help="Write the job file there; stdout where none is given.",
)
@click.option("--all", "full", is_flag=True, help="List the irrelevant keys too.")
@answer_options
def command(
    config: str, *, framework: str | None, output: str | None, full: bool, as_json: bool
) -> None:
    """A job file that says what a configuration says, and a list of what it cannot say.

    CONFIG is the configuration of a framework or a launch script; - is standard input. Blanks stay
    blank: the job file takes the framework's defaults as the configuration would.
    """
    from tuneplan.planner.importing import import_job
    from tuneplan.report.imported import import_answer, import_text, job_file_text

    refuse_blank("--framework", framework)
    refuse_blank("--output", output)
    output = None if output == "-" else output  # stdout, as everywhere
    folder = Path(output).parent if output is not None else Path()
    found = import_job(config, framework=framework, folder=folder)
    refuse_own_source(output, (config, *found.imported.files))
    answer = import_answer(found, as_of=today().isoformat(), output=output)
    if output is not None:
        write_file(output, job_file_text(answer))
    show(answer, partial(import_text, full=full), as_json=as_json)
