"""A callback for people's own Trainer script that measures what a pilot measures."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from tuneplan.devices import Devices
from tuneplan.piloting.device_watch import DeviceWatch
from tuneplan.piloting.meter import Meter
from tuneplan.piloting.runner import EventLog, PilotRun, run_of
from tuneplan.spec.measurement import Status


class Measuring:
    """Times the steps, counts the tokens that the model gets, and takes the peaks."""

    def __init__(
        self,
        finish: Callable[[PilotRun], None],
        devices: Devices,
        *,
        most_steps: int,
        stops: bool,
    ) -> None:
        """Begin.

        Args:
            finish: Told what was measured once training has ended, in the first process alone;
                not where it was interrupted.
            devices: Asked for power, use and temperature.
            most_steps: That are timed; training itself goes on.
            stops: Training ends as soon as the step time is steady.
        """
        self._finish = finish
        self._most_steps = most_steps
        self._stops = stops
        self._log = EventLog()
        self._watch = DeviceWatch(devices)
        self._meter: Meter | None = None
        self._hook: Any = None
        self._before_bytes = 0
        self._began = 0.0
        self._kind = "cpu"

    def on_train_begin(self, args: Any, _state: Any, _control: Any, **facts: Any) -> None:
        """Training begins: tokens are counted from here on."""
        from tuneplan.piloting.surroundings import host_bytes

        meter = Meter(self._tell, lambda _stage: None)
        self._hook = facts["model"].register_forward_pre_hook(
            lambda model, _rows, batch: meter.count(batch) if model.training else None,
            with_kwargs=True,
        )
        self._meter, self._before_bytes = meter, host_bytes()
        self._began, self._kind = time.perf_counter(), args.device.type

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """A step begins."""
        if self._meter is not None:
            self._meter.begin()

    def on_step_end(self, _args: Any, _state: Any, control: Any, **_: Any) -> Any:
        """A step ended."""
        if self._meter is None:
            return control
        enough = self._meter.end()
        self._watch.look()
        if enough and self._stops:
            control.should_training_stop = True
        if len(self._log.steps) >= self._most_steps:
            self._unhook()
        return control

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Training ended by itself: tell what was measured."""
        from tuneplan.piloting.surroundings import environment, rank_peaks

        self._unhook()
        worst, ranks = rank_peaks(self._before_bytes, None)
        self._tell("environment", **environment(self._kind))
        self._tell("peak", **worst)
        self._tell("ranks", ranks=ranks)
        self._tell("done")
        if os.environ.get("RANK", "0") == "0":
            elapsed_s = time.perf_counter() - self._began
            self._finish(run_of(Status.OK, self._log, "", elapsed_s, self._watch.seen()))

    def _tell(self, event: str, **facts: Any) -> None:
        self._log.take({"event": event, **facts})

    def _unhook(self) -> None:
        self._meter = None
        if self._hook is not None:
            self._hook.remove()
            self._hook = None


def callback_of(measuring: Measuring) -> Any:
    """It as a callback of transformers', which has an answer to every other event."""
    from transformers import TrainerCallback

    names = ("on_train_begin", "on_step_begin", "on_step_end", "on_train_end")
    bound = {name: staticmethod(getattr(measuring, name)) for name in names}
    return type("PilotCallback", (TrainerCallback,), bound)()
