"""Tokens and times of each step, on every rank, and when it is enough. Imports PyTorch late."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from tuneplan.piloting.stability import steadiness

Tell = Callable[..., None]


class Meter:
    """Counts tokens and takes times.

    A step takes as long as on its slowest rank; its tokens are those of all ranks.
    """

    def __init__(
        self,
        tell: Tell,
        enter: Callable[[str], None],
        *,
        time_limit_s: float = float("inf"),
        until_steady: bool = True,
    ) -> None:
        """Begin.

        Args:
            tell: Is told each step.
            enter: Is told the stage.
            time_limit_s: Of all steps.
            until_steady: It is enough once the step time is steady.
        """
        self._tell = tell
        self._enter = enter
        self._time_limit_s = time_limit_s
        self._until_steady = until_steady
        self._tokens: Any = 0
        self._padded = 0
        self._loader_s = 0.0
        self._steps_s: list[float] = []
        self._own_steps_s: list[float] = []
        self._positions: list[float] = []
        self._began = self._began_cpu = 0.0
        self._started = time.perf_counter()

    def timed(self, collate: Callable[[Any], dict[str, Any]]) -> Callable[[Any], dict[str, Any]]:
        """A collator whose time is counted; batches are made ahead, so their tokens are not."""

        def timed(rows: Any) -> dict[str, Any]:
            began = time.perf_counter()
            batch = collate(rows)
            self._loader_s += time.perf_counter() - began
            return batch

        return timed

    def count(self, batch: Any) -> None:
        """Count the positions of a micro-batch, and those among them that are no padding."""
        ids = batch.get("input_ids")
        if ids is None:
            return
        mask = batch.get("attention_mask")
        self._padded += ids.numel()
        # A sum on the device is not waited for until the step ends.
        plain = mask is not None and getattr(mask, "shape", None) == ids.shape
        self._tokens = self._tokens + (mask.sum() if plain and mask is not None else ids.numel())

    def begin(self) -> None:
        """A step begins."""
        if not self._began:
            self._began, self._began_cpu = time.perf_counter(), time.process_time()

    def stage(self, name: str) -> None:
        """Tell the stage."""
        self._enter(name)

    def end(self) -> bool:
        """A step ended; whether it is enough, which is the same on every rank."""
        synchronize()
        now, cpu = time.perf_counter(), time.process_time()
        self._own_steps_s.append(now - self._began)
        ranks = gathered(
            [
                *(now - self._began, cpu - self._began_cpu, float(self._tokens)),
                *(float(self._padded), self._loader_s, now - self._started),
            ]
        )
        seconds, used, tokens, padded, waited, elapsed = zip(*ranks, strict=True)
        self._steps_s.append(max(seconds))
        self._positions.append(sum(padded))
        self._tell(
            "step",
            step_s=max(seconds),
            cpu_s=sum(used),
            tokens=round(sum(tokens)),
            padded_tokens=round(sum(padded)),
            loader_wait_s=max(waited),
        )
        self._tokens, self._padded, self._loader_s = 0, 0, 0.0
        self._enter("later")
        self._began, self._began_cpu = time.perf_counter(), time.process_time()
        if max(elapsed) > self._time_limit_s:
            self._tell("time_is_up")
            return True
        return self._until_steady and steadiness(self._steps_s, self._positions).stable

    @property
    def own_step_s(self) -> float | None:
        """Mean seconds of a step on this rank, the warm-up left out."""
        if not self._own_steps_s:
            return None
        skipped = steadiness(self._steps_s, self._positions).warm_up_steps
        kept = self._own_steps_s[skipped:]
        return sum(kept) / len(kept)

    def callback(self, *, stops: bool = True) -> Any:
        """The Trainer's callback that takes the times; ``stops`` the training when it is enough."""
        from transformers import TrainerCallback

        meter = self

        class Clock(TrainerCallback):  # type: ignore[misc]
            def on_step_begin(self, *_: Any, **__: Any) -> None:
                meter.begin()

            def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
                meter.stage("optimizer_step")

            def on_step_end(self, _args: Any, _state: Any, control: Any, **_: Any) -> Any:
                if meter.end() and stops:
                    control.should_training_stop = True
                return control

        return Clock()


def gathered(values: list[float]) -> list[list[float]]:
    """The values of every rank, in their order; of one process, its own."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return [values]
    import torch
    from torch import distributed

    if not distributed.is_initialized():
        return [values]
    device = "cpu" if "gloo" in distributed.get_backend() else torch.cuda.current_device()
    own = torch.tensor(values, dtype=torch.float64, device=device)
    every = [torch.empty_like(own) for _ in range(distributed.get_world_size())]
    distributed.all_gather(every, own)
    return [one.tolist() for one in every]


def synchronize() -> None:
    """Wait until the device has done what it was told."""
    import torch

    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    elif torch.backends.mps.is_available():
        torch.mps.synchronize()
