"""The lines that ``watch --json`` writes, one a look."""

from __future__ import annotations

from pydantic import FiniteFloat

from tuneplan.contract.parts import Bytes, Header, MoneyRange, Part, Range


class WatchAlert(Part):
    """Something to act on; ``new`` in the first line that tells it."""

    code: str
    since: str
    message: str
    new: bool


class WatchDevice(Part):
    """One card, as its driver tells."""

    index: int
    name: str
    used_bytes: Bytes
    total_bytes: Bytes
    utilization_fraction: FiniteFloat | None
    temperature_c: FiniteFloat | None
    power_w: FiniteFloat | None


class WatchAnswer(Header):
    """One look at a run. ``cost`` is that of the whole run; what is unknown is null."""

    time: str
    step: int | None
    total_steps: int | None
    epoch: FiniteFloat | None
    loss: FiniteFloat | None
    eval_loss: FiniteFloat | None
    step_s: FiniteFloat | None
    tokens_per_s: FiniteFloat | None
    memory_bytes: Bytes | None
    quiet_s: FiniteFloat
    elapsed_s: FiniteFloat
    eta_s: Range | None
    cost: MoneyRange | None
    finished: bool
    missing: bool
    devices: list[WatchDevice]
    alerts: list[WatchAlert]
