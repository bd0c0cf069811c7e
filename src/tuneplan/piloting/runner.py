"""The parent of a pilot: starts the child in a group of its own, follows it, ends it in time.

Out of memory is a result: told by the child, or by the signal with which the system ended it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import IO, Any, Final

from tuneplan.devices import Devices, NoDevices
from tuneplan.frozen import dataclass
from tuneplan.piloting.device_watch import DeviceWatch, Watched
from tuneplan.piloting.stability import Steadiness, steadiness
from tuneplan.piloting.wire import PilotRequest, write_request
from tuneplan.spec.measurement import (
    Environment,
    MeasuredPeak,
    MeasuredStep,
    Measurement,
    Origin,
    Status,
)

_POLL_S: Final = 0.1
_LOAD_LIMIT_S: Final = 600.0  # for imports, weights and the first step, beside the time limit
_LAST_LINES: Final = 15
_KILLED: Final = -signal.SIGKILL
_LAUNCHER_KILLED: Final = "exitcode  : -9"  # torchrun's report of a process that the kernel ended
_GRACE_S: Final = 5.0  # for the others to end, once one process has failed

Progress = Callable[[str, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFigures:
    """One process of several: its memory, and its own mean step once the warm-up is over."""

    peak: MeasuredPeak
    step_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotRun:
    """What the child did.

    Attributes:
        steps: Each as long as on the slowest device.
        peak: Of the worst device.
        ranks: Each process, in the order of their ranks; empty where the run did not end.
        watched: What the driver told while it trained.
        steady: None where there were no steps.
        said: The last lines that the libraries printed.
        reason: What the child says of a failure, in the library's own words.
    """

    status: Status
    stage: str | None
    steps: tuple[MeasuredStep, ...]
    steady: Steadiness | None
    peak: MeasuredPeak
    environment: Environment
    device: str | None
    said: str
    reason: str | None
    elapsed_s: float
    ranks: tuple[RankFigures, ...] = ()
    watched: Watched = Watched()


def run_pilot(
    request: PilotRequest,
    *,
    python: str = sys.executable,
    num_processes: int = 1,
    progress: Progress = lambda _stage, _steps: None,
    devices: Devices | None = None,
) -> PilotRun:
    """Train a few steps in a child process and say what was measured.

    Args:
        request: What to train.
        python: The interpreter that does it.
        num_processes: One a device; several are started by ``torchrun``.
        progress: Told the stage and the steps done.
        devices: Asked for power, use and temperature while it trains.
    """
    watch = DeviceWatch(devices or NoDevices())
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="tuneplan-pilot-") as folder:
        asked, events = Path(folder) / "request.json", Path(folder) / "events.jsonl"
        write_request(request, asked)
        events.touch()
        with (Path(folder) / "said.txt").open("w+b") as said:
            process = _started(_command(python, num_processes, asked, events), said)
            log = EventLog()

            def look() -> None:
                progress(log.stage or "load", len(log.steps))
                if log.steps:
                    watch.look()

            try:
                status = _follow(process, events, request, log, look)
            finally:  # also where the user interrupts: the whole group ends
                log.read(events)
                _end(process, log.processes)
            said.seek(0)
            text = said.read().decode("utf-8", errors="replace")
    if status is Status.FAILED and log.end is None and _LAUNCHER_KILLED in text:
        status = Status.OOM
    return run_of(status, log, text, time.perf_counter() - started, watch.seen())


def _started(words: list[str], said: IO[bytes]) -> subprocess.Popen[bytes]:
    """The child; an interrupt that comes while it is being started is raised once it is known."""
    interrupted: list[int] = []
    main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    if main:
        signal.signal(signal.SIGINT, lambda number, _: interrupted.append(number))
    try:
        process = subprocess.Popen(  # noqa: S603 - our own code, in the user's interpreter
            words,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=child_environment(),
        )
    finally:
        if main:
            signal.signal(signal.SIGINT, before)
    if interrupted:
        _end(process, ())
        raise KeyboardInterrupt
    return process


def _command(python: str, num_processes: int, asked: Path, events: Path) -> list[str]:
    worker = ["-m", "tuneplan.piloting.worker", str(asked), str(events)]
    if num_processes == 1:
        return [python, *worker]
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={num_processes}"]
    return [python, *launcher, *worker]


def child_environment() -> dict[str, str]:
    """The environment of a child that runs our own code."""
    source = str(Path(__file__).resolve().parents[2])
    paths = os.environ.get("PYTHONPATH", "")
    return {
        **os.environ,
        "PYTHONPATH": f"{source}{os.pathsep}{paths}" if paths else source,
        "TOKENIZERS_PARALLELISM": "false",
    }


@dataclass(slots=True)
class EventLog:
    """What the child has told so far."""

    steps: list[dict[str, Any]] = field(default_factory=list)
    stage: str | None = None
    end: dict[str, Any] | None = None
    peak: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    ranks: list[dict[str, Any]] = field(default_factory=list)
    processes: list[int] = field(default_factory=list)
    position: int = 0

    def read(self, path: Path) -> None:
        """Take in the lines that are complete."""
        with path.open("rb") as file:
            file.seek(self.position)
            content = file.read()
        whole, newline, _ = content.rpartition(b"\n")
        self.position += len(whole) + len(newline)
        for line in whole.splitlines():
            self.take(json.loads(line))

    def take(self, event: Mapping[str, Any]) -> None:
        """Take in one event."""
        facts = {name: value for name, value in event.items() if name != "event"}
        match event["event"]:
            case "stage":
                self.stage = facts["name"]
            case "step":
                self.steps.append(facts)
            case "peak":
                self.peak = facts
            case "environment":
                self.environment = facts
            case "ranks":
                self.ranks = facts["ranks"]
            case "process":
                self.processes.append(facts["pid"])
            case "oom":
                self.end = dict(event)
            case "failed" | "done":
                # Once one process is out of memory, the others fail for want of it.
                self.end = self.end or dict(event)

    @property
    def broken(self) -> bool:
        """Whether a process has come to a bad end."""
        return self.end is not None and self.end["event"] != "done"


def _follow(
    process: subprocess.Popen[bytes],
    events: Path,
    request: PilotRequest,
    log: EventLog,
    look: Callable[[], None],
) -> Status:
    deadline = time.monotonic() + _LOAD_LIMIT_S + request.time_limit_s
    while True:
        ended = process.poll() is not None
        log.read(events)
        look()
        if ended:
            return _status(process.returncode, log)
        now = time.monotonic()
        if log.broken:
            deadline = min(deadline, now + _GRACE_S)
        if now > deadline:
            return _status(process.returncode, log) if log.broken else Status.TIMEOUT
        time.sleep(_POLL_S)


def _status(returncode: int | None, log: EventLog) -> Status:
    if log.end is not None:
        kinds = {"done": Status.OK, "oom": Status.OOM, "failed": Status.FAILED}
        return kinds[log.end["event"]]
    # The kernel ends what takes too much memory with SIGKILL, without a word.
    return Status.OOM if returncode == _KILLED else Status.FAILED


def _end(process: subprocess.Popen[bytes], workers: Sequence[int]) -> None:
    """The whole group, so that nothing of it stays behind.

    The launcher of several puts each into a session of its own
    (torch 2.13, ``distributed/elastic/multiprocessing/subprocess_handler``): they are ended by
    their own groups, and by the kernel where the launcher is gone (``worker.end_with_parent``).
    """
    for worker in workers:
        if worker != process.pid:
            _signal(worker, signal.SIGKILL)
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not _signal(process.pid, number):
            break
        try:
            process.wait(timeout=5 if number is signal.SIGTERM else None)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def _signal(group: int, number: signal.Signals) -> bool:
    """Whether there was such a group."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def run_of(
    status: Status, log: EventLog, said: str, elapsed_s: float, watched: Watched
) -> PilotRun:
    """The events of a run as one value."""
    steps = tuple(
        MeasuredStep(
            step_s=step["step_s"],
            tokens=step["tokens"],
            padded_tokens=step["padded_tokens"],
            loader_wait_s=step["loader_wait_s"],
            cpu_s=step["cpu_s"],
        )
        for step in log.steps
    )
    found = log.environment
    return PilotRun(
        status=status,
        stage=(log.end or {}).get("stage") or (None if status is Status.OK else log.stage),
        steps=steps,
        steady=(
            steadiness([step.step_s for step in steps], [step.padded_tokens or 0 for step in steps])
            if steps
            else None
        ),
        peak=MeasuredPeak(**log.peak) if log.peak else MeasuredPeak(),
        environment=Environment(
            accelerator=found.get("accelerator"),
            num_accelerators=found.get("num_accelerators"),
            num_nodes=1 if found else None,
            software=found.get("software", {}),
        ),
        device=found.get("device"),
        said="\n".join(said.splitlines()[-_LAST_LINES:]),
        reason=(log.end or {}).get("text"),
        elapsed_s=elapsed_s,
        watched=watched,
        ranks=tuple(
            RankFigures(
                peak=MeasuredPeak(
                    **{name: value for name, value in one.items() if name != "step_s"}
                ),
                step_s=one["step_s"],
            )
            for one in log.ranks
        ),
    )


