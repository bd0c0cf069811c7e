"""The process that trains a few steps, as people run them; one a device.

``python -m tuneplan.piloting.worker REQUEST EVENTS``; each event is a line of JSON in EVENTS, which
the parent reads as it grows. Out of memory is an event, with the stage it came in.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any, Final

from tuneplan.piloting.wire import PilotRequest, read_pilot_request

_OUT_OF_MEMORY: Final = (
    *("out of memory", "not enough memory", "can't allocate memory", "cannot allocate memory"),
    *("bad_alloc", "can't start new thread", "failed to map segment"),
)
_SET_DEATH_SIGNAL: Final = 1  # PR_SET_PDEATHSIG, prctl(2)


class Events:
    """A growing file of JSON lines; of progress rank 0 tells, of an end whoever comes to it."""

    def __init__(self, path: Path) -> None:
        self._rank = int(os.environ.get("RANK", "0"))
        self._file = path.open("ab", buffering=0)

    def tell(self, event: str, **facts: Any) -> None:
        """Write one event, if this is rank 0."""
        if self._rank == 0:
            self.tell_always(event, **facts)

    def tell_always(self, event: str, **facts: Any) -> None:
        """Write one event, whichever rank this is: one write, so that lines stay whole."""
        self._file.write((json.dumps({"event": event, **facts}) + "\n").encode())

    def close(self) -> None:
        """No event comes any more."""
        self._file.close()


class Stage:
    """Where the run is; the parent needs it when the process is killed."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self.name = "load"
        self.told: set[str] = set()

    def enter(self, name: str) -> None:
        """A stage begins; each is told once."""
        self.name = name
        if name not in self.told:
            self.told.add(name)
            self._events.tell("stage", name=name)


def main() -> int:
    """Train what the request says.

    The exit status is 0 where the last event tells the end. With several processes a failure is
    one for the launcher too, so that it ends the others, which would wait for this one.
    """
    end_with_parent()
    request = read_pilot_request(Path(sys.argv[1]))
    events = Events(Path(sys.argv[2]))
    events.tell_always("process", pid=os.getpid())
    stage = Stage(events)
    try:
        limit_memory(request)
        from tuneplan.piloting.training import train

        stage.enter("load")
        train(request, events, stage, folder=Path(sys.argv[2]).parent)
    except Exception as error:  # any library may raise anything; the parent makes a sentence of it
        kind = "oom" if is_out_of_memory(error) else "failed"
        events.tell_always(
            kind, stage=stage.name, kind=type(error).__name__, text=str(error)[:2000]
        )
        return 0 if os.environ.get("WORLD_SIZE", "1") == "1" else 1
    events.tell("done")
    return 0


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a library says that there is no memory left, in any of their ways."""
    text = str(error).casefold()
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or any(words in text for words in _OUT_OF_MEMORY)


def end_with_parent() -> None:
    """Nobody is left behind where the launcher is killed (Linux alone has a call for it)."""
    if sys.platform != "linux" or "WORLD_SIZE" not in os.environ:
        return
    ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() == 1:
        sys.exit(1)


def limit_memory(request: PilotRequest) -> None:
    """A limit on what this process may hold: of its data on a CPU, of the card otherwise."""
    limit = request.memory_limit_bytes
    if limit is None:
        return
    import torch
    import transformers  # noqa: F401 - the limit is on the run, not on loading its libraries

    if request.device != "cpu" and torch.cuda.is_available():
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(limit / total, 1.0))
    else:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


if __name__ == "__main__":
    sys.exit(main())
