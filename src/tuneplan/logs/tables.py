"""CSV: an export of Weights & Biases or of a logger, and what ``nvidia-smi`` records.

- Weights & Biases' chart export has a ``Step`` column and one ``RUN - METRIC`` column a line of the
  chart, with ``…__MIN`` and ``…__MAX`` beside; its history export has ``_step``, ``_runtime``
  (seconds since the start) and ``_timestamp`` (since 1970). Source: docs.wandb.ai, "Export".
- ``nvidia-smi --query-gpu=timestamp,index,name,memory.used,utilization.gpu,power.draw,
  temperature.gpu --format=csv -l 1`` heads its columns with the units; ``nounits`` leaves them out
  of the cells only. Source: ``nvidia-smi --help-query-gpu``.
- Lightning's and other loggers write ``step`` and plain names.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tuneplan.language import message
from tuneplan.logs.metrics import metric_of, metrics_of, number_of, whole_number
from tuneplan.logs.refusing import io_reason, unreadable
from tuneplan.spec.answer import Notice
from tuneplan.spec.run_log import LogPoint, RunLog

if TYPE_CHECKING:
    from _csv import Reader as Rows

CSV_NAME: Final = "csv"
NVIDIA_SMI: Final = "nvidia_smi"
_STEP: Final = ("_step", "step", "global_step", "trainer/global_step", "iteration")
_RUNTIME: Final = ("_runtime", "elapsed_s", "relative time (process)")
_STAMP: Final = ("_timestamp", "wall_time", "wall time")


def read_table(path: Path) -> RunLog | None:
    """A CSV of figures over steps, or of ``nvidia-smi`` over time; None where it is neither."""
    try:
        with path.open("r", encoding="utf-8-sig", errors="replace", newline="") as file:
            return _table(path, csv.reader(file, skipinitialspace=True))
    except OSError as error:
        raise unreadable(path, io_reason(error)) from None


def _table(path: Path, rows: Rows) -> RunLog | None:
    try:
        head = next(rows, None)
        if not head:
            return None
        return _smi(path, head, rows) or _steps(path, head, rows)
    except csv.Error as error:
        raise unreadable(path, str(error), rows.line_num) from None


def _smi(path: Path, head: Sequence[str], rows: Rows) -> RunLog | None:
    names = [name.strip().casefold() for name in head]
    if "timestamp" not in names or not any(name.startswith("memory.used") for name in names):
        return None
    points, broken, cards = [], 0, set[str]()
    for cells in rows:
        row = dict(zip(names, cells, strict=False))
        at_s = _moment(row.get("timestamp", ""))
        values = metrics_of(row)
        if at_s is None or not values:
            broken += 1
            continue
        cards.add(row.get("name", "").strip())
        device = whole_number(row.get("index"))
        points.append(LogPoint(at_s=at_s, values=values, device=device))
    known = cards - {""}
    return RunLog(
        format=NVIDIA_SMI,
        path=str(path),
        points=tuple(points),
        accelerator=known.pop() if len(known) == 1 else None,
        absolute_time=True,
        notices=_unread(path, broken),
    )


def _steps(path: Path, head: Sequence[str], rows: Rows) -> RunLog | None:
    names = [_plain_name(name) for name in head]
    lower = [name.casefold() for name in names]
    step_column = next((lower.index(name) for name in _STEP if name in lower), None)
    if step_column is None or not any(metric_of(name) for name in names):
        return None
    runtime = next((lower.index(name) for name in _RUNTIME if name in lower), None)
    stamp = next((lower.index(name) for name in _STAMP if name in lower), None)
    clock = stamp if stamp is not None else runtime
    points, broken = [], 0
    for cells in rows:
        step = whole_number(cells[step_column]) if step_column < len(cells) else None
        if step is None:
            broken += 1
            continue
        values = metrics_of(dict(_cells(names, cells)))
        at_s = number_of(cells[clock]) if clock is not None and clock < len(cells) else None
        if values:
            points.append(LogPoint(step=step, at_s=at_s, values=values))
    return RunLog(
        format=CSV_NAME,
        path=str(path),
        points=tuple(points),
        absolute_time=stamp is not None,
        notices=_unread(path, broken),
    )


def _plain_name(name: str) -> str:
    """``my-run - train/loss`` is ``train/loss``; its extremes are no figure of their own."""
    text = name.strip()
    if text.endswith(("__MIN", "__MAX")):
        return ""
    return text.rpartition(" - ")[2]


def _cells(names: Sequence[str], cells: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The filled cells, the first of each name (a chart of several runs has several)."""
    seen = set[str]()
    for name, cell in zip(names, cells, strict=False):
        if name and cell.strip() and name not in seen:
            seen.add(name)
            yield name, cell


def _moment(text: str) -> float | None:
    """``2024/05/01 12:00:00.123`` as ``nvidia-smi`` writes it, without a zone: taken as UTC."""
    written = text.strip().replace("/", "-")
    try:
        return datetime.fromisoformat(written).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _unread(path: Path, count: int) -> tuple[Notice, ...]:
    if not count:
        return ()
    text = message("log_rows_unread", "{count} rows tell no step or no time", count=count)
    return (Notice(message=text, path=str(path)),)


__all__ = ["CSV_NAME", "NVIDIA_SMI", "read_table"]
