"""``tuneplan export``: a job as a framework's configuration."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from tuneplan.cli import completing
from tuneplan.cli.answering import all_option, show, today
from tuneplan.cli.commands import SpokenCommand
from tuneplan.cli.options import JobRequest, answer_options, job_options, refuse_blank
from tuneplan.cli.output import make_folder, write_file
from tuneplan.language import say


@click.command("export", cls=SpokenCommand)
@job_options
@click.option(
    "--to",
    metavar="FRAMEWORK",
    help="trl, llamafactory, axolotl, torchtune or ms-swift; or the part of an engine: deepspeed, "
    "accelerate.",
)
@click.option(
    "--launch",
    "launchers",
    multiple=True,
    metavar="KIND",
    help="Launch file: torchrun, accelerate, deepspeed, slurm, skypilot, dstack, kubernetes or "
    "pytorchjob; several with commas, or given again.",
)
@click.option(
    "--output",
    "-o",
    metavar="DIR",
    shell_complete=completing.files,
    help="Write the files there; shown where none is given.",
)
@click.option("--force", is_flag=True, help="Write over files that are there.")
@all_option
@answer_options
def command(
    job: JobRequest,
    *,
    to: str | None,
    launchers: tuple[str, ...],
    output: str | None,
    force: bool,
    full: bool,
    as_json: bool,
) -> None:
    """A job as ready-to-run configuration and launch files of a framework.

    JOB is a job file (YAML, JSON or TOML; - is standard input). It may be left out and given as
    flags. Blanks are filled with what estimate takes, so that the files do what was planned; what
    the framework has no way to say is refused, all of it at once.
    """
    from tuneplan.planner.export import export_job, refuse_existing
    from tuneplan.planner.sources import sources_for
    from tuneplan.report.exported import export_answer, export_text

    if to is None:
        raise click.UsageError(say("name the framework: --to trl"))
    refuse_blank("--to", to)
    refuse_blank("--launch", launchers)
    refuse_blank("--output", output)
    kinds = [kind.strip() for text in launchers for kind in text.split(",") if kind.strip()]
    folder = None if output is None else Path(output)
    stated, day = job.read(), today()
    sources = sources_for(stated, today=day)
    export = export_job(stated, sources, to=to.strip(), launchers=kinds, folder=folder)
    if folder is not None:
        if not force:
            refuse_existing(export.files, folder)
        make_folder(str(folder))
        for one in export.files:
            write_file(str(folder / one.name), one.text)
    answer = export_answer(export, as_of=day.isoformat(), folder=output)
    show(answer, partial(export_text, full=full), as_json=as_json)
