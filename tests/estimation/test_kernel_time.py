from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chips import A100, A100_PCIE, B200, H100, L40S, RTX_3090, T4
from tuneplan.catalog.accelerators import load_accelerators
from tuneplan.catalog.kernels import choose_table, load_curves
from tuneplan.errors import NotSupported
from tuneplan.estimation.kernel_time import (
    attention_flop,
    attention_time_s,
    gemm_time_s,
    operation_time_s,
    operation_times_s,
)
from tuneplan.estimation.operations import AttentionShape, Operation, OperationKind, Stage
from tuneplan.spec.recipe import AttentionKernel, DType

BF16 = DType.BFLOAT16
CHIPS = [A100, A100_PCIE, B200, H100, L40S, RTX_3090]
sizes = st.integers(64, 60_000)


def rate_tflop_per_s(chip, m, n, k, dtype="bfloat16"):
    return 2 * m * n * k / float(gemm_time_s(load_curves(chip).gemm[dtype], m, n, k)) / 1e12


def attention(kernel=AttentionKernel.FLASH_2, **changes):
    shape = AttentionShape(
        num_sequences=4,
        length=4096,
        num_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        v_head_dim=128,
        kernel=kernel,
    )
    return replace(shape, **changes)


def operation(kind=OperationKind.ELEMENTWISE, **facts):
    defaults = {"name": "x", "kind": kind, "stage": Stage.FORWARD, "dtype": BF16}
    return Operation(**{**defaults, **facts})


# Points of the source tables (aiconfigurator-core 0.12.0, median of its backends), in TFLOP/s.
@pytest.mark.parametrize(
    ("chip", "m", "n", "k", "measured", "tolerance"),
    [
        (A100, 4096, 4096, 4096, 254.8, 0.005),
        (A100, 8192, 16384, 4096, 247.6, 0.005),
        (A100, 2048, 4096, 16384, 268.4, 0.035),  # made monotone: a larger m was faster
        (A100, 16384, 1024, 4096, 256.4, 0.005),
        (H100, 4096, 4096, 4096, 788.6, 0.005),
        (H100, 8192, 16384, 4096, 668.3, 0.005),
        (A100, 4352, 16384, 4096, 239.7, 0.06),  # values of m that the curve does not hold
        (A100, 3840, 4096, 16384, 235.3, 0.06),
        (H100, 3840, 4096, 16384, 788.0, 0.06),
    ],
)
def test_curves_reproduce_points_of_their_tables(chip, m, n, k, measured, tolerance):
    assert rate_tflop_per_s(chip, m, n, k) == pytest.approx(measured, rel=tolerance)


def test_large_products_run_at_the_published_medians():
    # Medians of the source tables over m, n, k >= 4096, in TFLOP/s.
    for chip, median in ((A100, 250), (H100, 760), (B200, 1507), (L40S, 205)):
        assert rate_tflop_per_s(chip, 8192, 8192, 8192) == pytest.approx(median, rel=0.1)


def test_eight_bit_products_on_hopper_are_faster_than_sixteen_bit_ones():
    assert rate_tflop_per_s(H100, 8192, 8192, 8192, "float8") > 1.3 * rate_tflop_per_s(
        H100, 8192, 8192, 8192
    )


def test_newer_chips_are_faster_in_large_products():
    rates = [rate_tflop_per_s(chip, 16384, 4096, 14336) for chip in (A100, H100, B200)]
    assert rates == sorted(rates)


@given(m=sizes, n=sizes, k=sizes)
def test_no_product_beats_the_datasheet_peak(m, n, k):
    for chip in CHIPS:
        peak = chip.dense_flop_per_s["bfloat16"]
        assert rate_tflop_per_s(chip, m, n, k) * 1e12 <= peak * 1.05


@given(n=sizes, k=sizes, m=st.integers(512, 20_000))
def test_twice_the_tokens_take_longer(m, n, k):
    curve = load_curves(A100).gemm["bfloat16"]
    assert gemm_time_s(curve, 2 * m, n, k) > gemm_time_s(curve, m, n, k)


@given(m=st.integers(32_768, 200_000), factor=st.floats(1.1, 8))
def test_beyond_the_table_time_is_proportional(m, factor):
    curve = load_curves(A100).gemm["bfloat16"]
    assert gemm_time_s(curve, m * factor, 4096, 4096) == pytest.approx(
        factor * float(gemm_time_s(curve, m, 4096, 4096))
    )


def test_an_empty_product_takes_no_time():
    assert float(gemm_time_s(load_curves(A100).gemm["bfloat16"], 0, 4096, 4096)) == 0


