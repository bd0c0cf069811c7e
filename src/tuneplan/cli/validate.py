"""``tuneplan validate``: predictions against measured runs."""

from __future__ import annotations

import click

from tuneplan.cli.answering import show, today
from tuneplan.cli.commands import SpokenCommand
from tuneplan.cli.options import answer_options


@click.command("validate", cls=SpokenCommand)
@click.argument("runs", metavar="RUNS.csv")
@answer_options
def command(runs: str, *, as_json: bool) -> None:
    """Predict every measured run of RUNS.csv and say how far off each prediction is."""
    from tuneplan.planner.answering import validate_answer
    from tuneplan.report.validation import validation_text

    show(validate_answer(runs, as_of=today()), validation_text, as_json=as_json)
