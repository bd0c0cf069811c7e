"""``tuneplan serve``: the page."""

from __future__ import annotations

import os
from pathlib import Path

import click

from tuneplan.cli import completing
from tuneplan.cli.answering import today
from tuneplan.cli.commands import SpokenCommand
from tuneplan.cli.options import refuse_blank
from tuneplan.errors import UnreadableFile
from tuneplan.language import message, say


@click.command("serve", cls=SpokenCommand)
@click.option("--host", default="127.0.0.1", show_default=True, help="A loopback address.")
@click.option(
    "--port",
    type=click.IntRange(min=0, max=65535),
    default=8765,
    show_default=True,
    help="0 for any that is free.",
)
@click.option("--open", "opens", is_flag=True, help="Open the page in the browser.")
@click.option(
    "--allow-path",
    "allowed",
    multiple=True,
    metavar="DIR",
    shell_complete=completing.files,
    help="A folder whose files the page may read; without one it reads no file of yours.",
)
@click.option(
    "--store", metavar="FILE", shell_complete=completing.files, help="Of your own measurements."
)
def command(
    *, host: str, port: int, opens: bool, allowed: tuple[str, ...], store: str | None
) -> None:
    """Serve the page to this machine: a form on one side, the answer on the other.

    Nothing leaves the machine, and no other machine reaches the page. The same answers stand under
    /api as JSON; /openapi.json describes them.
    """
    from tuneplan.web.serving import serve
    from tuneplan.web.settings import Settings

    refuse_blank("--store", store)

    def ready(url: str) -> None:
        click.echo(say("The page is at {url} (Ctrl-C ends it)", url=url))
        if opens:
            click.launch(url)

    roots = tuple(_folder(name) for name in allowed)
    settings = Settings(roots=roots, store=store, today=today, helper=True)
    serve(settings, host=host, port=port, ready=ready)


def _folder(name: str) -> Path:
    path = Path(os.path.realpath(Path(name).expanduser()))
    if not path.is_dir():
        text = message("no_such_folder", "{path} is no folder", path=name)
        raise UnreadableFile(text, path=name)
    return path
