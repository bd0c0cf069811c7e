"""``tuneplan data``: what a data set holds, in tokens."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tuneplan.cli import completing
from tuneplan.cli.answering import today
from tuneplan.cli.commands import SpokenCommand
from tuneplan.cli.options import (
    JobRequest,
    answer_options,
    engine_options,
    gpu_keys,
    language_option,
    refuse_blank,
)
from tuneplan.cli.output import page, print_json, print_text, progress_bar, writing
from tuneplan.errors import InputError, InvalidQuantity
from tuneplan.language import message, say
from tuneplan.units import parse_bytes

if TYPE_CHECKING:
    from tuneplan.planner.price_lengths import LengthPrice
    from tuneplan.spec.stated import StatedJob
    from tuneplan.tokens.profile import DataProfile

_SMALLEST_SAMPLE: Final = 1024**2
_SMALLEST_SHARD: Final = 64 * 1024
_LARGEST_SHARD: Final = 1024**3


class _DataGroup(SpokenCommand, click.Group):
    """The group, with its help in the user's language."""


@click.group("data", cls=_DataGroup)
@language_option
def command() -> None:
    """Facts about training data."""


@command.command("profile", cls=SpokenCommand)
@click.argument("files", nargs=-1, shell_complete=completing.files)
@click.option("--model", shell_complete=completing.models, help="The model whose tokenizer counts.")
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
    "--image",
    metavar="HEIGHTxWIDTH",
    help="Size of pictures whose file is not at hand, in pixels.",
)
@click.option(
    "--skip-bad-rows",
    is_flag=True,
    help="Leave bad rows out, counted and listed; without it they are an error.",
)
@click.option(
    "--job",
    "job_file",
    metavar="JOB",
    help="A job on this data: what each length costs in hours and money.",
)
@click.option(
    "--accelerator",
    "--gpu",
    "accelerator",
    metavar="NAME[:COUNT]",
    shell_complete=completing.accelerators,
    help="The job's accelerator, where no file says it.",
)
@click.option(
    "--method", shell_complete=completing.methods, help="The job's method, where no file says it."
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=completing.settings,
    help="Any key of the job.",
)
@click.option(
    "--save",
    metavar="FILE",
    shell_complete=completing.files,
    help="Keep the profile in FILE, for data.profile of a job.",
)
@click.option("--exact", is_flag=True, help="Read every row; else a part of files beyond 4 GiB.")
@click.option(
    "--sample",
    metavar="SIZE",
    help="Read about so much, e.g. 64MiB, and answer for all of it with an interval.",
)
@engine_options
@answer_options
def profile(
    files: tuple[str, ...],
    *,
    model: str | None,
    tokenizer: str | None,
    max_lengths: tuple[int, ...],
    batch_size: int | None,
    image: str | None,
    skip_bad_rows: bool,
    job_file: str | None,
    accelerator: str | None,
    method: str | None,
    settings: tuple[str, ...],
    save: str | None,
    exact: bool,
    sample: str | None,
    workers: int | None,
    ray_address: str | None,
    as_json: bool,
) -> None:
    """Tokens, lengths, truncation and packing of FILES; bad rows are counted and located.

    With a job (--job, or its flags) also what each length costs; FILES may be left out then.
    """
    from tuneplan.planner.profile_data import profile_data
    from tuneplan.report.profile import render_profile
    from tuneplan.report.profile_answer import profile_answer

    for flag, value in (("--model", model), ("--tokenizer", tokenizer), ("--job", job_file)):
        refuse_blank(flag, value)
    flags = {"model": model, "method": method, "hardware.accelerator": accelerator}
    flags |= gpu_keys(accelerator.strip()) if accelerator else {}
    job = _job(job_file, flags, settings, files)
    with progress_bar() as progress:
        found = profile_data(
            files or _files_of(job),
            model=model or _model_of(job, tokenizer),
            tokenizer=tokenizer,
            max_length=max_lengths,
            per_device_train_batch_size=batch_size or _batch_of(job),
            image=_size(image),
            skip_bad_rows=skip_bad_rows,
            workers=workers,
            ray_address=ray_address,
            exact=exact,
            sample_bytes=_sample_bytes(sample, exact=exact),
            progress=progress,
        )
    prices = _prices(job, found)
    if save is not None:
        from tuneplan.tokens.saving import save_profile

        with writing(save):
            save_profile(found, save)
    if as_json:
        answer = profile_answer(found, as_of=today().isoformat(), prices=prices)
        print_json(answer.model_dump(mode="json"))
    else:
        shown = page()
        print_text(render_profile(found, prices, width=shown.width, colors=shown.colors))


def _job(
    source: str | None,
    flags: Mapping[str, str | None],
    settings: tuple[str, ...],
    files: tuple[str, ...],
) -> StatedJob | None:
    """The job that is priced; None where only data is asked for."""
    if not (source or settings or flags["hardware.accelerator"] or flags["method"]):
        if not files:
            raise click.UsageError(say("Name at least one data file, or a job: --job JOB."))
        return None
    overrides: dict[str, object] = {key: value for key, value in flags.items() if value}
    if files:
        overrides["data.path"] = list(files)
    return JobRequest(source=source, overrides=overrides, settings=settings).read()


def _files_of(job: StatedJob | None) -> tuple[str, ...]:
    """The files that the job names."""
    from tuneplan.errors import InvalidRequest, Mistake

    if job is None or not job.data.path:
        text = message("job_without_files", "the job names no data files: give FILES, or data.path")
        raise InvalidRequest([Mistake(message=text, path="data.path")])
    return tuple(str(Path(job.base_path) / name) for name in job.data.path)


