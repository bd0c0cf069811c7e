"""``tuneplan schema``: JSON Schemas."""

from __future__ import annotations

import click

from tuneplan.cli.commands import SpokenCommand
from tuneplan.cli.options import answer_options
from tuneplan.cli.output import print_json, print_text


@click.command("schema", cls=SpokenCommand)
@click.argument("name", required=False)
@answer_options
def command(name: str | None, *, as_json: bool) -> None:
    """The JSON Schema of NAME: the job file, or one of the answers. Without NAME: the names."""
    from tuneplan.contract.schema import NAMES, json_schema

    if name is not None:
        print_json(json_schema(name))
    elif as_json:
        print_json({"names": list(NAMES)})
    else:
        print_text("\n".join(NAMES))
