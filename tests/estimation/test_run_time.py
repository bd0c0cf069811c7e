from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chips import A100, FULL, LORA, cluster, llama
from tuneplan.estimation.batches import BatchShape
from tuneplan.estimation.run_time import Schedule, run_time, steps_per_epoch, total_steps
from tuneplan.estimation.step_time import StepTime
from tuneplan.estimation.utilization import active_matmul_parameters, model_flop_per_token
from tuneplan.spec.answer import Estimate
from tuneplan.spec.parallelism import Parallelism, Strategy
from tuneplan.spec.recipe import Checkpointing, Method

STEP = StepTime(
    step_s=Estimate(low=1.8, likely=2.0, high=2.5), terms=(), forward_s=0.5, launch_share=0.0
)
BATCH = BatchShape(
    sequences=4,
    mean_length=1024.0,
    worst_length=1024.0,
    limit_length=1024.0,
    real_tokens=4096.0,
    samples=4.0,
    sequence_length=1024.0,
)


def run(*, step=STEP, schedule=None, ranks=1, recipe=FULL, **facts):
    defaults = {
        "num_samples": 10_000,
        "num_eval_samples": 0,
        "checkpoint_bytes": 0.0,
        "model_bytes": 0.0,
    }
    strategy = Strategy.DDP if ranks > 1 else Strategy.SINGLE
    return run_time(
        step=step,
        batch=facts.pop("batch", BATCH),
        recipe=recipe,
        parallelism=Parallelism(strategy=strategy, data=ranks),
        cluster=facts.pop("on", cluster(A100, cards=ranks)),
        schedule=schedule or Schedule(),
        **{**defaults, **facts},
    )


def test_ten_thousand_samples_in_batches_of_32_are_313_steps_an_epoch_and_939_in_three():
    per_epoch = steps_per_epoch(10_000, micro_batch=32, ranks=1, accumulation=1, rounds_up=True)
    assert per_epoch == 313
    assert total_steps(per_epoch, Schedule(num_train_epochs=3)) == 939


def test_transformers_4_45_drops_the_started_group_of_micro_batches():
    facts = {"micro_batch": 4, "ranks": 1, "accumulation": 8}
    # 2,500 micro-batches / 8 = 312.5.
    assert steps_per_epoch(10_000, **facts, rounds_up=True) == 313
    assert steps_per_epoch(10_000, **facts, rounds_up=False) == 312


def test_an_epoch_has_at_least_one_step():
    assert steps_per_epoch(3, micro_batch=4, ranks=8, accumulation=8, rounds_up=False) == 1


def test_max_steps_wins_over_epochs():
    assert total_steps(313, Schedule(num_train_epochs=3, max_steps=100)) == 100


@given(samples=st.integers(1, 10**6), ranks=st.sampled_from([1, 2, 4, 8]), up=st.booleans())
def test_more_ranks_never_need_more_steps(samples, ranks, up):
    one = steps_per_epoch(samples, micro_batch=2, ranks=ranks, accumulation=4, rounds_up=up)
    two = steps_per_epoch(samples, micro_batch=2, ranks=2 * ranks, accumulation=4, rounds_up=up)
    assert two <= one


def test_hours_are_steps_times_the_step():
    # 2,500 micro-batches of 4, no accumulation, three epochs: 7,500 steps of 2 s.
    found = run()
    assert found.steps == 7500
    assert found.train_s.likely == 15_000
    assert found.train_s.low == 7500 * 1.8


def test_four_cards_for_six_hours_are_24_accelerator_hours():
    schedule = Schedule(max_steps=10_755)  # 21,510 s of steps and 90 s of start-up: 6 h
    found = run(ranks=4, schedule=schedule)
    assert found.total_s.likely == 6 * 3600
    assert found.accelerator_hours.likely == 24


def test_throughput_counts_positions_and_tokens_apart():
    batch = replace(BATCH, real_tokens=3072.0)
    found = run(batch=batch, ranks=2, recipe=replace(FULL, gradient_accumulation_steps=3))
    assert found.tokens_per_step == 4096 * 6
    assert found.tokens_per_s_per_accelerator.likely == 4096 * 3 / 2.0
    assert found.real_tokens_per_s_per_accelerator.likely == 3072 * 3 / 2.0
    assert found.samples_per_s.likely == 4 * 6 / 2.0


def test_the_slow_end_of_the_step_is_the_low_end_of_the_rate():
    found = run().tokens_per_s_per_accelerator
    assert (found.low, found.high) == (4096 / 2.5, 4096 / 1.8)


