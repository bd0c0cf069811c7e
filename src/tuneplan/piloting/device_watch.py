"""Power, use and temperature of the devices while a pilot trains, as their driver tells them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Final

from tuneplan.devices import Devices, DeviceSample
from tuneplan.frozen import dataclass

_GAP_S: Final = 0.5  # drivers average over about as long


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What was seen; None where no driver told it.

    Attributes:
        power_w: Mean of a device.
        utilization_fraction: Mean over devices and time.
        temperature_c: The highest of any device.
        driver: Its version.
    """

    power_w: float | None = None
    utilization_fraction: float | None = None
    temperature_c: float | None = None
    driver: str | None = None


class DeviceWatch:
    """Looks at devices now and then."""

    def __init__(self, devices: Devices, clock: Callable[[], float] = time.monotonic) -> None:
        self._devices = devices
        self._clock = clock
        self._next_s = 0.0
        self._samples: list[DeviceSample] = []

    def look(self) -> None:
        """Take a sample, if the last is old enough."""
        now = self._clock()
        if now >= self._next_s:
            self._next_s = now + _GAP_S
            self._samples += self._devices.sample()

    def seen(self) -> Watched:
        """All samples in short."""
        return Watched(
            power_w=_mean([one.power_w for one in self._samples]),
            utilization_fraction=_mean([one.utilization_fraction for one in self._samples]),
            temperature_c=max(_told([one.temperature_c for one in self._samples]), default=None),
            driver=self._devices.driver(),
        )


def _told(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean(values: Sequence[float | None]) -> float | None:
    told = _told(values)
    return fmean(told) if told else None
