"""``tuneplan watch``: a live run against its plan."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuneplan.cli import completing
from tuneplan.cli.answering import today
from tuneplan.cli.commands import SpokenCommand
from tuneplan.cli.options import answer_options, gpu_keys, refuse_blank
from tuneplan.cli.output import page, print_text
from tuneplan.language import message, say

if TYPE_CHECKING:
    from tuneplan.contract.watched import WatchAnswer
    from tuneplan.planner.estimate import JobEstimate
    from tuneplan.watching.watcher import Look


@click.command("watch", cls=SpokenCommand)
@click.argument("run", metavar="RUN", shell_complete=completing.files)
@click.option(
    "--job",
    metavar="FILE",
    shell_complete=completing.files,
    help="Job file or configuration of the run: its plan.",
)
@click.option(
    "--gpu",
    metavar="NAME[:COUNT]",
    shell_complete=completing.accelerators,
    help="Accelerator and how many a machine has.",
)
@click.option("--pid", type=click.IntRange(min=1), help="The process that trains.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1, max=3600),
    default=10.0,
    show_default=True,
    help="Seconds between two looks.",
)
@click.option(
    "--alert-command",
    metavar="COMMAND",
    help="Run for each new alert, with TUNEPLAN_ALERT_CODE, _MESSAGE and _RUN set.",
)
@click.option("--once", is_flag=True, help="Look once and leave.")
@answer_options
def command(
    run: str,
    *,
    job: str | None,
    gpu: str | None,
    pid: int | None,
    interval: float,
    alert_command: str | None,
    once: bool,
    as_json: bool,
) -> None:
    """Follow RUN, the folder or the log of a live run: progress, arrival, cost, alerts.

    With --job the speed is held against the plan and the cost of the whole run is told. Ends when
    the run does, or with Ctrl-C. With --json each look is a line.
    """
    from tuneplan.devices import devices_here
    from tuneplan.planner.watch import expected_of, watched_run
    from tuneplan.report.watched import watch_answer
    from tuneplan.watching.following import Following
    from tuneplan.watching.watcher import Watcher

    for flag, value in (("--job", job), ("--gpu", gpu), ("--alert-command", alert_command)):
        refuse_blank(flag, value)
    words = _words(alert_command)
    path = watched_run(run)
    expected = expected_of(_planned(job, gpu))
    following, devices = Following(path), devices_here()
    watcher = Watcher(expected, began_s=time.time())
    with _shown(run, as_json=as_json) as show:
        while True:
            alive = _alive(pid)  # before the log is read, which its last words may still reach
            look = watcher.look(
                following.news(),
                now_s=time.time(),
                devices=devices.sample(),
                free_bytes=_free_bytes(str(path)),
                alive=alive,
                missing=not following.exists,
            )
            show(watch_answer(look, currency=expected.currency))
            _act(words, look, run)
            if once or look.finished:
                break
            time.sleep(interval)


def _planned(job: str | None, gpu: str | None) -> JobEstimate | None:
    if job is None:
        return None
    from tuneplan.planner.estimate import estimate_job
    from tuneplan.planner.importing import read_configuration
    from tuneplan.planner.sources import sources_for

    stated = read_configuration(job, overrides=gpu_keys(gpu.strip()) if gpu else {}).job
    return estimate_job(stated, sources_for(stated, today=today()))


def _words(alert_command: str | None) -> list[str] | None:
    """The command's words; it is run without a shell."""
    if alert_command is None:
        return None
    try:
        words = shlex.split(alert_command)
    except ValueError as error:
        text = message(
            "alert_command_unreadable",
            "--alert-command cannot be read: {why}",
            why=str(error),
        )
        raise click.BadParameter(str(text)) from None
    return words


def _act(words: list[str] | None, look: Look, run: str) -> None:
    """Run the command for each new alert; a failure of it does not end the watch."""
    import subprocess

    for alert in look.new_alerts if words else ():
        variables = {
            **os.environ,
            "TUNEPLAN_ALERT_CODE": alert.code,
            "TUNEPLAN_ALERT_MESSAGE": str(alert.message),
            "TUNEPLAN_ALERT_RUN": run,
        }
        try:
            subprocess.Popen(  # noqa: S603 - the user's own command
                words or [], env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
            )
        except OSError as error:
            told = say("the alert command cannot be run: {why}", why=error.strerror or str(error))
            click.echo(told, err=True)


def _free_bytes(path: str) -> int | None:
    with suppress(OSError):
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize
    return None


def _alive(pid: int | None) -> bool | None:
    """Whether the process is there; a zombie is not."""
    if pid is None:
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    with suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].strip()
        return not state.startswith(b"Z")
    return True


@contextmanager
def _shown(run: str, *, as_json: bool) -> Iterator[Callable[[WatchAnswer], None]]:
    """How looks are shown: lines of JSON, a live view on a terminal, else a report each."""
    from tuneplan.report.watched import watch_blocks, watch_text

    if as_json:
        yield lambda answer: click.echo(answer.model_dump_json())
        return
    if not sys.stdout.isatty():
        yield lambda answer: print_text(watch_text(answer, page(), name=run) + "\n")
        return
    from rich.console import Console, Group
    from rich.live import Live

    with Live(console=Console(), auto_refresh=False, transient=False) as live:
        yield lambda answer: live.update(Group(*watch_blocks(answer, name=run)), refresh=True)
