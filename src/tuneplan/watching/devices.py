"""What the driver says of the cards: NVML through nvidia-ml-py (extra ``watch``).

Without it, or without such cards, there is no device figure, and the answer says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from tuneplan.frozen import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSample:
    """One card at one moment."""

    index: int
    name: str
    used_bytes: int
    total_bytes: int
    utilization_fraction: float | None
    temperature_c: float | None
    power_w: float | None


class Devices(Protocol):
    """Whoever can be asked for the cards."""

    def sample(self) -> tuple[DeviceSample, ...]:
        """The cards now; empty where none can be asked."""


class NoDevices:
    """No driver to ask."""

    def sample(self) -> tuple[DeviceSample, ...]:
        """Nothing."""
        return ()


class Nvml:
    """NVIDIA's management library. Source: docs.nvidia.com "NVML API Reference"."""

    def __init__(self, nvml: Any, indices: Sequence[int] | None = None) -> None:
        self._nvml = nvml
        count = nvml.nvmlDeviceGetCount()
        self._indices = tuple(range(count)) if indices is None else tuple(indices)
        self._handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in self._indices]

    def sample(self) -> tuple[DeviceSample, ...]:
        """The cards now; one that cannot be asked is left out."""
        found = []
        for index, handle in zip(self._indices, self._handles, strict=True):
            try:
                found.append(self._card(index, handle))
            except self._nvml.NVMLError:
                continue
        return tuple(found)

    def _card(self, index: int, handle: Any) -> DeviceSample:
        nvml = self._nvml
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        name = nvml.nvmlDeviceGetName(handle)
        return DeviceSample(
            index=index,
            name=name.decode() if isinstance(name, bytes) else str(name),
            used_bytes=int(memory.used),
            total_bytes=int(memory.total),
            utilization_fraction=self._asked(
                lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
            ),
            temperature_c=self._asked(
                lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
            ),
            power_w=self._asked(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000),
        )

    def _asked(self, question: Any) -> float | None:
        """An answer that not every card has."""
        try:
            return float(question())
        except self._nvml.NVMLError:
            return None


def devices_here() -> Devices:
    """The cards of this machine, if their driver can be asked."""
    try:
        import pynvml
    except ImportError:
        return NoDevices()
    try:
        pynvml.nvmlInit()
        return Nvml(pynvml)
    except pynvml.NVMLError:
        return NoDevices()
