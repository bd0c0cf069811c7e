"""What the driver says of the cards: NVML through nvidia-ml-py (extra ``watch``), or AMD SMI.

Without them, or without such cards, there is no device figure, and the answer says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from tuneplan.frozen import dataclass
from tuneplan.units import MIB

_POWER_NAMES: Final = ("current_socket_power", "average_socket_power", "socket_power")


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

    def driver(self) -> str | None:
        """The driver's version."""


class NoDevices:
    """No driver to ask."""

    def sample(self) -> tuple[DeviceSample, ...]:
        """Nothing."""
        return ()

    def driver(self) -> str | None:
        """Nobody to ask."""
        return None


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

    def driver(self) -> str | None:
        """The driver's version."""
        try:
            told = self._nvml.nvmlSystemGetDriverVersion()
        except self._nvml.NVMLError:
            return None
        return told.decode() if isinstance(told, bytes) else str(told)

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


class AmdSmi:
    """AMD's management library, which comes with ROCm.

    Memory is told in MiB, activity in percent, power in watts, temperature in degrees; what a card
    does not have is "N/A". Source: rocm.docs.amd.com, "AMD SMI Python API", 6.2 to 7.0.
    """

    def __init__(self, smi: Any, indices: Sequence[int] | None = None) -> None:
        self._smi = smi
        every = list(smi.amdsmi_get_processor_handles())
        self._indices = tuple(range(len(every))) if indices is None else tuple(indices)
        self._handles = [every[index] for index in self._indices]

    def sample(self) -> tuple[DeviceSample, ...]:
        """The cards now; one that cannot be asked is left out."""
        found = []
        for index, handle in zip(self._indices, self._handles, strict=True):
            try:
                found.append(self._card(index, handle))
            except self._smi.AmdSmiException:
                continue
        return tuple(found)

    def driver(self) -> str | None:
        """The driver's version."""
        if not self._handles:
            return None
        told = self._asked(self._smi.amdsmi_get_gpu_driver_info, self._handles[0])
        version = told.get("driver_version") if told else None
        return str(version) if version else None

    def _card(self, index: int, handle: Any) -> DeviceSample:
        smi = self._smi
        memory = smi.amdsmi_get_gpu_vram_usage(handle)
        named = self._asked(smi.amdsmi_get_gpu_asic_info, handle) or {}
        activity = _number(self._asked(smi.amdsmi_get_gpu_activity, handle), ("gfx_activity",))
        hottest = self._asked(
            lambda one: smi.amdsmi_get_temp_metric(
                one, smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT
            ),
            handle,
        )
        return DeviceSample(
            index=index,
            name=str(named.get("market_name") or "AMD"),
            used_bytes=int(memory["vram_used"]) * MIB,
            total_bytes=int(memory["vram_total"]) * MIB,
            utilization_fraction=None if activity is None else activity / 100,
            temperature_c=_number({"": hottest}, ("",)),
            power_w=_number(self._asked(smi.amdsmi_get_power_info, handle), _POWER_NAMES),
        )

    def _asked(self, question: Callable[[Any], Any], handle: Any) -> Any:
        """An answer that not every card has."""
        try:
            return question(handle)
        except self._smi.AmdSmiException:
            return None


def _number(told: Mapping[str, Any] | None, names: Sequence[str]) -> float | None:
    """The first of some entries that is a number."""
    for name in names if told else ():
        value = (told or {}).get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
    return None


def devices_here(visible: str | None = None) -> Devices:
    """The cards of this machine, if their driver can be asked.

    Args:
        visible: Of ``CUDA_VISIBLE_DEVICES``: the numbers of those that count; None for all.
    """
    indices = _indices(visible)
    return _nvidia(indices) or _amd(indices) or NoDevices()


def _indices(visible: str | None) -> tuple[int, ...] | None:
    words = [word.strip() for word in (visible or "").split(",") if word.strip()]
    return tuple(map(int, words)) if words and all(word.isdigit() for word in words) else None


def _nvidia(indices: Sequence[int] | None) -> Devices | None:
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        return Nvml(pynvml, indices)
    except pynvml.NVMLError:
        return None


def _amd(indices: Sequence[int] | None) -> Devices | None:
    try:
        import amdsmi
    except (ImportError, OSError, KeyError):  # its bindings look for the library as they load
        return None
    try:
        amdsmi.amdsmi_init()
        return AmdSmi(amdsmi, indices)
    except (amdsmi.AmdSmiException, IndexError):
        return None
