"""``tuneplan mcp``: the interface for agents."""

from __future__ import annotations

import os
from pathlib import Path

import click

from tuneplan.cli import completing
from tuneplan.cli.commands import SpokenCommand
from tuneplan.errors import UnreadableFile
from tuneplan.language import message
from tuneplan.units import parse_bytes, parse_seconds


@click.command("mcp", cls=SpokenCommand)
@click.option(
    "--allow",
    "allowed",
    multiple=True,
    metavar="FOLDER",
    shell_complete=completing.files,
    help="A folder that tools may read; without one they read no file of yours.",
)
@click.option("--time-limit", default="2 min", show_default=True, help="Of a call.")
@click.option("--memory-limit", default="4 GiB", show_default=True, help="Of a call.")
def command(*, allowed: tuple[str, ...], time_limit: str, memory_limit: str) -> None:
    """Serve plan, estimate, check, oom, data_profile and catalog to agents, over stdin and stdout.

    The protocol is MCP (modelcontextprotocol.io). Each call is a process of its own; it writes
    nothing, connects nowhere, and reads only the folders that are allowed.
    """
    from tuneplan.agents.calls import Limits
    from tuneplan.agents.server import serve

    serve(
        Limits(
            roots=tuple(_folder(name) for name in allowed),
            time_s=parse_seconds(time_limit),
            memory_bytes=parse_bytes(memory_limit),
        )
    )


def _folder(name: str) -> Path:
    path = Path(os.path.realpath(Path(name).expanduser()))
    if not path.is_dir():
        text = message("no_such_folder", "{path} is no folder", path=name)
        raise UnreadableFile(text, path=name)
    return path
