"""Answers are made in a few threads, each for so long and no longer.

A thread cannot be stopped from outside, but Python can raise in it at its next step
(``PyThreadState_SetAsyncExc``, docs.python.org "Thread State and the Global Interpreter Lock").
"""

from __future__ import annotations

import asyncio
import ctypes
import mimetypes
import os
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Any, TypeVar

from tuneplan.access.guard import reading_only
from tuneplan.access.roots import own_roots
from tuneplan.errors import TuneplanError
from tuneplan.language import message
from tuneplan.web.settings import Settings

if TYPE_CHECKING:
    from starlette.requests import Request

Answer = TypeVar("Answer")
_LOOK_EVERY_S = 0.1


class NoAnswer(TuneplanError):
    """The page is busy, or the work took too long."""


class GivenUp(BaseException):
    """Raised inside work that nobody waits for any more."""


class _Work:
    """One piece of work that can be given up."""

    def __init__(self, function: Callable[[], Any], roots: tuple[Path, ...]) -> None:
        self._function = function
        self._roots = roots
        self._context = copy_context()
        self._lock = Lock()
        self._thread: int | None = None

    def run(self) -> Any:
        with self._lock:
            self._thread = get_ident()
        try:
            return self._context.run(self._guarded)
        finally:
            with self._lock:
                self._thread = None

    def _guarded(self) -> Any:
        with reading_only(self._roots):
            return self._function()

    def give_up(self) -> None:
        with self._lock:
            if self._thread is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(self._thread), ctypes.py_object(GivenUp)
                )


class Workers:
    """The threads of a server."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._roots = readable(settings)
        self._threads: ThreadPoolExecutor | None = None
        self._at_hand = 0

    async def run(self, request: Request, function: Callable[[], Answer]) -> Answer:
        """What ``function`` gives, worked on in a thread with the caller's language.

        Raises:
            NoAnswer: Too many wait, it took too long, or the reader went away.
        """
        if self._at_hand >= self._settings.workers + self._settings.waiting:
            raise NoAnswer(message("page_busy", "too many questions at once: ask again soon"))
        loop, work = asyncio.get_running_loop(), _Work(function, self._roots)
        self._at_hand += 1
        if self._threads is None:
            number = self._settings.workers
            self._threads = ThreadPoolExecutor(number, thread_name_prefix="tuneplan")
        future = self._threads.submit(work.run)
        future.add_done_callback(lambda _done: self._one_less(loop))
        wrapped = asyncio.wrap_future(future)
        wrapped.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            return await self._wait(request, wrapped)
        finally:
            if not wrapped.done() and not future.cancel():
                work.give_up()

    async def _wait(self, request: Request, future: asyncio.Future[Answer]) -> Answer:
        loop = asyncio.get_running_loop()
        end = loop.time() + self._settings.time_limit_s
        while True:
            left = end - loop.time()
            done, _ = await asyncio.wait({future}, timeout=min(max(left, 0.0), _LOOK_EVERY_S))
            if done:
                try:
                    return future.result()
                except (GivenUp, CancelledError):
                    raise _too_long(self._settings.time_limit_s) from None
            if left <= 0 or await request.is_disconnected():
                raise _too_long(self._settings.time_limit_s)

    def _one_less(self, loop: asyncio.AbstractEventLoop) -> None:
        """Count down in the loop's own thread; where it has closed there is nothing to count."""
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._decrement)

    def _decrement(self) -> None:
        self._at_hand -= 1

    def close(self) -> None:
        """Give up what still waits; a server that starts again has new threads."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None


def readable(settings: Settings) -> tuple[Path, ...]:
    """What work may open: the user's folders, Python and ourselves, and what we keep ourselves."""
    from tuneplan.catalog.offers import refreshed_file
    from tuneplan.store.paths import store_path
    from tuneplan.tokens.tokenizers import hub_folder
    from tuneplan.tracing.folder import cache_folder

    store = Path(settings.store) if settings.store else store_path()
    types = map(Path, mimetypes.knownfiles)  # which writers of workbooks read
    kept = (refreshed_file(), cache_folder(), hub_folder(), store, *types)
    return (*settings.roots, *own_roots(), *(Path(os.path.realpath(one)) for one in kept))


def _too_long(limit_s: float) -> NoAnswer:
    return NoAnswer(
        message(
            "answer_took_too_long",
            "no answer within {limit:g} s: ask for less, or use the command line",
            limit=limit_s,
        )
    )
