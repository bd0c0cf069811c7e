"""``tuneplan catalog``: what is known of models, accelerators and prices."""

from __future__ import annotations

from pathlib import Path

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
    from tuneplan.catalog.offers import refreshed_file
    from tuneplan.planner.sources import Sources
    from tuneplan.report.catalog import catalog_text
    from tuneplan.report.catalog_answer import catalog_answer

    day, own = today(), tuple(Path(file) for file in files)
    sources = Sources(
        model_files=own if kind == "models" else (),
        accelerator_files=own if kind == "accelerators" else (),
        price_files=own if kind == "prices" else (),
        today=day,
        refreshed_prices=refreshed_file(),
    )
    answer = catalog_answer(kind, name, sources, as_of=day.isoformat())
    show(answer, catalog_text, as_json=as_json)
