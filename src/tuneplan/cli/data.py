"""``tuneplan data``: what a data set holds, in tokens."""

from __future__ import annotations

import click

from tuneplan.cli.answering import today
from tuneplan.cli.commands import SpokenCommand
from tuneplan.cli.options import answer_options, refuse_blank
from tuneplan.cli.output import page, print_json, print_text, progress_bar, writing


class _DataGroup(SpokenCommand, click.Group):
    """The group, with its help in the user's language."""


@click.group("data", cls=_DataGroup)
def command() -> None:
    """Facts about training data."""


@command.command("profile", cls=SpokenCommand)
@click.argument("files", nargs=-1, required=True)
@click.option("--model", help="The model whose tokenizer counts.")
@click.option(
    "--tokenizer",
    help="A tokenizer file or folder, a model's name, or approximate (characters per token).",
)
@click.option(
    "--max-length",
    "max_lengths",
    multiple=True,
    type=click.IntRange(min=1, max=100_000_000),
    help="To look at.",
)
@click.option(
    "--batch-size",
    type=click.IntRange(min=1, max=1_000_000),
    help="Samples of a batch, for the padding figures.",
)
@click.option(
    "--skip-bad-rows",
    is_flag=True,
    help="Leave bad rows out, counted and listed; without it they are an error.",
)
@click.option("--save", metavar="FILE", help="Keep the profile in FILE, for data.profile of a job.")
@answer_options
def profile(
    files: tuple[str, ...],
    *,
    model: str | None,
    tokenizer: str | None,
    max_lengths: tuple[int, ...],
    batch_size: int | None,
    skip_bad_rows: bool,
    save: str | None,
    as_json: bool,
) -> None:
    """Tokens, lengths, truncation and packing of FILES; bad rows are counted and located."""
    from tuneplan.contract.answers import header
    from tuneplan.contract.measured import DataProfileAnswer
    from tuneplan.planner.profile_data import profile_answer, profile_data
    from tuneplan.report.profile import render_profile

    refuse_blank("--model", model)
    refuse_blank("--tokenizer", tokenizer)
    with progress_bar() as progress:
        found = profile_data(
            files,
            model=model,
            tokenizer=tokenizer,
            max_length=max_lengths,
            per_device_train_batch_size=batch_size,
            skip_bad_rows=skip_bad_rows,
            progress=progress,
        )
    if save is not None:
        from tuneplan.tokens.saving import save_profile

        with writing(save):
            save_profile(found, save)
    if as_json:
        head = header("data profile", as_of=today().isoformat())
        print_json(DataProfileAnswer(**head, **profile_answer(found)).model_dump(mode="json"))
    else:
        shown = page()
        print_text(render_profile(found, width=shown.width, colors=shown.colors))
