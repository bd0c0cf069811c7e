"""One line of a training log as a point: what each framework prints, recognised by its form.

A line is read by itself, so the same functions serve a finished log and one that still grows.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from tuneplan.logs.metrics import metrics_of, number_of, trainer_metrics, whole_number
from tuneplan.spec.run_log import LogPoint, Metric

LONGEST_LINE: Final = 65_536  # characters; a longer line is no record of a trainer

_ANSI: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_TORCHTUNE: Final = re.compile(r"Step (\d+) \| (.+)")
_TORCHTUNE_FIGURE: Final = re.compile(r"([A-Za-z_/][\w/.-]*):(\S+)")
_MEGATRON: Final = re.compile(r"\biteration\s+(\d+)/\s*(\d+)\s*\|(.*)")
_TIMED: Final = re.compile(r"\[(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:[.,]\d+)?\]")
_DEEPSPEED: Final = re.compile(
    r"(?:global_step=(\d+)|\b\d+/(\d+)), RunningAvgSamplesPerSec=([\d.e+-]+), "
    r"CurrSamplesPerSec=([\d.e+-]+)"
    r"(?:, MemAllocated=[\d.]+GB, MaxMemAllocated=([\d.]+)GB)?"
)
_DICTIONARY: Final = re.compile(r"\{['\"][^{}]*\}")
_TRAINER_KEYS: Final = frozenset({"epoch", "loss", "eval_loss", "train_runtime", "learning_rate"})
_BAR: Final = re.compile(r"\| *(\d+)/(\d+) \[[\d:]+<")
_CLOCK: Final = re.compile(r"(?:(\d+) days?, )?(\d+):(\d\d):(\d\d)")


def torchtune_point(line: str) -> LogPoint | None:
    """``Step 7 | loss:1.8 lr:0.0003 tokens_per_second_per_gpu:2100 peak_memory_alloc:15.2``.

    Source: torchtune ``training/metric_logging.py`` (``DiskLogger``, ``StdoutLogger``); memory is
    in GiB (``training/memory.py``, ``get_memory_stats``).
    """
    found = _TORCHTUNE.search(line)
    if found is None:
        return None
    values = metrics_of(dict(_TORCHTUNE_FIGURE.findall(found[2])))
    return LogPoint(step=int(found[1]), values=values) if values else None


def megatron_point(line: str) -> LogPoint | None:
    """``[2024-03-07 15:27:02] iteration 10/ 100 | consumed samples: … | elapsed time per …``.

    Source: Megatron-LM ``training/training.py`` (``training_log``); Megatron-DeepSpeed writes
    ``samples per second`` and ``TFLOPs`` beside it, GPT-NeoX ``samples/sec`` before the iteration,
    releases before 2.0 ``lm loss 2.5E+00`` without a colon. The time has no zone: it is taken as
    UTC, and only differences of such times are used.
    """
    found = _MEGATRON.search(line)
    if found is None:
        return None
    figures = {}
    for part in f"{line[: found.start()]}|{found[3]}".split("|"):
        name, gap, value = part.strip().rpartition(":" if ":" in part else " ")
        if gap:
            figures[name] = value.partition("/")[0]  # some print this step's and the mean
    values = metrics_of(figures)
    if not values:
        return None
    values[Metric.TOTAL_STEPS] = float(found[2])
    timed = _TIMED.search(line)
    return LogPoint(step=int(found[1]), at_s=_stamp(timed[1]) if timed else None, values=values)


def deepspeed_point(line: str) -> LogPoint | None:
    """``… global_step=10, RunningAvgSamplesPerSec=…, CurrSamplesPerSec=…, MaxMemAllocated=…GB``.

    The samples are those of the whole job, the memory is in GiB although it says GB. Source:
    DeepSpeed ``utils/timer.py`` (``ThroughputTimer.stop``); before 0.7.1 the steps stand as
    ``epoch/step``.
    """
    found = _DEEPSPEED.search(line)
    if found is None:
        return None
    values = metrics_of({"CurrSamplesPerSec": found[4], "MaxMemAllocated": found[5]})
    timed = _TIMED.search(line)
    step = int(found[1] or found[2])
    return LogPoint(step=step, at_s=_stamp(timed[1]) if timed else None, values=values)


def trainer_point(line: str) -> LogPoint | None:
    """``{'loss': 1.8, 'learning_rate': 2e-05, 'epoch': 0.1}`` as the Trainer prints it.

    The line counts no step. Numbers may stand as text (transformers 5). Source: transformers
    ``trainer_callback.py`` (``ProgressCallback.on_log``, ``PrinterCallback``); Axolotl, TRL,
    LLaMA-Factory and ms-swift print the same with more keys.
    """
    found = _DICTIONARY.search(line)
    if found is None:
        return None
    figures = _figures(found[0])
    if figures is None or not _TRAINER_KEYS & figures.keys():
        return None
    step = whole_number(str(figures.get("global_step/max_steps", "")).partition("/")[0] or None)
    values = trainer_metrics(figures)
    # Where tokens are counted, each entry tells the seconds since the start, else the last one.
    at_s = values.pop(Metric.TRAIN_S, None) if Metric.LOSS in values else None
    return LogPoint(step=step, at_s=at_s, values=values)


def llamafactory_point(line: str) -> LogPoint | None:
    """One line of ``trainer_log.jsonl``.

    ``throughput`` is tokens a second of the whole job since its start. Source: LLaMA-Factory
    ``train/callbacks.py`` (``LogCallback.on_log``).
    """
    if '"current_steps"' not in line:
        return None
    try:
        figures = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(figures, Mapping):
        return None
    step = whole_number(figures.get("current_steps"))
    if step is None:
        return None
    at_s = seconds_of_clock(str(figures.get("elapsed_time", "")))
    return LogPoint(step=step, at_s=at_s, values=metrics_of(figures))


def seconds_of_clock(text: str) -> float | None:
    """Seconds of ``1 day, 2:03:04`` as Python prints a ``timedelta``; None for other text."""
    found = _CLOCK.fullmatch(text.strip())
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def bare_line(line: str) -> str:
    """A line without colours and what a progress bar wrote before it."""
    return _ANSI.sub("", line.rpartition("\r")[2] if "\r" in line.rstrip() else line).strip()


def _figures(text: str) -> Mapping[str, Any] | None:
    """A dictionary as Python or JSON writes it: literals only, nothing is evaluated."""
    try:
        figures = ast.literal_eval(text.replace(": nan", ": 'nan'").replace(": inf", ": 'inf'"))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        try:
            figures = json.loads(text)
        except (ValueError, RecursionError):
            return None
    return figures if isinstance(figures, dict) else None


def _stamp(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


class LineScanner:
    """Reads the lines of one log in their order; knows what only the lines before tell.

    The Trainer prints its entries without a step, between the states of a progress bar that counts
    steps (``12/300 [00:24<09:36, 2.00s/it]``).
    """

    def __init__(self) -> None:
        self._bar: tuple[int, int] | None = None

    def read(self, line: str) -> tuple[str, LogPoint] | None:
        """The format and the point of a line as it stands in the file; None where it has none."""
        bare = bare_line(line)
        self._look_for_bar(line)
        for name, reader in LINE_READERS.items():
            point = reader(bare)
            if point is not None:
                return name, self._with_step(point)
        return None

    def _look_for_bar(self, line: str) -> None:
        for found in _BAR.finditer(line):
            self._bar = int(found[1]), int(found[2])

    def _with_step(self, point: LogPoint) -> LogPoint:
        if point.step is not None or self._bar is None or Metric.EVAL_LOSS in point.values:
            return point
        step, total = self._bar
        values = {Metric.TOTAL_STEPS: float(total), **point.values}
        return replace(point, step=step, values=values)


LineReader = Callable[[str], LogPoint | None]
LINE_READERS: Final[Mapping[str, LineReader]] = {
    "llamafactory": llamafactory_point,
    "megatron": megatron_point,
    "deepspeed": deepspeed_point,
    "torchtune": torchtune_point,
    "trainer": trainer_point,
}

__all__ = [
    "LINE_READERS",
    "LONGEST_LINE",
    "LineScanner",
    "bare_line",
    "deepspeed_point",
    "llamafactory_point",
    "megatron_point",
    "number_of",
    "seconds_of_clock",
    "torchtune_point",
    "trainer_point",
]