@given(tokens=st.lists(sizes, min_size=1, max_size=5))
def test_arrays_and_scalars_give_the_same_seconds(tokens):
    curves = load_curves(A100)
    m = np.array(tokens, dtype=float)
    product = operation(OperationKind.MATMUL, m=m, n=4096.0, k=1024.0)
    flash = operation(OperationKind.ATTENTION, attention=attention(length=m))
    stream = operation(bytes_moved=m * 8192)
    for many in (product, flash, stream):
        together = operation_time_s(many, curves)
        for index, token in enumerate(tokens):
            shape = many.attention and replace(many.attention, length=float(token))
            one = replace(
                many,
                m=float(token) if np.ndim(many.m) else many.m,
                bytes_moved=token * 8192.0 if np.ndim(many.bytes_moved) else 0.0,
                attention=shape,
            )
            assert operation_time_s(one, curves) == pytest.approx(together[index])


def test_products_priced_together_cost_what_they_cost_alone():
    curves = load_curves(H100)
    operations = [
        operation(OperationKind.MATMUL, m=1000.0, n=4096.0, k=4096.0, count=32),
        operation(bytes_moved=1e9),
        operation(OperationKind.GROUPED_MATMUL, m=8000.0, n=1536.0, k=2048.0, num_groups=8),
        operation(OperationKind.MATMUL, m=np.array([1.0, 2.0]), n=512.0, k=512.0),
    ]
    for one, seconds in zip(operations, operation_times_s(operations, curves), strict=True):
        assert seconds == pytest.approx(operation_time_s(one, curves) * one.count)


def test_experts_with_few_rows_run_below_the_rate_of_one_large_product():
    curves = load_curves(H100)
    grouped = operation(OperationKind.GROUPED_MATMUL, m=8192.0, n=1536.0, k=2048.0, num_groups=128)
    whole = operation(OperationKind.MATMUL, m=8192.0, n=1536.0, k=2048.0)
    assert operation_time_s(grouped, curves) > operation_time_s(whole, curves)


def test_grouped_products_are_slower_than_their_roofline_on_the_a100_and_not_on_hopper():
    # CUTLASS grouped products of the source tables over our formula: 1.59 and 0.97.
    assert load_curves(A100).grouped_slowdown == pytest.approx(1.59)
    assert load_curves(H100).grouped_slowdown == pytest.approx(0.97)


def test_a_chip_without_a_table_borrows_the_nearest_and_says_so():
    curves = load_curves(RTX_3090)
    assert (curves.table, curves.measured) == ("a100_sxm", False)
    assert curves.assumptions[0].name == "hardware.kernels"
    assert load_curves(A100).assumptions == ()
    # 71 TFLOP/s x the A100's 0.79 of peak = 56.
    assert rate_tflop_per_s(RTX_3090, 8192, 8192, 8192) == pytest.approx(56, rel=0.1)


def test_a_measured_best_product_corrects_the_borrowed_peak():
    # A100 PCIe 252.9 against SXM 271.2 TFLOP/s: 7 % slower at the same datasheet peak.
    ratio = rate_tflop_per_s(A100_PCIE, 8192, 8192, 8192) / rate_tflop_per_s(A100, 8192, 8192, 8192)
    assert ratio == pytest.approx(252.9 / 271.2, rel=0.01)


def test_a_best_product_above_the_datasheet_counts_too():
    # RTX 4090: 172 TFLOP/s published at 8192 x 8192 x 8192, 165.2 on its datasheet.
    card = load_accelerators().resolve("RTX 4090").accelerator
    assert rate_tflop_per_s(card, 8192, 8192, 8192) == pytest.approx(172, rel=0.03)


def test_chips_that_cannot_hold_their_clock_borrow_from_one_that_cannot_either():
    assert choose_table(T4)[0] == "l40s"  # 65 TFLOP/s at 70 W


def test_a_dtype_the_chip_lacks_is_refused_by_name():
    with pytest.raises(NotSupported, match="NVIDIA T4 has no rate for products in bfloat16"):
        operation_time_s(operation(OperationKind.MATMUL, m=1.0, n=1.0, k=1.0), load_curves(T4))


def test_causal_attention_counts_half_of_the_square():
    # 4 x 32 heads x 4096 x 4097 / 2 pairs x 2 x (128 + 128) operations.
    assert attention_flop(attention()) == 4 * 32 * (4096 * 4097 / 2) * 2 * 256
    assert attention_flop(attention(backward=True)) == 2.5 * attention_flop(attention())


def test_a_window_bounds_the_keys_of_every_query():
    # Window 1024: the first 1024 queries see 1..1024 keys, each later one 1024.
    pairs = 1024 * 1025 / 2 + (4096 - 1024) * 1024
    assert attention_flop(attention(window=1024)) == 4 * 32 * pairs * 512


def test_flash_attention_2_reaches_about_half_of_the_a100_at_long_lengths():
    curves = load_curves(A100)
    for length, share in ((2048, 0.45), (4096, 0.51), (16384, 0.56)):
        shape = attention(length=length)
        rate = attention_flop(shape) / attention_time_s(shape, curves)
        assert rate / 312e12 == pytest.approx(share, abs=0.03)


