"""Kernel curves of any accelerator: its own measured table, or the nearest one, scaled.

The tables are derived by ``tools/build_kernel_curves.py``; choice and reproduction error stand in
``docs/internals/decisions/0002-kernel-curves.md``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from tuneplan.catalog import own_kernels
from tuneplan.language import message
from tuneplan.spec.answer import Assumption, Basis
from tuneplan.spec.hardware import Accelerator
from tuneplan.spec.kernels import (
    AttentionCurve,
    ChipCurves,
    CollectiveCurve,
    GemmCurve,
    MeasuredKernels,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[Any]]

_COLLECTIVES: Final = ("all_gather", "reduce_scatter", "all_reduce")
# PyTorch's pointwise kernels that cannot load 16 bytes at a time are bound by what their
# multiprocessors issue. Kernels that change the dtype load and store element by element
# (CUDALoops.cuh, ``LoadWithCast``); half-precision operands that are broadcast or permuted take
# the offset calculator. Bytes per multiprocessor and clock, read off Liger-Kernel's published
# timings of Hugging Face modules on an A100 (bf16): rotary embedding, all strided, 0.43 of the
# datasheet bandwidth forward and 0.54 backward (half of it strided); RMSNorm 0.62 forward, where a
# third of the bytes is cast and a ninth strided: 0.60 and 0.43 for the two classes. In fp32 on an
# H100, nothing cast and nothing strided, the same norm reaches 0.80.
_A100_CLOCKS_PER_S: Final = 108 * 1.41e9
_A100_STREAMING_BYTES_PER_S: Final = 0.8 * 2039e9
_CAST_BYTES_PER_CLOCK: Final = 0.60 * 2039e9 / _A100_CLOCKS_PER_S
_STRIDED_BYTES_PER_CLOCK: Final = 0.43 * 2039e9 / _A100_CLOCKS_PER_S
_WIDE_LANES_FROM: Final = 8.6
# Pinned copies reach about four fifths of the PCIe datasheet rate; 16 lanes of PCIe 3 if unknown.
_PCIE_EFFICIENCY: Final = 0.8
_PCIE_BYTES_PER_S: Final = 16e9
_ELEMENT_BYTES: Final = {"float32": 4, "tf32": 4, "float8": 1, "int8": 1}
_NVLINK_TABLE: Final = "a100_sxm"
_PCIE_TABLE: Final = "rtx_pro_6000_server"
# Peak operations per watt above which a chip cannot hold its clock in large products: the L40S
# (1.03e12) sustains half of its peak, the A100 and the RTX PRO 6000 (0.78e12) four fifths.
_POWER_LIMITED_FLOP_PER_J: Final = 0.8e12
# FlashAttention-2 at long sequences, as a share of the 16-bit peak. Ampere: the A100 table (16,384
# tokens, head_dim 128). Hopper: "only 35 % utilization on the H100" (FlashAttention-3, Shah et al.
# 2024, abstract), because it uses Ampere's instructions. Data-centre Blackwell runs the same
# instructions: Hopper's absolute rate by multiprocessors (148 to 132), an assumption.
_FLASH_2_TABLE: Final = "a100_sxm"
_FLASH_2_SHARE: Final = {
    "flash_attention_2": 0.56,
    "flash_attention_3": 0.35,
    "blackwell": 0.35 * 989 / 2250 * 148 / 132,
}


def load_curves(accelerator: Accelerator) -> ChipCurves:
    """The kernel curves of one accelerator.

    A chip that was measured gets its own table. Any other gets the efficiency surface (time over
    roofline) of the nearest architecture on its own datasheet roofline, and says so in
    ``assumptions``.

    Args:
        accelerator: As the catalogue describes it; ``measured_flop_per_s["bfloat16"]`` (best
            sustained product; ``float16`` where the chip has no bf16) corrects the datasheet peak
            where the table's chip has one too.
    """
    return _curves(_Key(accelerator))


class _Key:
    """Hash of an accelerator by what the curves depend on (its mappings are not hashable)."""

    __slots__ = ("accelerator", "facts")

    def __init__(self, accelerator: Accelerator) -> None:
        self.accelerator = accelerator
        self.facts = (
            *(accelerator.name, accelerator.architecture, accelerator.compute_capability),
            *(accelerator.memory_bandwidth_bytes_per_s, accelerator.power_w),
            *(accelerator.pcie_bytes_per_s, accelerator.kernels),
            tuple(sorted(accelerator.dense_flop_per_s.items())),
            tuple(sorted(accelerator.measured_flop_per_s.items())),
        )

    def __hash__(self) -> int:
        return hash(self.facts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.facts == other.facts


@lru_cache(maxsize=256)
def _curves(key: _Key) -> ChipCurves:
    accelerator = key.accelerator
    if accelerator.kernels is not None:
        return _measured_by_user(accelerator, accelerator.kernels)
    table, measured = choose_table(accelerator)
    facts = _manifest()["chips"][table]
    arrays = _arrays(table)
    peaks = _peaks(accelerator, facts, measured=measured)
    streaming = accelerator.memory_bandwidth_bytes_per_s * facts["bandwidth_efficiency"]
    return ChipCurves(
        accelerator=accelerator.name,
        table=table,
        measured=measured,
        basis=Basis.ANALYTIC if measured else Basis.ASSUMED,
        source=f"{_manifest()['source']}, {table}: {facts['gemm']['bfloat16']}",
        gemm=MappingProxyType(_gemm_curves(accelerator, facts, arrays, peaks, measured=measured)),
        attention=_attention_curve(table, peaks),
        flash_attention_2=_flash_2_curve(table, peaks),
        peak_flop_per_s=MappingProxyType(peaks),
        collectives=MappingProxyType(_collective_curves(table)),
        memory_bandwidth_bytes_per_s=accelerator.memory_bandwidth_bytes_per_s,
        bandwidth_efficiency=facts["bandwidth_efficiency"],
        grouped_slowdown=facts["grouped_slowdown"],
        cast_bytes_per_s=_narrow_rate(accelerator, streaming, _CAST_BYTES_PER_CLOCK),
        strided_bytes_per_s=_narrow_rate(accelerator, streaming, _STRIDED_BYTES_PER_CLOCK),
        host_bytes_per_s=_PCIE_EFFICIENCY * (accelerator.pcie_bytes_per_s or _PCIE_BYTES_PER_S),
        assumptions=() if measured else (_borrowed(accelerator, table),),
    )


def _measured_by_user(accelerator: Accelerator, found: MeasuredKernels) -> ChipCurves:
    """Curves of the user's own timings; what they leave out is that of the nearest chip."""
    table = _nearest(accelerator)
    facts = _manifest()["chips"][table]
    peaks = dict(accelerator.dense_flop_per_s)
    attention = (
        own_kernels.attention_curve(found.attention, peaks)
        if found.attention is not None
        else _attention_curve(table, peaks)
    )
    bandwidth = accelerator.memory_bandwidth_bytes_per_s
    return ChipCurves(
        accelerator=accelerator.name,
        table=accelerator.name,
        measured=True,
        basis=Basis.ANALYTIC,
        source=found.source,
        gemm=MappingProxyType(own_kernels.gemm_curves(found, peaks)),
        attention=attention,
        flash_attention_2=attention,
        peak_flop_per_s=MappingProxyType(peaks),
        collectives=MappingProxyType(_collective_curves(table)),
        memory_bandwidth_bytes_per_s=bandwidth,
        bandwidth_efficiency=found.streaming_bytes_per_s / bandwidth,
        grouped_slowdown=facts["grouped_slowdown"],
        cast_bytes_per_s=found.cast_bytes_per_s,
        strided_bytes_per_s=found.strided_bytes_per_s,
        host_bytes_per_s=_PCIE_EFFICIENCY * (accelerator.pcie_bytes_per_s or _PCIE_BYTES_PER_S),
        host_operation_s=found.host_operation_s,
        synchronous=found.synchronous,
    )


