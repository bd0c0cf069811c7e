"""``tuneplan trace``: the memory of one configuration, from the real model code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tuneplan.cli import completing
from tuneplan.cli.answering import (
    NOTHING_FITS,
    all_option,
    anything_fits,
    require_fit_option,
    show,
    today,
)
from tuneplan.cli.commands import SpokenCommand
from tuneplan.cli.options import JobRequest, answer_options, job_options, refuse_blank
from tuneplan.cli.output import writing
from tuneplan.language import say

if TYPE_CHECKING:
    from tuneplan.planner.trace import JobTrace


@click.command("trace", cls=SpokenCommand)
@job_options
@click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="SIZE",
    help='Whether it fits in a card of this size, such as "24 GiB"; several are several answers.',
)
@click.option(
    "--snapshot",
    metavar="FILE",
    shell_complete=completing.files,
    help="Write a memory snapshot that pytorch.org/memory_viz opens.",
)
@click.option(
    "--python",
    metavar="PATH",
    help="A Python, or the folder of its environment, whose libraries are traced.",
)
@click.option(
    "--image",
    "images",
    multiple=True,
    metavar="HEIGHTxWIDTH",
    help="An image of every sample, in pixels as the processor leaves it; several are several.",
)
@click.option(
    "--peft",
    metavar="FILE",
    shell_complete=completing.files,
    help="An adapter_config.json of PEFT, whose method is traced in place of the job's adapter.",
)
@click.option("--no-cache", is_flag=True, help="Trace again, and keep nothing.")
@require_fit_option
@all_option
@answer_options
@click.pass_context
def command(ctx: click.Context, /, job: JobRequest, **options: Any) -> None:
    """Memory of one configuration from the real model code, with nothing allocated.

    Two training steps of the code that transformers and PEFT run, on this machine's CPU and
    without weights: the life of every tensor is recorded and played through a model of PyTorch's
    allocator. JOB is as for `tuneplan estimate`. Needs pip install 'tuneplan[trace]'.
    """
    from tuneplan.planner.sources import sources_for
    from tuneplan.planner.trace import trace_job
    from tuneplan.report.trace import trace_text
    from tuneplan.report.trace_answer import trace_answer
    from tuneplan.tracing.images import image_size

    for flag in ("python", "snapshot", "peft"):
        refuse_blank(f"--{flag}", options[flag])
    limits = tuple(_size(text) for text in options["limits"])
    images = tuple(map(image_size, options["images"]))
    stated, day = job.read(), today()
    with _progress() as progress:
        trace = trace_job(
            stated,
            sources_for(stated, today=day),
            python=options["python"],
            limits_bytes=limits,
            images=images,
            peft=options["peft"],
            use_cache=not options["no_cache"],
            progress=progress,
        )
    if options["snapshot"]:
        _write_snapshot(options["snapshot"], trace)
    answer = trace_answer(trace, as_of=day.isoformat())
    show(answer, partial(trace_text, full=options["full"]), as_json=options["as_json"])
    if options["require_fit"] and not all(map(anything_fits, (answer.fit, *answer.fit_in))):
        ctx.exit(NOTHING_FITS)


def _size(text: str) -> int:
    from tuneplan.errors import InvalidQuantity
    from tuneplan.units import parse_bytes

    try:
        return round(parse_bytes(text))
    except InvalidQuantity as error:
        raise click.BadParameter(say("--limit: {problem}", problem=str(error))) from None


def _write_snapshot(name: str, trace: JobTrace) -> None:
    from tuneplan.tracing.snapshot import write_snapshot

    with writing(name):
        write_snapshot(name, trace.memory.played)


@contextmanager
def _progress() -> Iterator[Callable[[str, float], None]]:
    """A bar on stderr; where that is no terminal, nothing."""
    if not sys.stderr.isatty():
        yield lambda _phase, _share: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(say("tracing"), total=1.0)

        def told(phase: str, share: float) -> None:
            bar.update(task, completed=share, description=_spoken(phase))

        yield told


def _spoken(phase: str) -> str:
    """What the child is at, in words."""
    from tuneplan.report.labels import phase_label

    name, _, step = phase.partition(" ")
    words = {
        "import": say("importing PyTorch and transformers"),
        "build": say("building the model"),
        "done": say("replaying the allocator"),
    }
    text = words.get(name) or phase_label(name)
    return f"{text} {int(step) + 1}" if step.isdigit() else text
