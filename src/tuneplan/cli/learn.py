"""``tuneplan learn``: what the logs of a run measured."""

from __future__ import annotations

import click

from tuneplan.cli import completing
from tuneplan.cli.answering import show, today
from tuneplan.cli.commands import SpokenCommand
from tuneplan.cli.options import answer_options, gpu_keys, refuse_blank


@click.command("learn", cls=SpokenCommand)
@click.argument("logs", nargs=-1, required=True, metavar="LOGS...", shell_complete=completing.files)
@click.option(
    "--job",
    metavar="FILE",
    shell_complete=completing.files,
    help="Job file or configuration of the run that was logged.",
)
@click.option(
    "--gpu",
    metavar="NAME[:COUNT]",
    shell_complete=completing.accelerators,
    help="Accelerator and how many a machine had: H100:8; H100:8x2 is two machines of 8.",
)
@click.option(
    "--store",
    metavar="FILE",
    shell_complete=completing.files,
    help="Where measurements are kept; see tuneplan store.",
)
@click.option("--no-store", is_flag=True, help="Keep nothing.")
@answer_options
def command(
    logs: tuple[str, ...],
    *,
    job: str | None,
    gpu: str | None,
    store: str | None,
    no_store: bool,
    as_json: bool,
) -> None:
    """Step time, speed and memory from LOGS: files, or folders with a run in each.

    trainer_state.json, TensorBoard events, CSV of Weights & Biases and nvidia-smi, memory snapshots
    of PyTorch, and the text logs of transformers, LLaMA-Factory, Axolotl, torchtune, Megatron and
    DeepSpeed are read; nothing in them is executed. With --job the prediction stands beside.
    """
    from contextlib import ExitStack

    from tuneplan.planner.estimate import estimate_job
    from tuneplan.planner.importing import read_configuration
    from tuneplan.planner.learning import learn
    from tuneplan.planner.sources import sources_for
    from tuneplan.report.learned import learn_text
    from tuneplan.report.learned_answer import learn_answer
    from tuneplan.store.paths import store_path
    from tuneplan.store.store import Store

    for flag, value in (("--job", job), ("--gpu", gpu), ("--store", store)):
        refuse_blank(flag, value)
    day = today()
    now = None
    if job is not None:
        overrides = gpu_keys(gpu.strip()) if gpu else {}
        stated = read_configuration(job, overrides=overrides).job
        now = estimate_job(stated, sources_for(stated, today=day), replays=True)
    path = None if no_store else (store or str(store_path()))
    with ExitStack() as stack:
        append = stack.enter_context(Store(path)).append if path else None
        runs = learn(logs, now=now, append=append)
    answer = learn_answer(runs, now=now, store=path, as_of=day.isoformat())
    show(answer, learn_text, as_json=as_json)
