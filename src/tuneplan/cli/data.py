"""``tuneplan data``: what a data set holds, in tokens."""

from __future__ import annotations

import click

from tuneplan.cli.answering import show, today
from tuneplan.cli.commands import SpokenCommand
from tuneplan.cli.options import answer_options
from tuneplan.cli.output import progress_bar


class _DataGroup(SpokenCommand, click.Group):
    """The group, with its help in the user's language."""


@click.group("data", cls=_DataGroup)
def command() -> None:
    """Facts about training data."""


@command.command("profile", cls=SpokenCommand)
@click.argument("files", nargs=-1, required=True)
@click.option("--model", help="The model whose tokenizer counts.")
@click.option("--tokenizer", help="A tokenizer file or folder, or one that is shipped.")
@click.option(
    "--max-length", "max_lengths", multiple=True, type=click.IntRange(min=1), help="To look at."
)
@answer_options
def profile(
    files: tuple[str, ...],
    *,
    model: str | None,
    tokenizer: str | None,
    max_lengths: tuple[int, ...],
    as_json: bool,
) -> None:
    """Tokens, lengths, truncation and packing of FILES; bad rows are counted and located."""
    from tuneplan.planner.answering import data_profile_answer
    from tuneplan.report.data_profile import data_profile_text

    with progress_bar() as progress:
        answer = data_profile_answer(
            files,
            model=model,
            tokenizer=tokenizer,
            max_lengths=max_lengths,
            as_of=today(),
            progress=progress,
        )
    show(answer, data_profile_text, as_json=as_json)