def test_packed_rows_decide_the_steps():
    # 10,000 samples of 512 tokens, 32 a micro-batch of 4 rows: 1,250 rows, 313 micro-batches.
    packed = replace(BATCH, mean_length=4096.0, real_tokens=16384.0, samples=32.0)
    assert run(batch=packed).steps_per_epoch == 313


def test_evaluation_is_forward_passes_only():
    # 4 evaluations of 200 samples at 0.5 s for 4.
    schedule = Schedule(max_steps=1000, eval_steps=250)
    assert run(num_eval_samples=200, schedule=schedule).eval_s.likely == 4 * 200 / 4 * 0.5
    assert run(schedule=schedule).eval_s.likely == 0


def test_checkpoints_wait_for_the_disk():
    # 4 saves and the last one, 14.5 GB each at a stated 7 GB/s.
    schedule = Schedule(max_steps=2000, save_steps=500)
    on = cluster(A100, disk_bytes_per_s=7e9)
    found = run(schedule=schedule, checkpoint_bytes=14.5e9, on=on)
    assert found.checkpoint_s.likely == pytest.approx(5 * 14.5 / 7)
    assert found.assumptions == ()


def test_an_unknown_disk_is_an_assumption():
    assert [a.name for a in run(checkpoint_bytes=1e9).assumptions] == ["hardware.disk"]


def test_the_parts_of_the_run_sum_to_the_whole():
    found = run(checkpoint_bytes=1e9, model_bytes=14e9)
    assert sum(term.value for term in found.terms) == pytest.approx(found.total_s.likely)


def test_layers_of_mistral_multiply_218_million_parameters():
    layer = llama().groups[0].layer
    assert active_matmul_parameters(layer) == 218_112_000 - 2 * 4096


def test_full_training_needs_six_operations_a_parameter_and_token_and_attention():
    # 32 x 218,103,808 + 131,072,000 = 7,110,393,856 matmul parameters.
    # Attention: 32 layers x 6 x 256 x 32 heads x 4097 / 2 keys.
    found = model_flop_per_token(llama(), FULL, sequence_length=4096)
    assert found == 6 * 7_110_393_856 + 32 * 6 * 256 * 32 * 4097 / 2


def test_frozen_weights_need_four():
    found = model_flop_per_token(llama(), LORA, sequence_length=4096)
    attention = 32 * 6 * 256 * 32 * 4097 / 2
    assert found == 4 * 7_110_393_856 + 6 * 13_631_488 + attention


def test_layers_before_the_first_trained_one_need_two():
    # Freeze, the last 2 of 32 layers: 30 go forward only, 2 train, the head passes the gradient.
    frozen = replace(FULL, method=Method.FREEZE, trained_layers=2)
    found = model_flop_per_token(llama(), frozen, sequence_length=4096)
    layer, attention = 218_103_808, 6 * 256 * 32 * 4097 / 2
    expected = 30 * (2 * layer + attention / 3) + 2 * (6 * layer + attention) + 4 * 131_072_000
    assert found == pytest.approx(expected, rel=1e-12)


def test_an_adapter_on_the_head_alone_sends_nothing_back_into_the_layers():
    # Without checkpointing: 32 layers and the frozen head forward only.
    alone = replace(LORA.adapter, target_modules=("lm_head",))
    lora = replace(LORA, adapter=alone, gradient_checkpointing=Checkpointing.NONE)
    found = model_flop_per_token(llama(), lora, sequence_length=4096)
    attention = 32 * 6 * 256 * 32 * 4097 / 2
    assert found == pytest.approx(2 * 7_110_393_856 + attention / 3, rel=1e-12)


def test_utilisation_is_model_operations_over_the_peak():
    found = run(model_flop_per_token=45e9, recompute_flop_per_token=15e9, peak_flop_per_s=312e12)
    assert found.mfu_fraction == pytest.approx(45e9 * 4096 / 2 / 312e12)
    assert found.hfu_fraction == pytest.approx(60 / 45 * found.mfu_fraction)
    assert run().mfu_fraction is None


def test_a_share_of_the_run_is_rounded_up_to_whole_steps():
    schedule = Schedule(eval_steps=0.25, save_steps=0.3)
    assert schedule.num_evaluations(10, 5) == 3  # every ceil(2.5) = 3 of 10 steps
    assert schedule.num_saves(10, 5) == 1 + 3  # every 3 of 10 steps, and at the end


def test_what_is_due_each_epoch_happens_once_an_epoch():
    schedule = Schedule(evaluates_each_epoch=True, saves_each_epoch=True)
    assert schedule.num_evaluations(12, 5) == 3  # the third epoch is cut short
    assert schedule.num_saves(10, 5) == 1 + 2
