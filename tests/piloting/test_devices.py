"""What drivers tell: hand-written stand-ins of NVIDIA's and AMD's libraries."""

from types import SimpleNamespace
from typing import Any

import pytest

from tuneplan.devices import AmdSmi, DeviceSample, NoDevices, Nvml
from tuneplan.piloting.device_watch import DeviceWatch
from tuneplan.units import MIB


class NvidiaError(Exception):
    pass


class FakeNvml:
    """Two cards; the second tells no power, and cannot be asked after a while."""

    NVMLError = NvidiaError
    NVML_TEMPERATURE_GPU = 0

    def __init__(self) -> None:
        self.gone = False

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return "570.86.15"

    def nvmlDeviceGetName(self, _: int) -> bytes:  # noqa: N802
        return b"NVIDIA H200"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:  # noqa: N802
        if self.gone and handle == 1:
            raise NvidiaError
        return SimpleNamespace(used=10 * MIB, total=100 * MIB)

    def nvmlDeviceGetUtilizationRates(self, _: int) -> Any:  # noqa: N802
        return SimpleNamespace(gpu=90)

    def nvmlDeviceGetTemperature(self, handle: int, _: int) -> int:  # noqa: N802
        return 60 + 5 * handle

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:  # noqa: N802
        if handle == 1:
            raise NvidiaError
        return 500_000


class AmdError(Exception):
    pass


class FakeAmdSmi:
    """One card that tells "N/A" for what it has not."""

    AmdSmiException = AmdError
    AmdSmiTemperatureType = SimpleNamespace(HOTSPOT="hotspot")
    AmdSmiTemperatureMetric = SimpleNamespace(CURRENT="current")

    def amdsmi_get_processor_handles(self) -> list[str]:
        return ["card"]

    def amdsmi_get_gpu_vram_usage(self, _: str) -> dict[str, int]:
        return {"vram_used": 1024, "vram_total": 196_592}

    def amdsmi_get_gpu_asic_info(self, _: str) -> dict[str, str]:
        return {"market_name": "AMD Instinct MI300X"}

    def amdsmi_get_gpu_activity(self, _: str) -> dict[str, Any]:
        return {"gfx_activity": 75, "umc_activity": "N/A"}

    def amdsmi_get_temp_metric(self, _: str, kind: str, metric: str) -> int:
        assert (kind, metric) == ("hotspot", "current")
        return 71

    def amdsmi_get_power_info(self, _: str) -> dict[str, Any]:
        return {"current_socket_power": "N/A", "average_socket_power": 640}

    def amdsmi_get_gpu_driver_info(self, _: str) -> dict[str, str]:
        raise AmdError


def test_nvidia_s_cards_are_sampled_and_one_that_is_gone_is_left_out() -> None:
    library = FakeNvml()
    devices = Nvml(library)
    assert [one.power_w for one in devices.sample()] == [500.0, None]
    library.gone = True
    assert [one.index for one in devices.sample()] == [0]
    assert devices.driver() == "570.86.15"


def test_amd_s_card_is_sampled_and_what_it_has_not_is_unknown() -> None:
    devices = AmdSmi(FakeAmdSmi())
    assert devices.sample() == (
        DeviceSample(
            index=0,
            name="AMD Instinct MI300X",
            used_bytes=1024 * MIB,
            total_bytes=196_592 * MIB,
            utilization_fraction=0.75,
            temperature_c=71.0,
            power_w=640.0,
        ),
    )
    assert devices.driver() is None


def test_a_pilot_s_power_is_the_mean_of_a_card_and_its_temperature_the_highest() -> None:
    time_s = iter([0.0, 0.1, 0.6])
    watch = DeviceWatch(Nvml(FakeNvml()), clock=lambda: next(time_s))
    for _ in range(3):
        watch.look()  # the second comes too early to count
    seen = watch.seen()
    assert seen.power_w == 500.0
    assert seen.utilization_fraction == pytest.approx(0.9)
    assert seen.temperature_c == 65.0
    assert seen.driver == "570.86.15"


def test_where_nobody_can_be_asked_nothing_is_known() -> None:
    watch = DeviceWatch(NoDevices())
    watch.look()
    assert watch.seen().power_w is None
    assert watch.seen().driver is None