def measurement_of(run: PilotRun, job: Mapping[str, Any], *, measured_at: str) -> Measurement:
    """The pilot as a fact to keep."""
    steady = run.steady
    steps = run.steps[steady.warm_up_steps :] if steady else ()
    seconds = sum(step.step_s for step in steps)
    count = run.environment.num_accelerators or 1
    padded = sum(step.padded_tokens or 0 for step in steps)
    real = sum(step.tokens or 0 for step in steps)
    watched = run.watched
    return Measurement(
        origin=Origin.PILOT,
        status=run.status,
        job=job,
        environment=replace(run.environment, driver=watched.driver),
        stage=run.stage,
        steps=run.steps,
        warm_up_steps=steady.warm_up_steps if steady else 0,
        step_s=seconds / len(steps) if steps else None,
        relative_error=steady.relative_error if steady and steady.relative_error < 1e9 else None,
        tokens_per_s_per_accelerator=padded / seconds / count if seconds and padded else None,
        real_tokens_per_s_per_accelerator=real / seconds / count if seconds and real else None,
        num_steps=len(run.steps),
        peak=run.peak,
        power_w=watched.power_w,
        utilization_fraction=watched.utilization_fraction,
        temperature_c=watched.temperature_c,
        measured_at=measured_at,
        source=("tuneplan pilot",),
    )
