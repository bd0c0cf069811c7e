"""``tuneplan catalog``: what is known of models, accelerators and prices."""

from __future__ import annotations

from pathlib import Path

import click

from tuneplan.cli import completing
from tuneplan.cli.answering import show, today
from tuneplan.cli.commands import SpokenCommand
from tuneplan.cli.options import answer_options, refuse_blank
from tuneplan.cli.output import print_text, write_file
from tuneplan.language import say


@click.command("catalog", cls=SpokenCommand)
@click.argument("kind", type=click.Choice(["models", "accelerators", "prices"]))
@click.argument("name", required=False, shell_complete=completing.names_of_a_kind)
@click.option(
    "--file",
    "files",
    multiple=True,
    help="Your own facts of this kind; they come before the bundled ones.",
)
@click.option(
    "--measure",
    is_flag=True,
    help="Measure the chip of this machine; writes an accelerator file (extra pilot).",
)
@click.option(
    "--device", type=click.Choice(["auto", "cpu", "cuda", "mps"]), default="auto", help="Of it."
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    shell_complete=completing.files,
    help="Where that file is written; else shown.",
)
@answer_options
def command(
    kind: str,
    name: str | None,
    *,
    files: tuple[str, ...],
    measure: bool,
    device: str,
    output: str | None,
    as_json: bool,
) -> None:
    """Facts with their source and date: all of a KIND in a list, or one NAME in full."""
    if measure:
        _measure(kind, device, output)
        return
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


def _measure(kind: str, device: str, output: str | None) -> None:
    from tuneplan.planner.measure_chip import measure_chip

    if kind != "accelerators":
        raise click.UsageError(say("--measure is for accelerators"))
    refuse_blank("--output", output)
    text = measure_chip(device=device, as_of=today().isoformat())
    if output is None:
        print_text(text)
    else:
        write_file(output, text)