def _narrow_rate(accelerator: Accelerator, streaming: float, per_clock: float) -> float:
    """Bytes per second of kernels bound by the multiprocessors' issue rate, not by the memory.

    Multiprocessors x clock follow from the fp32 rate: 128 lanes of two operations each from
    compute capability 8.6 on, 64 before. A chip that states neither keeps the A100's share.
    """
    rate, capability = accelerator.dense_flop_per_s.get("float32"), accelerator.compute_capability
    if not rate or capability is None:
        return streaming * per_clock * _A100_CLOCKS_PER_S / _A100_STREAMING_BYTES_PER_S
    lanes = 64 if capability < _WIDE_LANES_FROM else 128
    return min(streaming, per_clock * rate / (2 * lanes))


def choose_table(accelerator: Accelerator) -> tuple[str, bool]:
    """Name of the kernel table for a chip, and whether it was measured on that very chip."""
    chips = _manifest()["chips"]
    for table, facts in chips.items():
        if accelerator.name in facts["devices"]:
            return table, True
    return _nearest(accelerator), False


def _nearest(accelerator: Accelerator) -> str:
    """The measured chip whose efficiency transfers best: same generation, similar power."""
    architecture = accelerator.architecture.lower()
    peak = max(
        accelerator.dense_flop_per_s.get("bfloat16", 0.0),
        accelerator.dense_flop_per_s.get("float16", 0.0),
    )
    power_limited = peak > _POWER_LIMITED_FLOP_PER_J * max(accelerator.power_w, 1.0)
    if "hopper" in architecture:
        return "h100_sxm"
    if "blackwell" in architecture:
        if (accelerator.compute_capability or 10.0) >= 12:
            return "rtx_pro_6000_server"
        return "b300_sxm" if "ultra" in architecture else "b200_sxm"
    if "ada" in architecture or "turing" in architecture:
        return "l40s" if power_limited else "rtx_pro_6000_server"
    if "cdna" in architecture:
        return "h100_sxm"
    if "xe" in architecture or "battlemage" in architecture:
        return "b60"
    return "a100_sxm"


