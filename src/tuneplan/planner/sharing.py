"""Work shared between two processes of one machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


def processes_at_hand() -> int:
    """How many processes can share work here: 2 where Linux gives this one two cores."""
    if not sys.platform.startswith("linux"):
        return 1
    return min(2, len(os.sched_getaffinity(0)))


def in_halves(items: Sequence[T], weights: Sequence[float]) -> tuple[list[T], list[T]]:
    """Items in two parts of about equal weight, the heaviest first."""
    parts: tuple[list[T], list[T]] = ([], [])
    loads = [0.0, 0.0]
    for index in sorted(range(len(items)), key=lambda index: -weights[index]):
        lighter = int(loads[1] < loads[0])
        parts[lighter].append(items[index])
        loads[lighter] += weights[index]
    return parts


def both(here: Callable[[], T], there: Callable[[], T]) -> tuple[T, T]:
    """Two results, the second computed meanwhile by a forked process.

    Whatever stops that process, its part is computed here; an error is then raised here too.
    Only for processes with one thread: a fork copies no other.
    """
    import multiprocessing

    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    child = context.Process(target=_send, args=(sending, there), daemon=True)
    child.start()
    sending.close()
    mine = here()
    try:
        theirs = receiving.recv()
    except (EOFError, OSError):
        theirs = there()
    finally:
        receiving.close()
    child.join()
    return mine, theirs


def _send(sending: Any, work: Callable[[], Any]) -> None:
    """Send a result; leave without a word where there is none, the parent will find out."""
    try:
        sending.send(work())
    except (Exception, KeyboardInterrupt):
        os._exit(1)
