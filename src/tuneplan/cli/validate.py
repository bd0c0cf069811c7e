"""``tuneplan validate``: predictions against measured runs."""

from __future__ import annotations

import click

from tuneplan.cli.answering import today
from tuneplan.cli.commands import SpokenCommand
from tuneplan.cli.options import answer_options
from tuneplan.cli.output import console, print_json, write_file


@click.command("validate", cls=SpokenCommand)
@click.argument("runs", metavar="RUNS.csv")
@click.option("--complete", metavar="FILE", help="Which rows count in the error tables (CSV).")
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
    type=click.Choice(["source", "method", "framework", "accelerator"]),
    help="Groups of the error tables; source where none is given.",
)
@click.option("--rows", "rows_file", metavar="FILE", help="Write every row to a CSV file.")
@answer_options
def command(
    runs: str,
    *,
    complete: str | None,
    worst: int,
    group_by: tuple[str, ...],
    rows_file: str | None,
    as_json: bool,
) -> None:
    """Predict every measured run of RUNS.csv and say how far off each prediction is."""
    from tuneplan.contract.answers import header
    from tuneplan.contract.measured import ValidateAnswer
    from tuneplan.planner.predicting import Predictor
    from tuneplan.planner.sources import Sources
    from tuneplan.planner.validate import validate
    from tuneplan.report.validation import print_validation
    from tuneplan.report.validation_export import rows_csv, validation_answer

    day = today()
    found = validate(runs, predict=Predictor(Sources(today=day)), complete=complete)
    if rows_file is not None:
        write_file(rows_file, rows_csv(found))
    if as_json:
        head = header("validate", as_of=day.isoformat())
        answer = ValidateAnswer(**head, **validation_answer(found))
        print_json(answer.model_dump(mode="json"))
    else:
        with console() as to:
            print_validation(found, to, worst=worst, group_by=group_by or ("source",))