def _borrowed(accelerator: Accelerator, table: str) -> Assumption:
    return Assumption(
        name="hardware.kernels",
        value=table,
        reason=message(
            "kernel_table_borrowed",
            "no kernel timings of {chip} are bundled: the measured efficiency of {table} is taken "
            "on its own datasheet rates",
            chip=accelerator.name,
            table=table,
        ),
        source=_manifest()["source"],
        how_to_set="accelerators: [FILE.yaml], with measured_rate",
    )


def _peaks(
    accelerator: Accelerator, facts: Mapping[str, Any], *, measured: bool
) -> dict[str, float]:
    """Rates that the table's efficiency is applied to, by dtype name."""
    peaks = dict(accelerator.dense_flop_per_s)
    if measured:
        half = {"float16": facts["peak_flop_per_s"]["bfloat16"]} if "float16" in peaks else {}
        return {**peaks, **facts["peak_flop_per_s"], **half}
    best = accelerator.measured_flop_per_s
    best_here = best.get("bfloat16") or best.get("float16")
    best_there = facts["best_product_flop_per_s"] or facts["large_gemm_flop_per_s"]["bfloat16"]
    if best_here and best_there:
        corrected = facts["peak_flop_per_s"]["bfloat16"] * best_here / best_there
        stated = peaks.get("bfloat16") or peaks.get("float16") or corrected
        halves = [name for name in ("bfloat16", "float16") if name in peaks]
        peaks |= {name: corrected * peaks[name] / stated for name in halves}
    return peaks


def _gemm_curves(
    accelerator: Accelerator,
    facts: Mapping[str, Any],
    arrays: Arrays,
    peaks: Mapping[str, float],
    *,
    measured: bool,
) -> dict[str, GemmCurve]:
    """One curve a dtype: the table's own where it has one, else its bf16 efficiency."""
    import numpy as np

    curves = {}
    bandwidth = (
        facts["memory_bandwidth_bytes_per_s"]
        if measured
        else accelerator.memory_bandwidth_bytes_per_s
    )
    for dtype, peak in peaks.items():
        name = "float8" if dtype == "float8" and "gemm_float8" in arrays else "bfloat16"
        m, n, k = (arrays[f"gemm_{name}_{axis}"].astype(float) for axis in "mnk")
        residual = arrays[f"gemm_{name}"] / _manifest()["steps_per_e"]
        if not measured:  # what the other chip's cache gave is not this chip's
            residual = np.maximum(residual, 0.0)
        floor = _roofline_s(
            *(m[:, None, None], n[None, :, None], k[None, None, :]),
            peak_flop_per_s=peak,
            bandwidth_bytes_per_s=bandwidth,
            element_bytes=_ELEMENT_BYTES.get(dtype, 2),
        )
        curves[dtype] = GemmCurve(
            log_m=np.log(m),
            log_n=np.log(n),
            log_k=np.log(k),
            log_time_s=np.log(floor) + residual,
        )
    return curves


