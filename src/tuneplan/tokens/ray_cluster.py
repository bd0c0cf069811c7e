"""The same units of work on a Ray cluster, by Ray Data.

Every unit is a row of a Ray data set, and a pool of actors, each with the tokenizer, maps over it.
A unit whose worker is killed is done again by another (Ray restarts actors and repeats their
tasks), and results come in the order of the units, so that the answer is that of one machine.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tuneplan.errors import InputError, MissingExtra
from tuneplan.language import message
from tuneplan.units import GIB

if TYPE_CHECKING:
    from collections.abc import Iterator

Unit = TypeVar("Unit")
Result = TypeVar("Result")

LOCAL: Final = "local"
# What is handed to the cluster at a time: units, and their bytes.
_WAVE_UNITS: Final = 100_000
_WAVE_BYTES: Final = 1 * GIB
# Units are handed on in at most so many blocks.
_BLOCKS: Final = 2_000


class RayCluster:
    """Over the cores of a Ray cluster.

    Function, units and results are pickled. Files must be readable, and a folder that is written
    must be shared, under the same name on every node.
    """

    reads_files = True

    def __init__(self, address: str = LOCAL, *, actors: int | None = None) -> None:
        self.address = address
        self.actors = actors

    def run(
        self, function: Callable[[Unit], Result], units: Iterable[Unit]
    ) -> Generator[Result, None, None]:
        """What the function gives for each unit, in order.

        Raises:
            MissingExtra: Ray is not installed.
            InputError: There is no cluster at the address.
        """
        with _connected(self.address) as ray:
            actors = self.actors or max(1, int(ray.cluster_resources().get("CPU", 1)))
            pickled = pickle.dumps(function)
            for wave in _waves(units):
                yield from _mapped(pickled, wave, min(actors, len(wave)))


def _waves(units: Iterable[Any]) -> Iterator[list[bytes]]:
    wave: list[bytes] = []
    size = 0
    for unit in units:
        wave.append(pickle.dumps(unit))
        size += len(wave[-1])
        if len(wave) >= _WAVE_UNITS or size >= _WAVE_BYTES:
            yield wave
            wave, size = [], 0
    if wave:
        yield wave


def _mapped(pickled: bytes, units: list[bytes], actors: int) -> Iterator[Any]:
    data = import_module("ray.data")
    rows = [{"number": number, "unit": unit} for number, unit in enumerate(units)]
    found = data.from_items(rows, override_num_blocks=min(len(rows), _BLOCKS)).map(
        _Actor, fn_constructor_args=(pickled,), concurrency=actors, num_cpus=1
    )
    # Blocks may come in any order; what waits for an earlier one is no more than the wave.
    early: dict[int, bytes] = {}
    following = 0
    for row in found.iter_rows():
        early[row["number"]] = row["result"]
        while following in early:
            is_answer, value = pickle.loads(early.pop(following))  # noqa: S301 - our own actors
            if not is_answer:
                raise value
            yield value
            following += 1


class _Actor:
    """What maps over units on a node: opens the function once."""

    def __init__(self, pickled: bytes) -> None:
        from tuneplan.tokens.encoders import use_threads

        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        use_threads(1)
        self._function = pickle.loads(pickled)  # noqa: S301 - from our own driver

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        from tuneplan.tokens.workers import sendable

        unit = pickle.loads(row["unit"])  # noqa: S301 - from our own driver
        try:
            answer = (True, self._function(unit))
        except Exception as error:
            answer = (False, sendable(error))
        return {"number": row["number"], "result": pickle.dumps(answer)}


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    """Ray, connected to a cluster or to one that is started here and ended afterwards."""
    try:
        ray = import_module("ray")
        import_module("ray.data")
    except ImportError:
        purpose = str(message("using_ray", "work on a Ray cluster (--ray)"))
        raise MissingExtra(extra="ray", purpose=purpose) from None
    started = not ray.is_initialized()
    # A cluster that is started here tells nobody of it.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if started:
        try:
            ray.init(
                address=None if address == LOCAL else address,
                log_to_driver=False,
                logging_level="ERROR",
                include_dashboard=False if address == LOCAL else None,
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise InputError(
                message(
                    "no_ray_cluster",
                    "no Ray cluster at {address} ({reason}); give its address as HOST:PORT, or "
                    "local for one on this machine",
                    address=address,
                    reason=str(error).split("\n", 1)[0],
                )
            ) from None
    context = ray.data.DataContext.get_current()
    shown, context.enable_progress_bars = context.enable_progress_bars, False
    try:
        # What Ray prints of workers that died must not stand in an answer.
        with redirect_stdout(sys.stderr):
            yield ray
    finally:
        context.enable_progress_bars = shown
        if started:
            ray.shutdown()
