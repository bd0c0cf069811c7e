"""Work is bounded: so much at once, so long and no longer."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tuneplan.language import current_language, speaking
from tuneplan.web.settings import Settings
from tuneplan.web.working import NoAnswer, Workers


class Reader:
    """One who waits for the answer, or has gone."""

    def __init__(self, *, gone: bool = False) -> None:
        self.gone = gone

    async def is_disconnected(self) -> bool:
        return self.gone


def _endless(ended: threading.Event) -> None:
    try:
        while True:
            sum(range(100))
    finally:
        ended.set()


def test_work_that_takes_too_long_is_ended_and_the_thread_is_free_again() -> None:
    async def ask() -> int:
        workers, ended = Workers(Settings(time_limit_s=0.2, workers=1)), threading.Event()
        with pytest.raises(NoAnswer, match=r"no answer within 0\.2 s"):
            await workers.run(Reader(), lambda: _endless(ended))
        assert await asyncio.to_thread(ended.wait, 10)
        try:
            return await Workers.run(workers, Reader(), lambda: 5)
        finally:
            workers.close()

    assert asyncio.run(ask()) == 5


def test_work_that_nobody_waits_for_is_ended() -> None:
    async def ask() -> None:
        workers, ended = Workers(Settings(workers=1)), threading.Event()
        with pytest.raises(NoAnswer):
            await workers.run(Reader(gone=True), lambda: _endless(ended))
        assert await asyncio.to_thread(ended.wait, 10)
        workers.close()

    asyncio.run(ask())


def test_more_than_can_wait_are_sent_away() -> None:
    async def ask() -> None:
        workers, go = Workers(Settings(workers=1, waiting=1)), threading.Event()
        first = [asyncio.create_task(workers.run(Reader(), go.wait)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(NoAnswer, match="too many questions"):
            await workers.run(Reader(), go.wait)
        go.set()
        assert await asyncio.gather(*first) == [True, True]
        assert await workers.run(Reader(), lambda: 1) == 1
        workers.close()

    asyncio.run(ask())


def test_an_error_of_the_work_is_that_of_the_answer() -> None:
    async def ask() -> None:
        workers = Workers(Settings())
        with pytest.raises(ZeroDivisionError):
            await workers.run(Reader(), lambda: 1 // 0)
        workers.close()

    asyncio.run(ask())


def test_the_work_speaks_the_language_of_the_one_who_asks() -> None:
    async def ask() -> str:
        workers = Workers(Settings())
        try:
            with speaking("zh-TW"):
                return await workers.run(Reader(), current_language)
        finally:
            workers.close()

    assert asyncio.run(ask()) == "zh-TW"
