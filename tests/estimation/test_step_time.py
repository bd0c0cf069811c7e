from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chips import A100, FULL, H100, RTX_3090, cluster, llama
from tuneplan.catalog.kernels import load_curves
from tuneplan.estimation.operations import AttentionShape, Operation, OperationKind, Stage
from tuneplan.estimation.step_time import (
    SYNCHRONIZE_S,
    compute_time,
    prior_width,
    step_time,
)
from tuneplan.spec.parallelism import Parallelism, Strategy
from tuneplan.spec.recipe import AttentionKernel, DType, Kernels

BF16 = DType.BFLOAT16
MODEL = llama()
CURVES = load_curves(A100)


def layer(tokens, *, launches=50.0):
    """A coarse decoder layer, forward and backward, of Mistral's shape."""
    shapes = [(4096, 4096, 2), (1024, 4096, 2), (14336, 4096, 2), (4096, 14336, 1)]
    found = []
    for stage in (Stage.FORWARD, Stage.RECOMPUTE, Stage.BACKWARD, Stage.BACKWARD):
        found += [
            Operation(
                name="linear",
                kind=OperationKind.MATMUL,
                stage=stage,
                dtype=BF16,
                count=32.0 * times,
                m=tokens,
                n=float(n),
                k=float(k),
                flops=2.0 * tokens * n * k,
            )
            for n, k, times in shapes
        ]
    for stage in (Stage.FORWARD, Stage.RECOMPUTE, Stage.BACKWARD):
        found.append(
            Operation(
                name="self_attn",
                kind=OperationKind.ATTENTION,
                stage=stage,
                dtype=BF16,
                count=32.0,
                attention=AttentionShape(
                    num_sequences=tokens / 4096.0,
                    length=4096.0,
                    num_heads=32,
                    num_key_value_heads=8,
                    head_dim=128,
                    v_head_dim=128,
                    kernel=AttentionKernel.FLASH_2,
                    backward=stage is Stage.BACKWARD,
                ),
            )
        )
        found.append(
            Operation(
                name="norm",
                kind=OperationKind.ELEMENTWISE,
                stage=stage,
                dtype=BF16,
                count=32.0,
                launches=launches,
                bytes_moved=tokens * 600_000.0,
            )
        )
    return found


LOSS = Operation(
    name="loss",
    kind=OperationKind.LOSS,
    stage=Stage.FORWARD,
    dtype=BF16,
    launches=10.0,
    bytes_moved=4e9,
)
ADAM = Operation(
    name="adamw",
    kind=OperationKind.OPTIMIZER,
    stage=Stage.STEP,
    dtype=BF16,
    launches=100.0,
    bytes_moved=7.24e9 * 22,
)


def step(tokens=16384.0, *, recipe=FULL, chip=A100, parallelism=None, on=None, launches=50.0):
    return step_time(
        operations_per_micro_batch=[*layer(tokens, launches=launches), LOSS],
        operations_per_step=[ADAM],
        recipe=recipe,
        parallelism=parallelism or Parallelism(),
        cluster=on or cluster(chip),
        curves=load_curves(chip),
        architecture=MODEL,
    )


def test_terms_sum_to_the_likely_step():
    found = step()
    assert found.step_s.likely == pytest.approx(sum(term.value for term in found.terms))
    assert found.step_s.low < found.step_s.likely < found.step_s.high
    assert all(term.formula and term.source for term in found.terms)


def test_a_7b_full_step_of_16k_tokens_takes_five_to_six_seconds_on_an_a100():
    # 8 x 6.98e9 x 16384 operations at 250 TFLOP/s are 3.7 s; the rest is attention, traffic, AdamW.
    assert step().step_s.likely == pytest.approx(5.0, abs=0.6)


@given(tokens=st.integers(1, 16), factor=st.integers(2, 4))
def test_more_tokens_take_longer(tokens, factor):
    few = step(4096.0 * tokens).step_s.likely
    assert step(4096.0 * tokens * factor).step_s.likely > few


@given(accumulation=st.integers(1, 32))
def test_micro_batches_add_up_and_the_optimizer_runs_once(accumulation):
    recipe = replace(FULL, gradient_accumulation_steps=accumulation)
    terms = {term.kind: term.value for term in step(recipe=recipe).terms}
    once = {term.kind: term.value for term in step().terms}
    assert terms["matmul"] == pytest.approx(accumulation * once["matmul"])
    assert terms["optimizer"] == pytest.approx(once["optimizer"])


