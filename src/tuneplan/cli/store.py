"""``tuneplan store``: the measurements that are kept."""

from __future__ import annotations

import click

from tuneplan.cli import completing
from tuneplan.cli.answering import show, today
from tuneplan.cli.commands import SpokenCommand
from tuneplan.cli.options import answer_options, language_option, refuse_blank
from tuneplan.cli.output import print_json, print_text, writing


class _StoreGroup(SpokenCommand, click.Group):
    """The group, with its help in the user's language."""


_store_option = click.option(
    "--store",
    metavar="FILE",
    shell_complete=completing.files,
    help="The store; TUNEPLAN_STORE, else the user's own.",
)


@click.group("store", cls=_StoreGroup)
@language_option
def command() -> None:
    """Measurements of runs: appended to, never changed.

    They lie in one file, TUNEPLAN_STORE or measurements.sqlite3 in the user's data folder.
    """


@command.command("list", cls=SpokenCommand)
@_store_option
@click.option("--model", shell_complete=completing.models, help="Of this model only.")
@click.option("--accelerator", help="On this card only.")
@answer_options
def list_(*, store: str | None, model: str | None, accelerator: str | None, as_json: bool) -> None:
    """What is kept, oldest first."""
    from tuneplan.report.learned import store_text
    from tuneplan.report.learned_answer import store_answer
    from tuneplan.store.store import Store

    path = _path(store)
    with Store(path) as kept:
        found = kept.find(model=model, accelerator=accelerator)
    answer = store_answer(found, store=path, as_of=today().isoformat())
    show(answer, store_text, as_json=as_json)


@command.command("export", cls=SpokenCommand)
@click.argument("file", metavar="FILE", shell_complete=completing.files)
@_store_option
@answer_options
def export(file: str, *, store: str | None, as_json: bool) -> None:
    """Write every measurement to FILE, a line of JSON each."""
    from pathlib import Path

    from tuneplan.language import say
    from tuneplan.store.store import Store

    path = _path(store)
    with Store(path) as kept, writing(file), Path(file).open("w", encoding="utf-8") as written:
        count = kept.export_to(written)
    _tell(say("{count} written to {file}", count=count, file=file), count, as_json=as_json)


@command.command("import", cls=SpokenCommand)
@click.argument("file", metavar="FILE", shell_complete=completing.files)
@_store_option
@answer_options
def import_(file: str, *, store: str | None, as_json: bool) -> None:
    """Keep the measurements of an exported FILE: all of them, or none where a line is wrong."""
    from tuneplan.language import say
    from tuneplan.planner.learning import import_measurements

    count, new = import_measurements(file, _path(store))
    text = say("{count} read, {new} of them new", count=count, new=new)
    _tell(text, count, as_json=as_json)


def _path(store: str | None) -> str:
    from tuneplan.store.paths import store_path

    refuse_blank("--store", store)
    return store or str(store_path())


def _tell(text: str, count: int, *, as_json: bool) -> None:
    if as_json:
        print_json({"count": count})
    else:
        print_text(text)