def _roofline_s(
    m: NDArray[np.float64],
    n: NDArray[np.float64],
    k: NDArray[np.float64],
    *,
    peak_flop_per_s: float,
    bandwidth_bytes_per_s: float,
    element_bytes: int,
) -> NDArray[np.float64]:
    """Least seconds of a product; the same expression as in ``tools/build_kernel_curves.py``."""
    import numpy as np

    moved = element_bytes * (m * k + k * n) + max(element_bytes, 2) * m * n
    return np.asarray(np.maximum(2.0 * m * n * k / peak_flop_per_s, moved / bandwidth_bytes_per_s))


def _attention_curve(table: str, peaks: Mapping[str, float]) -> AttentionCurve:
    """The table's own kernel at the ratio of the chips' 16-bit rates."""
    there = _manifest()["chips"][table]["peak_flop_per_s"]["bfloat16"]
    return _scaled_attention(table, _half(peaks, there) / there)


def _flash_2_curve(table: str, peaks: Mapping[str, float]) -> AttentionCurve:
    """FlashAttention-2: the chip's own timings, or the A100's curve at another share of peak."""
    family = _manifest()["chips"][table]["attention_family"]
    if family == "flash_attention_2":
        return _attention_curve(table, peaks)
    share = _FLASH_2_SHARE[family]
    there = _manifest()["chips"][_FLASH_2_TABLE]["peak_flop_per_s"]["bfloat16"]
    scale = share * _half(peaks, there) / (_FLASH_2_SHARE["flash_attention_2"] * there)
    return _scaled_attention(_FLASH_2_TABLE, scale)


def _half(peaks: Mapping[str, float], default: float) -> float:
    return peaks.get("bfloat16") or peaks.get("float16") or peaks.get("float32") or default


def _scaled_attention(table: str, scale: float) -> AttentionCurve:
    import numpy as np

    arrays = _arrays(table)
    return AttentionCurve(
        family=_manifest()["chips"][table]["attention_family"],
        head_dims=tuple(int(dim) for dim in arrays["attention_head_dims"]),
        log_lengths=np.log(arrays["attention_lengths"].astype(float)),
        log_heads=np.log(arrays["attention_heads"].astype(float)),
        log_flop_per_s=np.log(arrays["attention_flop_per_s"].astype(float) * scale),
    )


def _collective_curves(table: str) -> dict[str, CollectiveCurve]:
    """The chip's own collectives, and a stand-in for the link that it was not measured on."""
    own = table if _manifest()["chips"][table]["collectives"] else None
    chosen = {"nvlink": _NVLINK_TABLE, "pcie": _PCIE_TABLE}
    if own:
        chosen[_manifest()["chips"][own]["link"]] = own
    return {link: _collective_curve(name) for link, name in chosen.items()}


@lru_cache(maxsize=16)
def _collective_curve(table: str) -> CollectiveCurve:
    import numpy as np

    facts, arrays = _manifest()["chips"][table], _arrays(table)
    times = arrays["collective_s"].astype(float)
    return CollectiveCurve(
        link=facts["link"],
        link_bytes_per_s=facts["link_bytes_per_s"],
        ranks=tuple(int(count) for count in arrays["collective_ranks"]),
        log_bytes=np.log(arrays["collective_bytes"].astype(float)),
        time_s=MappingProxyType(dict(zip(_COLLECTIVES, times, strict=True))),
        source=f"{_manifest()['source']}, {table}: {facts['collectives']}",
    )


@lru_cache(maxsize=1)
def _manifest() -> Mapping[str, Any]:
    file = Path(__file__).with_name("data") / "kernels" / "chips.json"
    found: Mapping[str, Any] = json.loads(file.read_text("utf-8"))
    return found


@lru_cache(maxsize=16)
def _arrays(table: str) -> Arrays:
    import numpy as np

    file = Path(__file__).with_name("data") / "kernels" / f"{table}.npz"
    with file.open("rb") as stream, np.load(stream) as archive:
        return {name: archive[name] for name in archive.files}
