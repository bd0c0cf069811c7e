"""``tuneplan completion``: the script that a shell sources."""

from __future__ import annotations

from typing import Final

import click

from tuneplan.cli.commands import SpokenCommand
from tuneplan.cli.options import answer_options
from tuneplan.cli.output import print_json, print_text

# A key of the job file goes on after its "=": no blank is to follow it. Fish knows that by itself.
_BASH: Final = "COMPREPLY+=($value)"
_ZSH: Final = "compadd -U -V unsorted -a completions"
_ZSH_BARE: Final = "compadd -U -S '' -V unsorted -a completions"
_NO_BLANK: Final = {
    "bash": (_BASH, f"{_BASH}; [[ $value == *= ]] && compopt -o nospace"),
    "zsh": (_ZSH, f"if [[ $completions[1] == *= ]]; then {_ZSH_BARE}; else {_ZSH}; fi"),
}


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
    if shell in _NO_BLANK:
        text = text.replace(*_NO_BLANK[shell])
    if as_json:
        print_json({"shell": shell, "script": text})
    else:
        print_text(text)
