"""``tuneplan pilot``: a short real run of a job."""

from __future__ import annotations

import click

from tuneplan.cli import completing
from tuneplan.cli.answering import show, today
from tuneplan.cli.commands import SpokenCommand
from tuneplan.cli.options import JobRequest, answer_options, job_options, refuse_blank
from tuneplan.language import say
from tuneplan.units import parse_bytes, parse_seconds


@click.command("pilot", cls=SpokenCommand)
@job_options
@click.option("--steps", type=click.IntRange(2, 10_000), default=40, show_default=True)
@click.option("--all-steps", is_flag=True, help="Go on to --steps where the time is steady too.")
@click.option("--time-limit", default="2 min", show_default=True, help="Of the steps.")
@click.option("--memory-limit", metavar="SIZE", help="What the run may hold: 20 GiB.")
@click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda", "mps"]),
    default="auto",
    show_default=True,
)
@click.option(
    "--weights",
    metavar="FOLDER",
    shell_complete=completing.files,
    help="Load the weights of this folder; random ones are as fast and as large.",
)
@click.option("--random-weights", is_flag=True, help="Nothing is downloaded (the default).")
@click.option(
    "--image",
    "images",
    multiple=True,
    metavar="HEIGHTxWIDTH",
    help="A picture of every row, in pixels as the processor leaves it; several are several.",
)
@click.option(
    "--matrix",
    metavar="FILE",
    help="Run the cases of this file, or of a prepared one: large-gpu. JOB is left out.",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Rows of a matrix, as tuneplan validate reads them; cases that stand there are not run "
    "again.  [default: pilot-NAME.csv]",
)
@click.option("--synthetic", is_flag=True, help="Random tokens, also where the data is at hand.")
@click.option(
    "--store",
    metavar="FILE",
    shell_complete=completing.files,
    help="Where measurements are kept; see tuneplan store.",
)
@click.option("--no-store", is_flag=True, help="Keep nothing.")
@answer_options
def command(
    job: JobRequest,
    *,
    steps: int,
    all_steps: bool,
    time_limit: str,
    memory_limit: str | None,
    device: str,
    weights: str | None,
    random_weights: bool,
    images: tuple[str, ...],
    matrix: str | None,
    output: str | None,
    synthetic: bool,
    store: str | None,
    no_store: bool,
    as_json: bool,
) -> None:
    """Train a few steps of JOB here, for real, and measure them beside the prediction.

    TRL or transformers' Trainer, with PEFT, as the job says: on a sample of its data, or on random
    tokens in rows as long as those of the data, the worst batch among them. Ends when the step time
    is steady, or after --steps. Out of memory is an answer.
    """
    for flag, value in (
        *(("--store", store), ("--weights", weights)),
        *(("--matrix", matrix), ("--output", output)),
    ):
        refuse_blank(flag, value)
    if matrix is not None:
        if job.given:
            raise click.UsageError(say("a matrix names its jobs: leave JOB and its flags out"))
        _run_matrix(matrix, output, store=store, no_store=no_store, as_json=as_json)
        return
    if output is not None:
        raise click.UsageError(say("--output is where a matrix writes its rows: name --matrix"))
    from contextlib import ExitStack
    from datetime import UTC, datetime

    from tuneplan.devices import NoDevices, devices_here
    from tuneplan.planner.estimate import estimate_job
    from tuneplan.planner.pilot import pilot_job
    from tuneplan.planner.pilot_request import PilotChoices, PilotLimits
    from tuneplan.planner.sources import sources_for
    from tuneplan.report.piloted import pilot_answer, pilot_text
    from tuneplan.store.paths import store_path
    from tuneplan.store.store import Store
    from tuneplan.tracing.images import image_size

    if weights is not None and random_weights:
        raise click.UsageError(say("--weights and --random-weights exclude each other"))
    limits = PilotLimits(
        num_steps=steps,
        until_steady=not all_steps,
        time_s=parse_seconds(time_limit),
        memory_bytes=None if memory_limit is None else parse_bytes(memory_limit),
    )
    day = today()
    stated = job.read()
    sources = sources_for(stated, today=day)
    now = estimate_job(stated, sources, replays=True)
    path = None if no_store else (store or str(store_path()))
    with ExitStack() as stack:
        append = stack.enter_context(Store(path)).append if path else None
        done = pilot_job(
            now,
            sources,
            measured_at=datetime.now(tz=UTC).isoformat(timespec="seconds"),
            limits=limits,
            choices=PilotChoices(
                device=device,
                weights=weights,
                images=tuple(map(image_size, images)),
                synthetic=synthetic,
            ),
            append=append,
            devices=NoDevices() if device == "cpu" else devices_here(visible_devices()),
        )
    show(pilot_answer(done, as_of=day.isoformat()), pilot_text, as_json=as_json)


def visible_devices() -> str | None:
    """Numbers of the cards that count, where somebody has chosen some."""
    import os

    return os.environ.get("CUDA_VISIBLE_DEVICES")


def _run_matrix(
    source: str, output: str | None, *, store: str | None, no_store: bool, as_json: bool
) -> None:
    from contextlib import ExitStack
    from functools import partial
    from pathlib import Path

    from tuneplan.contract.pilot_matrix import read_matrix
    from tuneplan.devices import devices_here
    from tuneplan.piloting.probe import probe
    from tuneplan.planner.pilot_matrix import run_matrix
    from tuneplan.planner.pilot_refusing import require_libraries
    from tuneplan.planner.sources import sources_for
    from tuneplan.report.pilot_matrix import matrix_answer, matrix_text
    from tuneplan.store.paths import store_path
    from tuneplan.store.store import Store

    matrix = read_matrix(source)
    require_libraries()
    rows = Path(output or f"pilot-{matrix.name}.csv")
    path = None if no_store else (store or str(store_path()))
    day = today()
    with ExitStack() as stack:
        append = stack.enter_context(Store(path)).append if path else None
        done = list(
            run_matrix(
                matrix,
                partial(sources_for, today=day),
                rows=rows,
                found=probe(),
                devices=devices_here(visible_devices()),
                append=append,
                began=lambda case: click.echo(case.name, err=True),
            )
        )
    answer = matrix_answer(matrix.name, done, rows=str(rows), store=path, as_of=day.isoformat())
    show(answer, matrix_text, as_json=as_json)
