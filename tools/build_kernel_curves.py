"""Derive the compact kernel curves of ``tuneplan.catalog`` from published kernel timings.

Usage::

    python tools/build_kernel_curves.py aiconfigurator_core-0.12.0-*.whl \
        src/tuneplan/catalog/data/kernels

Source: the wheel ``aiconfigurator-core`` 0.12.0 on PyPI (Apache-2.0, NVIDIA), folder
``systems/data``: measured GEMM, attention and collective timings. Needs pyarrow, which tuneplan
itself does not. Writes one ``<chip>.npz`` a chip, ``chips.json`` (where each table comes from) and
``summary.csv`` (a few rates a person can check, and how well held-out shapes are reproduced).
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

PACKAGE = "aiconfigurator-core 0.12.0 (PyPI, Apache-2.0)"
ROOT = "aiconfigurator_core/systems/data"
STEPS_PER_E = 200  # GEMM times are stored as steps of 0.5 % over the roofline

# Rows of the curves. The measured table has 74 values of m; these keep its whole range and drop
# the m + 1 twins that show tile quantisation, and most of m < 256, which no training step uses.
M_GRID = (
    *(1, 8, 16, 32, 64, 128, 256, 512, 768, 1024, 1280, 1536, 1792, 2048),
    *(2560, 3072, 3584, 4096, 8192, 16384, 32768),
)
HEADS_GRID = tuple(2**power for power in range(13))  # sequences x query heads
COLLECTIVES = ("all_gather", "reduce_scatter", "all_reduce")
SHORTEST_LENGTH = 64  # shorter sequences are launch-bound whatever the kernel


@dataclass(frozen=True, slots=True)
class Products:
    """Tables of one dtype's products: their median is taken shape by shape."""

    tables: tuple[str, ...]  # backend/version
    gemm_dtype: str
    kernel: str

    def __str__(self) -> str:
        return f"median of {', '.join(self.tables)} ({self.gemm_dtype}): {self.kernel}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """Which tables one chip is read from, and its datasheet (FLOP/s, bytes/s)."""

    peak: dict[str, float]
    bandwidth: float
    gemm: dict[str, Products]  # by our dtype
    attention: tuple[str, str, str]  # backend/version, kernel_source, kernel family
    experts: str | None  # backend/version of grouped products: CUTLASS where there is a table
    collectives: str | None
    link: str
    link_bytes_per_s: float  # one direction per card
    devices: tuple[str, ...]  # catalogue names of the chips that were measured
    best_product: float | None = None  # bf16 MAMF, stas00/ml-engineering at 744d01e1
    bandwidth_efficiency: float = 0.8  # systems/<chip>.yaml: mem_bw_empirical_scaling_factor
    extra: dict[str, Any] = field(default_factory=dict)


_TORCH = "torch.nn.functional.linear"


def _bf16(*tables: str) -> Products:
    return Products(
        tables or ("sglang/0.5.14", "trtllm/1.3.0rc20", "vllm/0.24.0"), "bfloat16", _TORCH
    )


def _fp8() -> Products:
    return Products(("trtllm/1.3.0rc20",), "fp8", "cuBLASLt scaled matmul")


CHIPS: dict[str, Chip] = {
    "a100_sxm": Chip(
        peak={"bfloat16": 312e12},
        bandwidth=2.039e12,
        gemm={"bfloat16": _bf16("sglang/0.5.10", "trtllm/1.0.0", "vllm/0.14.0")},
        attention=("vllm/0.14.0", "vllm_flash_attn", "flash_attention_2"),
        experts="trtllm/1.0.0",
        collectives="nccl/2.27.3",
        link="nvlink",
        link_bytes_per_s=3e11,
        devices=("NVIDIA A100 SXM 80GB",),
        best_product=271.2e12,
    ),
    "h100_sxm": Chip(
        peak={"bfloat16": 989e12, "float8": 1979e12},
        bandwidth=3.35e12,
        gemm={"bfloat16": _bf16(), "float8": _fp8()},
        attention=("vllm/0.24.0", "vllm_flash_attn_fa3", "flash_attention_3"),
        experts="trtllm/1.3.0rc20",
        collectives="nccl/2.29.2",
        link="nvlink",
        link_bytes_per_s=4.5e11,
        devices=("NVIDIA H100 SXM",),
        best_product=794.5e12,
    ),
    "h200_sxm": Chip(
        peak={"bfloat16": 989e12, "float8": 1979e12},
        bandwidth=4.8e12,
        gemm={"bfloat16": _bf16(), "float8": _fp8()},
        attention=("vllm/0.24.0", "vllm_flash_attn_fa3", "flash_attention_3"),
        experts="trtllm/1.3.0rc20",
        collectives="nccl/2.29.2",
        link="nvlink",
        link_bytes_per_s=4.5e11,
        devices=("NVIDIA H200 SXM",),
        best_product=794.5e12,
    ),
    "l40s": Chip(
        peak={"bfloat16": 362e12, "float8": 733e12},
        bandwidth=0.864e12,
        gemm={"bfloat16": _bf16(), "float8": _fp8()},
        attention=("vllm/0.24.0", "vllm_flash_attn_fa2", "flash_attention_2"),
        experts="trtllm/1.3.0rc20",
        collectives=None,  # the L40S file is of a broken host: 0.7 GB/s at 8 cards
        link="pcie",
        link_bytes_per_s=3.2e10,
        devices=("NVIDIA L40S",),
    ),
    "b200_sxm": Chip(
        peak={"bfloat16": 2250e12, "float8": 4500e12},
        bandwidth=7.672e12,
        gemm={"bfloat16": _bf16(), "float8": _fp8()},
        attention=("vllm/0.24.0", "vllm_flashinfer_trtllmprefill", "blackwell"),
        experts="trtllm/1.3.0rc20",
        collectives="nccl/2.29.2",
        link="nvlink",
        link_bytes_per_s=9e11,
        devices=("NVIDIA B200 SXM",),
        best_product=1745e12,
    ),
    "b300_sxm": Chip(
        peak={"bfloat16": 2250e12, "float8": 4500e12},
        bandwidth=8.0e12,
        gemm={"bfloat16": _bf16(), "float8": _fp8()},
        attention=("vllm/0.24.0", "vllm_flashinfer_trtllmprefill", "blackwell"),
        experts="trtllm/1.3.0rc20",
        collectives="nccl/2.29.2",
        link="nvlink",
        link_bytes_per_s=9e11,
        devices=("NVIDIA B300 SXM",),
        best_product=1769e12,
    ),
    "gb200": Chip(
        peak={"bfloat16": 2500e12, "float8": 5000e12},
        bandwidth=8.0e12,
        gemm={"bfloat16": _bf16(), "float8": _fp8()},
        attention=("vllm/0.24.0", "vllm_flashinfer_trtllmprefill", "blackwell"),
        experts="trtllm/1.3.0rc20",
        collectives="nccl/2.29.2",
        link="nvlink",
        link_bytes_per_s=9e11,
        devices=("NVIDIA GB200",),
        best_product=1822e12,
    ),
    "gb300": Chip(
        peak={"bfloat16": 2500e12, "float8": 5000e12},
        bandwidth=8.0e12,
        gemm={"bfloat16": _bf16(), "float8": _fp8()},
        attention=("vllm/0.24.0", "vllm_flashinfer_trtllmprefill", "blackwell"),
        experts="trtllm/1.3.0rc20",
        collectives="nccl/2.29.2",
        link="nvlink",
        link_bytes_per_s=9e11,
        devices=("NVIDIA GB300",),
    ),
    "rtx_pro_6000_server": Chip(
        peak={"bfloat16": 467.8e12, "float8": 935.6e12},
        bandwidth=1.792e12,
        gemm={"bfloat16": _bf16(), "float8": _fp8()},
        attention=("vllm/0.24.0", "vllm_flash_attn_fa2", "flash_attention_2"),
        experts="trtllm/1.3.0rc20",
        collectives="nccl/2.29.2",
        link="pcie",
        link_bytes_per_s=6.4e10,
        devices=("NVIDIA RTX PRO 6000 Blackwell",),
    ),
    "b60": Chip(
        peak={"bfloat16": 98.3e12},
        bandwidth=0.456e12,
        gemm={"bfloat16": _bf16("vllm/0.26.0")},
        attention=("vllm/0.26.0", "vllm_flash_attn", "flash_attention_2"),
        experts="vllm/0.26.0",
        collectives="oneccl/2021.17.2",
        link="pcie",
        link_bytes_per_s=3.2e10,
        devices=("Intel Arc Pro B60",),
        bandwidth_efficiency=0.5,  # same file: 220 of 456 GB/s in a kernel benchmark
    ),
}


@dataclass(frozen=True, slots=True)
class Wheel:
    """The tables inside the wheel."""

    archive: zipfile.ZipFile

    def table(self, path: str) -> dict[str, np.ndarray[Any, Any]]:
        """One parquet file as columns."""
        with self.archive.open(f"{ROOT}/{path}") as stream:
            columns = pq.read_table(stream)
        return {name: columns[name].to_numpy(zero_copy_only=False) for name in columns.column_names}


def roofline_s(m: Any, n: Any, k: Any, *, peak: float, bandwidth: float, size: int) -> Any:
    """Least time of a product: its operations at the peak, or its bytes at the bandwidth."""
    m, n, k = (np.asarray(x, dtype=float) for x in (m, n, k))
    moved = size * (m * k + k * n) + 2.0 * m * n
    return np.maximum(2.0 * m * n * k / peak, moved / bandwidth)


def gemm_rows(wheel: Wheel, chip: str, dtype: str) -> dict[str, np.ndarray[Any, Any]]:
    """``m``, ``n``, ``k`` and seconds: the median of the chosen tables, shape by shape."""
    products = CHIPS[chip].gemm[dtype]
    keys, times = [], []
    for backend in products.tables:
        table = wheel.table(f"{chip}/gemm/{backend}/gemm_perf.parquet")
        keep = table["gemm_dtype"].astype(str) == products.gemm_dtype
        m, n, k = (table[axis][keep].astype(np.int64) for axis in "mnk")
        keys.append((m << 40) | (n << 20) | k)
        times.append(table["latency"][keep].astype(float) / 1e3)
    key, time = np.concatenate(keys), np.concatenate(times)
    order = np.lexsort((time, key))
    key, time = key[order], time[order]
    shapes, first, count = np.unique(key, return_index=True, return_counts=True)
    median = (time[first + (count - 1) // 2] + time[first + count // 2]) / 2
    low = (1 << 20) - 1
    return {"m": shapes >> 40, "n": (shapes >> 20) & low, "k": shapes & low, "time_s": median}


def gemm_cube(
    rows: dict[str, np.ndarray[Any, Any]], m_axis: Any, n_axis: Any, k_axis: Any
) -> np.ndarray[Any, Any]:
    """Seconds on the grid, NaN where the table has no such shape."""
    cube = np.full((len(m_axis), len(n_axis), len(k_axis)), np.nan)
    at = [
        np.searchsorted(axis, rows[name])
        for axis, name in zip((m_axis, n_axis, k_axis), "mnk", strict=True)
    ]
    on_grid = np.ones(len(rows["m"]), dtype=bool)
    for axis, name, index in zip((m_axis, n_axis, k_axis), "mnk", at, strict=True):
        inside = index < len(axis)
        on_grid &= inside & (np.asarray(axis)[np.where(inside, index, 0)] == rows[name])
    cube[at[0][on_grid], at[1][on_grid], at[2][on_grid]] = rows["time_s"][on_grid]
    return cube


def fill_gaps(residual: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Fill shapes that were not measured from their neighbours along n, k, then m."""
    filled = residual.copy()
    for axis in (1, 2, 0):
        if not np.isnan(filled).any():
            break
        moved = np.moveaxis(filled, axis, 0)
        flat = moved.reshape(len(moved), -1)
        for column in range(flat.shape[1]):
            known = ~np.isnan(flat[:, column])
            if known.any() and not known.all():
                where = np.arange(len(flat))
                flat[~known, column] = np.interp(where[~known], where[known], flat[known, column])
        filled = np.moveaxis(flat.reshape(moved.shape), 0, axis)
    return filled


