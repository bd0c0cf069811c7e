"""TensorBoard event files: scalars with the time at which each was written.

Read by TensorBoard's own loader (extra ``logs``). Both forms of a scalar are understood: the plain
value, and the tensor that newer writers keep. Source: tensorboard
``backend/event_processing/event_file_loader.py``, ``compat/proto/summary.proto``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tuneplan.errors import MissingExtra
from tuneplan.language import message, say
from tuneplan.logs.metrics import metrics_of, number_of
from tuneplan.logs.refusing import unreadable
from tuneplan.spec.run_log import LogPoint, Metric, RunLog

NAME: Final = "tensorboard"
_SETTINGS_TAGS: Final = ("args", "args/text_summary")
_LONGEST_SETTINGS: Final = 1_000_000


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
    settings: dict[str, Any] = {}
    for tag, step, at_s, value in _values(path):
        if isinstance(value, str):
            settings |= _settings(tag, value)
            continue
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
    found = tuple(points)
    return RunLog(
        format=NAME,
        path=str(path),
        points=found,
        totals=_totals(settings, found),
        absolute_time=True,
    )


def _settings(tag: str, text: str) -> dict[str, Any]:
    """The Trainer's own settings, which it writes before its first step.

    Source: transformers 5 ``integrations/integration_utils.py TensorBoardCallback``.
    """
    if tag not in _SETTINGS_TAGS or len(text) > _LONGEST_SETTINGS:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _totals(settings: Mapping[str, Any], points: Sequence[LogPoint]) -> dict[Metric, float]:
    """Steps of the whole run: as they are set, or as epochs and the way made so far say."""
    most, epochs = (number_of(settings.get(name)) for name in ("max_steps", "num_train_epochs"))
    if most is not None and most >= 1:
        return {Metric.TOTAL_STEPS: most}
    done = [
        (point.step, point.values[Metric.EPOCH])
        for point in points
        if point.step and point.values.get(Metric.EPOCH, 0.0) > 0
    ]
    if not done or not epochs or not math.isfinite(epochs) or epochs <= 0:
        return {}
    step, epoch = done[-1]
    return {Metric.TOTAL_STEPS: float(max(round(step * epochs / epoch), step))}


def _values(path: Path) -> Iterator[tuple[str, int, float, float | str]]:
    """Tag, step, seconds since 1970, value. A file that is still written ends in half a record."""
    try:
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    except ImportError:
        raise MissingExtra(extra="logs", purpose=say("reading TensorBoard events")) from None
    try:
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                held = _number(value)
                told = _text(value) if held is None else held
                if told is not None:
                    yield value.tag, int(event.step), float(event.wall_time), told
    except Exception as error:  # the loader raises errors of its own of many kinds
        raise unreadable(path, str(error) or type(error).__name__) from None


def _text(value: Any) -> str | None:
    if value.WhichOneof("value") != "tensor" or not value.tensor.string_val:
        return None
    return bytes(value.tensor.string_val[0]).decode("utf-8", errors="replace")


def _number(value: Any) -> float | None:
    kind = value.WhichOneof("value")
    if kind == "simple_value":
        return float(value.simple_value)
    if kind == "tensor" and not value.tensor.tensor_shape.dim:
        for held in (value.tensor.float_val, value.tensor.double_val):
            if held:
                return float(held[0])
    return None
