"""``tuneplan completion``: the script that a shell sources."""

from __future__ import annotations

import click

from tuneplan.cli.commands import SpokenCommand
from tuneplan.cli.options import answer_options
from tuneplan.cli.output import print_json, print_text


@click.command("completion", cls=SpokenCommand)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@answer_options
def command(shell: str, *, as_json: bool) -> None:
    """The script that completes commands and options in SHELL.

    \b
    bash:  tuneplan completion bash >> ~/.bashrc
    zsh:   tuneplan completion zsh >> ~/.zshrc
    fish:  tuneplan completion fish > ~/.config/fish/completions/tuneplan.fish
    """  # noqa: D301 - click keeps the lines of a paragraph that starts with this character
    from click.shell_completion import get_completion_class

    from tuneplan.cli.main import cli

    kind = get_completion_class(shell)
    if kind is None:
        msg = f"click has no completion for {shell}"
        raise LookupError(msg)
    script = kind(cli, {}, "tuneplan", "_TUNEPLAN_COMPLETE")
    text = script.source_template % script.source_vars()
    if as_json:
        print_json({"shell": shell, "script": text})
    else:
        print_text(text)