def monotone(log_time: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same times, never falling as m, n or k grows.

    A few per cent of the measured shapes are slower than a larger shape: noise, or an unlucky
    choice of cuBLAS. The envelope from above (the largest time so far) and the one from below (the
    least time still to come) are both monotone; their mean is, and moves the average time by less
    than one per cent on most chips.
    """
    for axis in range(3):
        above = np.maximum.accumulate(log_time, axis=axis)
        below = np.flip(np.minimum.accumulate(np.flip(log_time, axis), axis=axis), axis)
        log_time = (above + below) / 2
    return log_time


def interpolate(cube: np.ndarray[Any, Any], axes: Any, at: Any) -> np.ndarray[Any, Any]:
    """Logarithm of time, linear in the logarithms of m, n, k (as ``estimation`` does it)."""
    low, weight = [], []
    for axis, value in zip(axes, at, strict=True):
        grid = np.log(np.asarray(axis, dtype=float))
        x = np.clip(np.log(value), grid[0], grid[-1])
        index = np.clip(np.searchsorted(grid, x, side="right") - 1, 0, len(grid) - 2)
        low.append(index)
        weight.append((x - grid[index]) / (grid[index + 1] - grid[index]))
    total = np.zeros(len(at[0]))
    for corner in range(8):
        bits = [(corner >> position) & 1 for position in range(3)]
        share = np.ones(len(at[0]))
        for bit, w in zip(bits, weight, strict=True):
            share = share * (w if bit else 1 - w)
        total += share * cube[low[0] + bits[0], low[1] + bits[1], low[2] + bits[2]]
    return total


def held_out_errors(
    rows: dict[str, np.ndarray[Any, Any]], axes: tuple[Any, Any, Any]
) -> dict[str, tuple[float, float, int]]:
    """Relative error on shapes the curve has not seen: other m, a left-out n, a left-out k.

    Only shapes of training size are scored: m >= 512, n and k from 512 to 16384.
    """
    training = (rows["m"] >= 512) & (rows["n"] >= 512) & (rows["k"] >= 512)
    training &= (rows["n"] <= 16384) & (rows["k"] <= 16384)
    found: dict[str, tuple[float, float, int]] = {}
    for name in ("m", "n", "k"):
        errors = []
        position = "mnk".index(name)
        if name == "m":
            trials = [(axes, training & ~np.isin(rows["m"], axes[0]))]
        else:
            trials = [
                (
                    tuple(
                        np.array([v for v in axis if v != left]) if i == position else axis
                        for i, axis in enumerate(axes)
                    ),
                    training & (rows[name] == left) & np.isin(rows["m"], axes[0]),
                )
                for left in axes[position][1:-1]
                if 512 <= left <= 16384
            ]
        for grid, scored in trials:
            if not scored.any():
                continue
            cube = monotone(fill_gaps(np.log(gemm_cube(rows, *grid))))
            at = [rows[axis][scored] for axis in "mnk"]
            guess = np.exp(interpolate(cube, grid, at))
            errors.append(guess / rows["time_s"][scored] - 1)
        if errors:
            size = np.abs(np.concatenate(errors))
            found[name] = (float(np.median(size)), float(np.quantile(size, 0.9)), len(size))
    return found


def attention_rates(
    wheel: Wheel, chip: str
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Head dims, lengths and forward FLOP/s on causal work by (head_dim, length, heads)."""
    backend, kernel, _ = CHIPS[chip].attention
    table = wheel.table(f"{chip}/attention/{backend}/context_attention_perf.parquet")
    keep = (table["kernel_source"].astype(str) == kernel) & (table["isl"] >= SHORTEST_LENGTH)
    keep &= table["attn_dtype"].astype(str) == "bfloat16"
    keep &= table["kv_cache_dtype"].astype(str) == "bfloat16"
    keep &= (table["step"] == 0) & (table["head_dim"] <= 256)
    if "window_size" in table:
        keep &= np.nan_to_num(table["window_size"].astype(float)) <= 0
    length, heads, dim, batch, milliseconds = (
        table[name][keep].astype(float)
        for name in ("isl", "num_heads", "head_dim", "batch_size", "latency")
    )
    parallel = batch * heads
    rate = 4.0 * parallel * dim * (length * (length + 1) / 2) / (milliseconds / 1e3)
    dims, lengths = np.unique(dim), np.unique(length)
    grid = np.full((len(dims), len(lengths), len(HEADS_GRID)), np.nan)
    bucket = np.round(np.log2(parallel)).astype(int)
    for i, one_dim in enumerate(dims):
        for j, one_length in enumerate(lengths):
            for position in range(len(HEADS_GRID)):
                chosen = (dim == one_dim) & (length == one_length) & (bucket == position)
                if chosen.any():
                    grid[i, j, position] = np.median(rate[chosen])
    for i in range(len(dims)):
        for j in range(len(lengths)):
            row = grid[i, j]
            known = ~np.isnan(row)
            where = np.arange(len(row))
            if known.any():
                row[:] = np.interp(where, where[known], row[known])
    complete = ~np.isnan(grid).any(axis=(1, 2))
    return dims[complete].astype(np.int32), lengths.astype(np.int32), grid[complete]


def collective_times(
    wheel: Wheel, chip: str
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Ranks, full-tensor bytes and seconds by (collective, ranks, bytes).

    ``message_size`` of the table counts elements of the full tensor (two bytes for ``half``).
    """
    version = CHIPS[chip].collectives
    assert version is not None  # noqa: S101 - called only for chips that have a table
    name = version.split("/")[0]
    table = wheel.table(f"{chip}/comm/{version}/{name}_perf.parquet")
    half = table["nccl_dtype"].astype(str) == "half"
    ranks = np.unique(table["num_gpus"][half])
    sizes = np.unique(table["message_size"][half])
    times = np.full((len(COLLECTIVES), len(ranks), len(sizes)), np.nan)
    for i, collective in enumerate(COLLECTIVES):
        for j, count in enumerate(ranks):
            chosen = half & (table["op_name"].astype(str) == collective)
            chosen &= table["num_gpus"] == count
            order = np.argsort(table["message_size"][chosen])
            found = table["message_size"][chosen][order]
            latency = table["latency"][chosen][order].astype(float) / 1e3
            times[i, j] = np.maximum.accumulate(np.interp(np.log(sizes), np.log(found), latency))
    return ranks.astype(np.int32), sizes.astype(np.int64) * 2, times


def grouped_slowdown(
    wheel: Wheel, chip: str, log_time: np.ndarray[Any, Any], axes: tuple[Any, Any, Any]
) -> tuple[float, float, float]:
    """Measured time of a layer of experts over our formula for it: median, P10, P90.

    The formula is that of ``estimation.kernel_time``: experts are one product of the rows of one
    expert with all experts' columns. Scored on 512 tokens and more, evenly routed, bf16, with the
    traffic of the input's gather, the gated activation and the weighted sum.
    """
    facts = CHIPS[chip]
    table = wheel.table(f"{chip}/moe/{facts.experts}/moe_perf.parquet")
    keep = (table["moe_dtype"].astype(str) == "bfloat16") & (table["num_tokens"] >= 512)
    keep &= (table["moe_tp_size"] == 1) & (table["moe_ep_size"] == 1)
    if "balanced" in table["distribution"].astype(str):
        keep &= table["distribution"].astype(str) == "balanced"
    tokens, top, experts, hidden, inner, milliseconds = (
        table[name][keep].astype(float)
        for name in ("num_tokens", "topk", "num_experts", "hidden_size", "inter_size", "latency")
    )
    rows = tokens * top
    seconds = np.zeros(len(rows))
    for columns, depth in ((2 * inner * experts, hidden), (hidden * experts, inner)):
        at = (rows / experts, columns, depth)
        beyond = np.prod(
            [np.maximum(x / axis[-1], 1.0) for x, axis in zip(at, axes, strict=True)], axis=0
        )
        seconds += np.exp(interpolate(log_time, axes, at)) * beyond
    moved = rows * 2 * (2 * hidden + 3 * inner + 2 * hidden)
    seconds += moved / (facts.bandwidth * facts.bandwidth_efficiency)
    ratio = milliseconds / 1e3 / seconds
    return tuple(float(np.quantile(ratio, q)) for q in (0.5, 0.1, 0.9))  # type: ignore[return-value]


def best_rate(rows: dict[str, np.ndarray[Any, Any]]) -> float:
    """99th percentile of FLOP/s over shapes of training size, to hold against published bests."""
    chosen = (rows["m"] >= 1024) & (rows["n"] >= 1024) & (rows["k"] >= 1024)
    chosen &= (rows["n"] <= 16384) & (rows["k"] <= 16384)
    rate = 2.0 * rows["m"] * rows["n"] * rows["k"] / rows["time_s"]
    return float(np.quantile(rate[chosen], 0.99))


def build_chip(wheel: Wheel, chip: str, folder: Path) -> tuple[dict[str, Any], list[list[Any]]]:
    """Write one chip's file; return its manifest entry and its rows of the summary."""
    facts = CHIPS[chip]
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    summary: list[list[Any]] = []
    for dtype, products in facts.gemm.items():
        rows = gemm_rows(wheel, chip, dtype)
        axes = (
            np.array([m for m in M_GRID if m in set(rows["m"].tolist())]),
            np.unique(rows["n"]),
            np.unique(rows["k"]),
        )
        every_m = np.unique(rows["m"])
        cube = monotone(fill_gaps(np.log(gemm_cube(rows, every_m, *axes[1:]))))
        cube = cube[np.isin(every_m, axes[0])]
        if dtype == "bfloat16" and facts.experts is not None:
            facts.extra["grouped"] = grouped_slowdown(wheel, chip, cube, axes)
            summary.append(
                [chip, "experts bfloat16: time over formula (median, P10, P90)", facts.experts]
                + [f"{value:.2f}" for value in facts.extra["grouped"]]
                + [""] * 6
            )
        size = 1 if dtype == "float8" else 2
        floor = roofline_s(
            *np.meshgrid(*axes, indexing="ij"),
            peak=facts.peak[dtype],
            bandwidth=facts.bandwidth,
            size=size,
        )
        m, n, k = np.meshgrid(*(axis.astype(float) for axis in axes), indexing="ij")
        # A few single shapes beat the datasheet (a short benchmark's clock): not in a real run.
        cube = np.maximum(cube, np.log(2.0 * m * n * k / facts.peak[dtype]))
        arrays[f"gemm_{dtype}"] = np.round((cube - np.log(floor)) * STEPS_PER_E).astype(np.int16)
        for name, axis in zip("mnk", axes, strict=True):
            arrays[f"gemm_{dtype}_{name}"] = axis.astype(np.int32)
        large = (rows["m"] >= 4096) & (rows["n"] >= 4096) & (rows["k"] >= 4096)
        large &= (rows["n"] <= 16384) & (rows["k"] <= 16384)
        rate = 2.0 * rows["m"] * rows["n"] * rows["k"] / rows["time_s"]
        typical = float(np.median(rate[large]))
        errors = held_out_errors(rows, axes)
        summary.append(
            [
                *(chip, f"gemm {dtype}", str(products)),
                f"{typical / 1e12:.0f}",
                f"{typical / facts.peak[dtype]:.2f}",
                f"{best_rate(rows) / 1e12:.0f}",
                *(
                    f"{errors[axis][part]:.3f}" if axis in errors else ""
                    for axis in "mnk"
                    for part in (0, 1)
                ),
            ]
        )
        facts.extra[f"large_{dtype}"] = typical
    dims, lengths, rates = attention_rates(wheel, chip)
    arrays["attention_head_dims"], arrays["attention_lengths"] = dims, lengths
    arrays["attention_heads"] = np.array(HEADS_GRID, dtype=np.int32)
    arrays["attention_flop_per_s"] = rates.astype(np.float32)
    for i, dim in enumerate(dims):
        rate = float(rates[i, list(lengths).index(4096), 7])
        summary.append(
            [
                *(chip, f"attention head_dim {dim}, length 4096, 128 heads"),
                f"{facts.attention[0]}: {facts.attention[1]}",
                f"{rate / 1e12:.0f}",
                f"{rate / facts.peak['bfloat16']:.2f}",
                *[""] * 7,
            ]
        )
    if facts.collectives is not None:
        ranks, sizes, times = collective_times(wheel, chip)
        arrays["collective_ranks"], arrays["collective_bytes"] = ranks, sizes
        arrays["collective_s"] = times.astype(np.float32)
    np.savez_compressed(folder / f"{chip}.npz", allow_pickle=False, **arrays)
    entry = {
        "peak_flop_per_s": facts.peak,
        "memory_bandwidth_bytes_per_s": facts.bandwidth,
        "large_gemm_flop_per_s": {
            dtype: round(facts.extra[f"large_{dtype}"] / 1e9) * 1e9 for dtype in facts.gemm
        },
        "gemm": {dtype: str(products) for dtype, products in facts.gemm.items()},
        "grouped_slowdown": round(facts.extra["grouped"][0], 2) if facts.experts else None,
        "attention": f"{facts.attention[0]}: {facts.attention[1]}",
        "attention_family": facts.attention[2],
        "collectives": facts.collectives,
        "link": facts.link,
        "link_bytes_per_s": facts.link_bytes_per_s,
        "devices": list(facts.devices),
        "best_product_flop_per_s": facts.best_product,
        "bandwidth_efficiency": facts.bandwidth_efficiency,
    }
    return entry, summary


def main(arguments: list[str]) -> int:
    """Build every chip."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", default=sorted(CHIPS))
    chosen = parser.parse_args(arguments)
    chosen.folder.mkdir(parents=True, exist_ok=True)
    manifest: dict[str, Any] = {"source": PACKAGE, "steps_per_e": STEPS_PER_E, "chips": {}}
    lines: list[list[Any]] = []
    with zipfile.ZipFile(chosen.wheel) as archive:
        for chip in chosen.only:
            print(f"{chip} ...", flush=True)
            manifest["chips"][chip], rows = build_chip(Wheel(archive), chip, chosen.folder)
            lines += rows
    (chosen.folder / "chips.json").write_text(json.dumps(manifest, indent=1) + "\n")
    with (chosen.folder / "summary.csv").open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        header = ["chip", "table", "source", "tflop_per_s", "share_of_peak", "best_tflop_per_s"]
        header += [f"held_out_{axis}_{what}_error" for axis in "mnk" for what in ("median", "p90")]
        writer.writerow(header)
        writer.writerows(lines)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