def test_the_backward_kernel_takes_two_and_three_quarters_of_the_forward():
    curves = load_curves(A100)
    forward = attention_time_s(attention(), curves)
    assert attention_time_s(attention(backward=True), curves) / forward == pytest.approx(2.75)


def test_attention_kernels_rank_as_published():
    curves = load_curves(H100)
    order = [
        AttentionKernel.FLASH_3,
        AttentionKernel.FLASH_2,
        AttentionKernel.FLEX,
        AttentionKernel.SDPA_EFFICIENT,
        AttentionKernel.EAGER,
    ]
    times = [attention_time_s(attention(kernel), curves) for kernel in order]
    assert times == sorted(times)


@given(length=st.integers(64, 30_000))
def test_longer_sequences_take_longer(length):
    for kernel in AttentionKernel:
        one = attention_time_s(attention(kernel, length=length), load_curves(A100))
        two = attention_time_s(attention(kernel, length=2 * length), load_curves(A100))
        assert two > one


def test_streaming_takes_bytes_over_four_fifths_of_the_bandwidth():
    # 1.6312 GB at 0.8 x 2039 GB/s: 1 ms.
    seconds = operation_time_s(operation(bytes_moved=1.6312e9), load_curves(A100))
    assert seconds == pytest.approx(1e-3)


def test_casts_and_strided_kernels_stream_at_sixty_and_forty_three_per_cent_of_an_a100():
    curves = load_curves(A100)
    # 2.039 GB at the datasheet's bandwidth: 1 ms.
    cast = operation(bytes_moved=2.039e9, cast_bytes=2.039e9)
    strided = operation(bytes_moved=2.039e9, strided_bytes=2.039e9)
    assert operation_time_s(cast, curves) == pytest.approx(1e-3 / 0.60, rel=0.01)
    assert operation_time_s(strided, curves) == pytest.approx(1e-3 / 0.43, rel=0.01)


def test_narrow_loads_do_not_hold_up_a_chip_with_little_bandwidth_per_multiprocessor():
    # RTX 4090: 128 multiprocessors at 2.52 GHz for 1,008 GB/s, the A100 108 at 1.41 for 2,039.
    rates = {"bfloat16": 165e12, "float32": 82.6e12}
    card = replace(
        RTX_3090,
        compute_capability=8.9,
        dense_flop_per_s=rates,
        memory_bandwidth_bytes_per_s=1008e9,
    )
    curves = load_curves(card)
    strided = operation(bytes_moved=1e9, strided_bytes=1e9)
    assert operation_time_s(strided, curves) == operation_time_s(operation(bytes_moved=1e9), curves)


def test_thin_products_of_an_adapter_reach_two_thirds_of_the_bandwidth():
    # 16,384 x 4,096 read in bf16 (134 MB) against a rank of 16: bound by memory, measured at 0.65.
    one = operation(
        OperationKind.ADAPTER, m=16384.0, n=16.0, k=4096.0, flops=2.0 * 16384 * 16 * 4096
    )
    seconds = operation_time_s(one, load_curves(A100))
    assert 16384 * 4096 * 2 / seconds / 2039e9 == pytest.approx(0.65, abs=0.03)


@given(bytes_moved=st.floats(1e3, 1e11), factor=st.floats(1.01, 4))
def test_more_bandwidth_is_never_slower(bytes_moved, factor):
    slow = load_curves(A100)
    fast = replace(slow, memory_bandwidth_bytes_per_s=slow.memory_bandwidth_bytes_per_s * factor)
    for kind in (OperationKind.ELEMENTWISE, OperationKind.LOSS, OperationKind.OPTIMIZER):
        one = operation(kind, bytes_moved=bytes_moved)
        assert operation_time_s(one, fast) < operation_time_s(one, slow)


# Fused kernels of Liger (benchmark/data/all_benchmark_data.csv at ead96b6): measured milliseconds,
# and the bytes the kernel has to read and write.
@pytest.mark.parametrize(
    ("chip", "moved", "measured_ms"),
    [
        (A100, 2048 * 32768 * 2 * 2, 0.1822),  # RMSNorm forward, bf16: read and write
        (A100, 16384 * (8192 + 2048) * 2 * 2, 0.4105),  # rotary, q and k, bf16
        (A100, 4096 * 16384 * 4 * 2, 0.3223),  # LayerNorm forward, fp32
        (H100, 4096 * 16384 * 4 * 2, 0.1848),  # LayerNorm forward, fp32
        (H100, 2048 * 32768 * 4 * 4, 0.4338),  # add + RMSNorm: two read, two written
    ],
)
def test_memory_bound_kernels_take_their_bytes_over_the_streaming_rate(chip, moved, measured_ms):
    seconds = operation_time_s(operation(bytes_moved=float(moved)), load_curves(chip))
    assert seconds * 1e3 == pytest.approx(measured_ms, rel=0.12)
