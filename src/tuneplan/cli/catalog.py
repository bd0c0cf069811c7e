"""``tuneplan catalog``: what is known of models, accelerators and prices."""

from __future__ import annotations

import click

from tuneplan.cli.answering import show, today
from tuneplan.cli.commands import SpokenCommand
from tuneplan.cli.options import answer_options


@click.command("catalog", cls=SpokenCommand)
@click.argument("kind", type=click.Choice(["models", "accelerators", "prices"]))
@click.argument("name", required=False)
@click.option(
    "--file",
    "files",
    multiple=True,
    help="Your own facts of this kind; they come before the bundled ones.",
)
@answer_options
def command(kind: str, name: str | None, *, files: tuple[str, ...], as_json: bool) -> None:
    """Facts with their source and date: all of a KIND in a list, or one NAME in full."""
    from tuneplan.planner.answering import catalog_answer
    from tuneplan.report.catalog import catalog_text

    show(catalog_answer(kind, name, files=files, as_of=today()), catalog_text, as_json=as_json)
