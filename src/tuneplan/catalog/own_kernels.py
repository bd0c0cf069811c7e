"""Kernel curves of a chip that the user measured: ``tuneplan catalog accelerators --measure``."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from tuneplan.catalog import values
from tuneplan.errors import InvalidQuantity
from tuneplan.language import Message, message
from tuneplan.spec.kernels import (
    AttentionCurve,
    GemmCurve,
    MeasuredAttention,
    MeasuredKernels,
    MeasuredProducts,
)

if TYPE_CHECKING:
    from tuneplan.catalog.documents import Located, Section

Number = TypeVar("Number", int, float)


def gemm_curves(measured: MeasuredKernels, peaks: Mapping[str, float]) -> dict[str, GemmCurve]:
    """One curve a dtype: its own, or that of another dtype at the ratio of their best rates."""
    import numpy as np

    own = {one.dtype: one for one in measured.products}
    curves = {}
    for dtype, peak in peaks.items():
        found = own.get(dtype) or next(iter(own.values()))
        slower = 1.0 if dtype in own else peaks[found.dtype] / peak
        shape = (len(found.m), len(found.n), len(found.k))
        curves[dtype] = GemmCurve(
            log_m=np.log(np.array(found.m, dtype=float)),
            log_n=np.log(np.array(found.n, dtype=float)),
            log_k=np.log(np.array(found.k, dtype=float)),
            log_time_s=np.log(np.array(found.time_s).reshape(shape) * slower),
        )
    return curves


def attention_curve(measured: MeasuredAttention, peaks: Mapping[str, float]) -> AttentionCurve:
    """The measured rates as those of 16-bit operands, which the estimate starts from."""
    import numpy as np

    half = peaks.get("bfloat16") or peaks.get("float16")
    ratio = half / peaks[measured.dtype] if half and measured.dtype in peaks else 1.0
    shape = (len(measured.head_dims), len(measured.lengths), len(measured.heads))
    rates = np.array(measured.flop_per_s).reshape(shape) * ratio
    return AttentionCurve(
        family="flash_attention_2",
        head_dims=measured.head_dims,
        log_lengths=np.log(np.array(measured.lengths, dtype=float)),
        log_heads=np.log(np.array(measured.heads, dtype=float)),
        log_flop_per_s=np.log(rates),
    )


def read_kernels(section: Section, source: str, dtypes: Collection[str]) -> MeasuredKernels | None:
    """What stands under ``kernels`` of an entry of an accelerator file; None where nothing does.

    ``dtypes`` are those that the chip has a dense rate for: only these can be timed.
    """
    from tuneplan.catalog.documents import Section as Inner

    found = section.get("kernels")
    if found is None:
        return None
    if not isinstance(found.value, dict):
        section.mistakes.add(message("not_a_mapping_here", "this must be a mapping"), found)
        return None
    inner = Inner(found, section.mistakes)
    products = _products(inner, dtypes)
    kernels = MeasuredKernels(
        products=products,
        attention=_attention(inner, dtypes),
        streaming_bytes_per_s=inner.require("streaming", values.bandwidth, default=1.0),
        cast_bytes_per_s=inner.require("cast", values.bandwidth, default=1.0),
        strided_bytes_per_s=inner.require("strided", values.bandwidth, default=1.0),
        host_operation_s=inner.require("host_operation_microseconds", values.real, default=1.0)
        * 1e-6,
        synchronous=inner.require("synchronous", values.yes_or_no, default=False),
        source=source,
    )
    inner.finish()
    return kernels if products else None


def _products(section: Section, dtypes: Collection[str]) -> tuple[MeasuredProducts, ...]:
    listed = section.get("products")
    if listed is None or not isinstance(listed.value, dict) or not listed.value:
        section.mistakes.add(
            message("no_measured_products", "products holds the timings of each dtype"),
            listed or section.at,
        )
        return ()
    kept = []
    for dtype, at in listed.value.items():
        if dtypes and dtype not in dtypes:
            section.mistakes.add(_not_timed(dtype, dtypes), at)
            continue
        read = _grid(at, section, ("m", "n", "k"), "microseconds")
        if read is not None:
            (m, n, k), times = read
            kept.append(
                MeasuredProducts(
                    dtype=dtype, m=m, n=n, k=k, time_s=tuple(one * 1e-6 for one in times)
                )
            )
    return tuple(kept)


def _attention(section: Section, dtypes: Collection[str]) -> MeasuredAttention | None:
    found = section.get("attention")
    if found is None:
        return None
    read = _grid(found, section, ("head_dims", "lengths", "heads"), "gflop_per_s", ("dtype",))
    if read is None:
        return None
    (head_dims, lengths, heads), rates = read
    at = found.value.get("dtype")
    dtype = str(at.value) if at is not None else "bfloat16"
    if at is not None and dtypes and dtype not in dtypes:
        section.mistakes.add(_not_timed(dtype, dtypes), at)
    return MeasuredAttention(
        dtype=dtype,
        head_dims=head_dims,
        lengths=lengths,
        heads=heads,
        flop_per_s=tuple(one * 1e9 for one in rates),
    )


def _not_timed(dtype: str, dtypes: Collection[str]) -> Message:
    """The chip has no dense rate for what was timed."""
    words = ", ".join(dtypes)
    return message("unknown_dtype", "{value!r} is none of {words}", value=dtype, words=words)


def _grid(
    at: Located,
    section: Section,
    axes: tuple[str, str, str],
    figure: str,
    more: tuple[str, ...] = (),
) -> tuple[tuple[tuple[int, ...], ...], tuple[float, ...]] | None:
    """Three ascending axes and a figure for each combination; None where something is wrong."""
    from tuneplan.catalog.documents import Section as Inner

    if not isinstance(at.value, dict):
        section.mistakes.add(message("not_a_mapping_here", "this must be a mapping"), at)
        return None
    inner = Inner(at, section.mistakes, list(more))
    no_sizes: tuple[int, ...] = ()
    no_figures: tuple[float, ...] = ()
    lists = tuple(inner.require(axis, _list_of(values.whole), default=no_sizes) for axis in axes)
    figures = inner.require(figure, _list_of(values.real), default=no_figures)
    inner.finish()
    wanted = math.prod(map(len, lists))
    ascending = all(list(axis) == sorted(set(axis)) for axis in lists)
    if wanted and figures and (len(figures) != wanted or not ascending):
        section.mistakes.add(
            message(
                "grid_does_not_match",
                "{figure} needs {wanted} values for ascending {axes}, the last running fastest; "
                "it has {found}",
                figure=figure,
                wanted=wanted,
                axes=", ".join(axes),
                found=len(figures),
            ),
            at,
        )
        return None
    return (lists, figures) if wanted and figures else None


def _list_of(parse: Callable[[Any], Number]) -> Callable[[Any], tuple[Number, ...]]:
    def read(value: Any) -> tuple[Number, ...]:
        if not isinstance(value, list) or not value:
            text = message("not_a_list_of_numbers", "this must be a list of numbers")
            raise InvalidQuantity(text)
        return tuple(parse(one.value) for one in value)

    return read
