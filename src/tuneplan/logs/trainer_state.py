"""``trainer_state.json``: what transformers' Trainer keeps of a run beside each checkpoint.

Holds steps, losses and, at the end of the run, its length in seconds. A clock it holds only where
tokens are counted (``include_num_input_tokens_seen``): then each entry has the seconds since the
start as ``train_runtime``. Source: transformers ``trainer_callback.py`` (``TrainerState``),
``trainer.py`` (``speed_metrics`` in ``log`` and at the end of training).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tuneplan.language import message
from tuneplan.logs.metrics import number_of, trainer_metrics, whole_number
from tuneplan.logs.refusing import io_reason, unreadable
from tuneplan.spec.answer import Notice
from tuneplan.spec.run_log import LogPoint, Metric, RunLog

NAME: Final = "trainer_state"
_LARGEST_BYTES: Final = 512 * 2**20
_JOB_KEYS: Final = {
    "eval_steps": "training.eval_steps",
    "save_steps": "training.save_steps",
    "train_batch_size": "training.per_device_train_batch_size",
    "num_train_epochs": "training.num_train_epochs",
}


def read_trainer_state(path: Path) -> RunLog:
    """The log of a ``trainer_state.json``.

    Raises:
        UnreadableFile: It is broken, or no state of a Trainer.
    """
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            raise unreadable(path, message("log_too_large", "it is larger than 512 MiB"))
        state = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise unreadable(path, io_reason(error)) from None
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        raise unreadable(
            path, message("log_no_json", "it is no JSON: {why}", why=str(error)), line
        ) from None
    if not isinstance(state, Mapping) or not isinstance(state.get("log_history"), list):
        raise unreadable(
            path,
            message("log_no_trainer_state", "it has no log_history: no trainer state"),
        )
    return _log(path, state)


def is_trainer_state(path: Path, head: bytes) -> bool:
    """By its name, or by its key."""
    return path.suffix == ".json" and (
        path.name == "trainer_state.json" or b'"log_history"' in head
    )


def _log(path: Path, state: Mapping[str, Any]) -> RunLog:
    points, totals, broken = [], dict(_state_totals(state)), 0
    for entry in state["log_history"]:
        if not isinstance(entry, Mapping):
            broken += 1
            continue
        values = trainer_metrics(entry)
        step = whole_number(entry.get("step"))
        runtime_s = values.pop(Metric.TRAIN_S, None)
        if runtime_s is not None and Metric.LOSS not in values:  # the end of training
            totals.update(values | {Metric.TRAIN_S: runtime_s})
        elif step is None or not values:
            broken += 1
        else:
            points.append(LogPoint(step=step, at_s=runtime_s, values=values))
    notices = [_broken(path, broken)] if broken else []
    return RunLog(
        format=NAME,
        path=str(path),
        points=tuple(points),
        totals=totals,
        job=dict(_job(state)),
        notices=tuple(notices),
    )


def _state_totals(state: Mapping[str, Any]) -> Iterator[tuple[Metric, float]]:
    for key, metric in (
        ("max_steps", Metric.TOTAL_STEPS),
        ("num_input_tokens_seen", Metric.TOKENS_SEEN),
    ):
        value = number_of(state.get(key))
        if value:
            yield metric, value


def _job(state: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, key in _JOB_KEYS.items():
        value = whole_number(state.get(name))
        if value:
            yield key, value


def _broken(path: Path, count: int) -> Notice:
    return Notice(
        message=message(
            "log_entries_unread", "{count} entries of log_history tell nothing", count=count
        ),
        path=str(path),
    )