def test_the_faster_chip_takes_less_time():
    slow, middle, fast = (step(chip=chip).step_s.likely for chip in (RTX_3090, A100, H100))
    assert fast < middle < slow


@given(factor=st.floats(1.01, 4))
def test_more_bandwidth_never_makes_a_step_slower(factor):
    faster = replace(
        CURVES, memory_bandwidth_bytes_per_s=CURVES.memory_bandwidth_bytes_per_s * factor
    )
    operations = [*layer(8192.0), LOSS]
    one = compute_time(operations, [ADAM], FULL, CURVES).total_s
    assert compute_time(operations, [ADAM], FULL, faster).total_s < one


def test_arrays_price_many_candidates_at_once():
    tokens = np.array([4096.0, 8192.0, 32768.0])
    many = compute_time(layer(tokens), [ADAM], FULL, CURVES)
    for index, token in enumerate(tokens):
        alone = compute_time(layer(float(token)), [ADAM], FULL, CURVES)
        assert np.asarray(many.total_s)[index] == pytest.approx(alone.total_s)
        assert np.asarray(many.forward_s)[index] == pytest.approx(alone.forward_s)


def test_a_step_that_waits_for_the_host_takes_launches_times_host_time():
    tiny = [
        Operation(
            name="norm",
            kind=OperationKind.ELEMENTWISE,
            stage=Stage.FORWARD,
            dtype=BF16,
            count=32.0,
            launches=100.0,
            bytes_moved=1e3,
        )
    ]
    found = compute_time(tiny, [], FULL, CURVES)
    assert found.total_s == pytest.approx(3200 * FULL.kernels.host_launch_s)


def test_launches_that_block_are_hidden_by_nothing():
    kernels = replace(FULL.kernels, blocking_launches=True)
    layers = layer(65536.0)
    free = compute_time(layers, [], FULL, CURVES)
    blocked = compute_time(layers, [], replace(FULL, kernels=kernels), CURVES)
    assert free.launch_s == 0.0
    assert blocked.launch_s == pytest.approx(free.launches * (12e-6 + SYNCHRONIZE_S))


def test_long_kernels_hide_their_launches():
    assert "launch" not in {term.kind for term in step(65536.0).terms}


def test_a_compiled_step_waits_less_for_the_host():
    recipe = replace(FULL, kernels=Kernels(compiled=True))
    compiled = step(256.0, recipe=recipe, launches=400.0)
    assert compiled.step_s.likely < step(256.0, launches=400.0).step_s.likely


def test_a_borrowed_table_and_a_waiting_host_widen_the_range():
    def width(found):
        return found.step_s.high / found.step_s.low

    assert width(step(chip=RTX_3090)) > width(step())
    assert width(step(256.0, launches=400.0)) > width(step())


def test_deepspeed_on_several_cards_may_take_much_longer_than_its_terms():
    def high(strategy):
        found = step(parallelism=Parallelism(strategy=strategy, data=4))
        return found.step_s.high / found.step_s.likely

    assert high(Strategy.ZERO3) > 1.5 > high(Strategy.FSDP)
    one_card = step(parallelism=Parallelism(strategy=Strategy.ZERO2, data=1))
    assert one_card.step_s.high / one_card.step_s.likely < 1.2


def test_the_range_of_a_waiting_host_is_that_of_its_time_for_an_operation():
    found = step(16.0, launches=4000.0)
    assert found.launch_share > 0.5
    # All of the step waits: twice the host time of an operation is nearly twice the step.
    assert 1.8 < found.step_s.high / found.step_s.likely < 2.2


def test_weights_unpacked_step_by_step_widen_the_range_by_their_share():
    one = {"dequantize": 0.5}
    alone, cards = Parallelism(strategy=Strategy.SINGLE), cluster(A100)
    steps = prior_width(CURVES, alone, cards, one, unpacks=True)
    kernel = prior_width(CURVES, alone, cards, one)
    none = prior_width(CURVES, alone, cards, {}, unpacks=True)
    assert steps[0] < kernel[0] == none[0]
    assert steps[1] > kernel[1] == none[1]


def test_several_cards_add_their_collectives_to_the_step():
    parallelism = Parallelism(strategy=Strategy.FSDP, data=4)
    found = step(parallelism=parallelism, on=cluster(A100, cards=4))
    terms = {term.kind: term.value for term in found.terms}
    assert found.step_s.likely == pytest.approx(step().step_s.likely + terms["communication"])
