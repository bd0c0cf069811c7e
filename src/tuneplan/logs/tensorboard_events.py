"""TensorBoard event files: scalars with the time at which each was written.

Read by TensorBoard's own loader (extra ``logs``). Both forms of a scalar are understood: the plain
value, and the tensor that newer writers keep. Source: tensorboard
``backend/event_processing/event_file_loader.py``, ``compat/proto/summary.proto``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tuneplan.errors import MissingExtra
from tuneplan.language import message, say
from tuneplan.logs.metrics import metrics_of
from tuneplan.logs.refusing import unreadable
from tuneplan.spec.run_log import LogPoint, RunLog

NAME: Final = "tensorboard"


def is_event_file(path: Path) -> bool:
    """By its name: the format has no mark of its own."""
    return "tfevents" in path.name


def read_event_file(path: Path) -> RunLog:
    """The scalars of an event file, one point a step.

    Raises:
        MissingExtra: TensorBoard is not installed.
        UnreadableFile: The file holds no records, or is broken before its first scalar.
    """
    steps: dict[int, tuple[float, dict[str, float]]] = {}
    for tag, step, at_s, value in _scalars(path):
        started, figures = steps.setdefault(step, (at_s, {}))
        figures[tag] = value
        steps[step] = (min(started, at_s), figures)
    if not steps:
        raise unreadable(path, message("log_without_scalars", "it holds no scalars"))
    points = (
        LogPoint(step=step, at_s=at_s, values=values)
        for step, (at_s, figures) in sorted(steps.items())
        if (values := metrics_of(figures))
    )
    return RunLog(format=NAME, path=str(path), points=tuple(points), absolute_time=True)


def _scalars(path: Path) -> Iterator[tuple[str, int, float, float]]:
    """Tag, step, seconds since 1970, value. A file that is still written ends in half a record."""
    try:
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    except ImportError:
        raise MissingExtra(extra="logs", purpose=say("reading TensorBoard events")) from None
    try:
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                number = _number(value)
                if number is not None:
                    yield value.tag, int(event.step), float(event.wall_time), number
    except Exception as error:  # the loader raises errors of its own of many kinds
        raise unreadable(path, str(error) or type(error).__name__) from None


def _number(value: Any) -> float | None:
    kind = value.WhichOneof("value")
    if kind == "simple_value":
        return float(value.simple_value)
    if kind == "tensor" and not value.tensor.tensor_shape.dim:
        for held in (value.tensor.float_val, value.tensor.double_val):
            if held:
                return float(held[0])
    return None