def _model_of(job: StatedJob | None, tokenizer: str | None) -> str | None:
    return None if job is None or tokenizer else job.model


def _batch_of(job: StatedJob | None) -> int | None:
    size = job.recipe.training.per_device_train_batch_size if job else None
    return size if isinstance(size, int) else None


def _size(image: str | None) -> tuple[int, int] | None:
    from tuneplan.tracing.images import image_size

    if image is None:
        return None
    found = image_size(image)
    return found.height, found.width


def _prices(job: StatedJob | None, found: DataProfile) -> tuple[LengthPrice, ...]:
    if job is None:
        return ()
    from tuneplan.planner.price_lengths import price_lengths
    from tuneplan.planner.sources import sources_for

    lengths = [one.max_length for one in found.at_max_length]
    lengths += [found.recommended.max_length]
    lengths += [one.max_length for one in found.recommended.alternatives]
    return price_lengths(job, found, lengths, sources_for(job, today=today()))


@command.command("tokenize", cls=SpokenCommand)
@click.argument("files", nargs=-1, required=True, shell_complete=completing.files)
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FOLDER",
    shell_complete=completing.files,
    help="The folder to make.",
)
@click.option(
    "--model", shell_complete=completing.models, help="The model whose tokenizer is taken."
)
@click.option("--tokenizer", help="A tokenizer file or folder, or a model's name.")
@click.option(
    "--max-length",
    type=click.IntRange(min=1, max=100_000_000),
    help="Tokens of a row at most; needed to pack.",
)
@click.option(
    "--pack",
    type=click.Choice(["none", "bfd", "in_order", "wrapped"]),
    default="none",
    show_default=True,
    help="Samples in one row: best fit decreasing, in order, or joined and cut.",
)
@click.option(
    "--too-long",
    type=click.Choice(["cut", "drop"]),
    default="cut",
    show_default=True,
    help="What becomes of samples beyond --max-length.",
)
@click.option(
    "--learn",
    type=click.Choice(["answers", "all"]),
    default="answers",
    show_default=True,
    help="Which tokens have a label; the others have -100.",
)
@click.option(
    "--format",
    "shard_format",
    type=click.Choice(["arrow", "parquet"]),
    default="arrow",
    show_default=True,
    help="Arrow for load_from_disk, Parquet for load_dataset.",
)
@click.option(
    "--shard-size",
    metavar="SIZE",
    help="Data that goes into a shard, e.g. 64MiB; 32MiB where it is not given.",
)
@click.option(
    "--skip-bad-rows",
    is_flag=True,
    help="Leave bad rows out, counted and listed; without it they are an error.",
)
@engine_options
@answer_options
def tokenize(
    files: tuple[str, ...],
    *,
    output: str,
    model: str | None,
    tokenizer: str | None,
    max_length: int | None,
    pack: str,
    too_long: str,
    learn: str,
    shard_format: str,
    shard_size: str | None,
    skip_bad_rows: bool,
    workers: int | None,
    ray_address: str | None,
    as_json: bool,
) -> None:
    """Write FILES as shards of tokens that datasets loads and a trainer takes.

    A run that was stopped or killed goes on when the same command is given again, and its shards
    have the same bytes as those of a run that was not. FOLDER is there when all of them are.
    """
    from tuneplan.contract.answers import header
    from tuneplan.contract.tokenised import DataTokenizeAnswer
    from tuneplan.planner.tokenise_data import tokenise_answer, tokenise_data
    from tuneplan.report.shards import render_shards

    refuse_blank("--model", model)
    refuse_blank("--tokenizer", tokenizer)
    refuse_blank("--output", output)
    with progress_bar() as progress, writing(output):
        made = tokenise_data(
            files,
            output,
            model=model,
            tokenizer=tokenizer,
            max_length=max_length,
            packing=pack,
            too_long=too_long,
            learned=learn,
            shard_format=shard_format,
            shard_bytes=_shard_bytes(shard_size),
            skip_bad_rows=skip_bad_rows,
            workers=workers,
            ray_address=ray_address,
            progress=progress,
        )
    head = header("data tokenize", as_of=today().isoformat())
    answer = DataTokenizeAnswer(**head, **tokenise_answer(made))
    if as_json:
        print_json(answer.model_dump(mode="json"))
    else:
        print_text(render_shards(answer, page()))


def _sample_bytes(text: str | None, *, exact: bool) -> int | None:
    """How much to read.

    Raises:
        InputError: It is no size, or everything is to be read.
    """
    if text is None:
        return None
    if exact:
        raise InputError(
            message("exact_or_sample", "--exact reads every row, --sample a part: give one of them")
        )
    found = parse_bytes(text)
    if found < _SMALLEST_SAMPLE:
        raise InvalidQuantity(
            message("sample_too_small", "--sample {size}: at least 1 MiB is read", size=text)
        )
    return found


def _shard_bytes(text: str | None) -> int | None:
    """The size of a shard.

    Raises:
        InvalidQuantity: It is no size, or not between 64 KiB and 1 GiB.
    """
    if text is None:
        return None
    found = parse_bytes(text)
    if not _SMALLEST_SHARD <= found <= _LARGEST_SHARD:
        raise InvalidQuantity(
            message(
                "shard_size_range",
                "--shard-size {size}: a shard takes 64 KiB to 1 GiB of data",
                size=text,
            )
        )
    return found
