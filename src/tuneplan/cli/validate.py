"""``tuneplan validate``: predictions against measured runs."""

from __future__ import annotations

import click

from tuneplan.cli import completing
from tuneplan.cli.answering import today
from tuneplan.cli.commands import SpokenCommand
from tuneplan.cli.options import answer_options
from tuneplan.cli.output import console, print_json, write_file


@click.command("validate", cls=SpokenCommand)
@click.argument("runs", metavar="RUNS.csv|FOLDER")
@click.option(
    "--complete",
    metavar="FILE",
    shell_complete=completing.files,
    help="Which rows count in the error tables (CSV).",
)
@click.option(
    "--worst",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="How many of the worst runs to show.",
)
@click.option(
    "--by",
    "group_by",
    multiple=True,
    type=click.Choice(["source", "method", "framework", "accelerator", "size"]),
    help="Groups of the error tables; source where none is given.",
)
@click.option(
    "--calibration",
    "choice",
    type=click.Choice(["none", "shipped", "leave-one-source-out"]),
    default="shipped",
    show_default=True,
    help="What was learned from measured runs: nothing, what is shipped, or that without the runs "
    "of the row's own source.",
)
@click.option(
    "--rows",
    "rows_file",
    metavar="FILE",
    shell_complete=completing.files,
    help="Write every row to a CSV file.",
)
@click.option(
    "--html",
    "html_file",
    metavar="FILE",
    shell_complete=completing.files,
    help="Write a page with charts and tables.",
)
@answer_options
def command(
    runs: str,
    *,
    complete: str | None,
    worst: int,
    group_by: tuple[str, ...],
    rows_file: str | None,
    choice: str,
    html_file: str | None,
    as_json: bool,
) -> None:
    """Predict every measured run of a file and say how far off each prediction is.

    RUNS.csv has the columns of docs/reference/runs.md; a FOLDER holds evidence as this project's
    evidence/ does.
    """
    from tuneplan.contract.answers import header
    from tuneplan.contract.measured import ValidateAnswer
    from tuneplan.planner.predicting import CalibrationChoice, Predictor, calibrating
    from tuneplan.planner.sources import Sources
    from tuneplan.planner.validate import validate
    from tuneplan.report.validation import print_validation
    from tuneplan.report.validation_export import rows_csv, validation_answer

    day = today()
    sources = Sources(today=day)
    found = validate(
        runs,
        predict=Predictor(sources),
        complete=complete,
        calibrate=calibrating(sources.calibration, CalibrationChoice(choice)),
    )
    if rows_file is not None:
        write_file(rows_file, rows_csv(found))
    if html_file is not None:
        from tuneplan.report.validation_html import validation_html

        write_file(html_file, validation_html(found, as_of=day.isoformat()))
    if as_json:
        head = header("validate", as_of=day.isoformat())
        answer = ValidateAnswer(**head, **validation_answer(found))
        print_json(answer.model_dump(mode="json"))
    else:
        with console() as to:
            print_validation(found, to, worst=worst, group_by=group_by or ("source",))
