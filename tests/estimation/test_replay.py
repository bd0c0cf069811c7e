"""The replayed job: what it allocates is what the count says, and the allocator does the rest."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from settings import (
    FP32_ADAMW,
    LLAMA_3_8B,
    MISTRAL_7B,
    MIXTRAL,
    PURE_BF16_ADAMW,
    TINY_LLAMA,
    adapter,
    recipe,
)
from tuneplan.estimation.memory import assemble
from tuneplan.estimation.persistent import persistent
from tuneplan.estimation.replay import replay_job, shortage
from tuneplan.estimation.replayed_job import Loading, can_replay, job_of
from tuneplan.estimation.walking import walk_model
from tuneplan.spec.parallelism import Offload, Parallelism, Strategy
from tuneplan.spec.recipe import (
    AttentionKernel,
    Checkpointing,
    DType,
    Kernels,
    Loss,
    LossPath,
    Method,
    OptimizerImplementation,
    Quantization,
)
from tuneplan.units import GIB

ONE_CARD = Parallelism()
MIB = 2**20
EVERYWHERE = adapter(
    target_modules=("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
)
FP32_MASTERS = {
    "method": Method.FULL,
    "optimizer": FP32_ADAMW,
    "trainable_dtype": DType.FLOAT32,
    "norm_dtype": DType.FLOAT32,
    "hidden_dtype": DType.FLOAT32,
    "autocast": True,
}
QLORA = {
    "method": Method.QLORA,
    "adapter": EVERYWHERE,
    "quantization": Quantization(double_quant=True),
    "outer_dtype": DType.FLOAT32,
    "norm_dtype": DType.FLOAT32,
    "hidden_dtype": DType.FLOAT32,
}
RECIPES = {
    "LoRA": {"adapter": EVERYWHERE},
    "LoRA, non-reentrant": {"adapter": EVERYWHERE, "use_reentrant": False},
    "LoRA, no checkpointing": {
        "adapter": EVERYWHERE,
        "gradient_checkpointing": Checkpointing.NONE,
    },
    "LoRA, checkpoints on the host": {
        "adapter": EVERYWHERE,
        "gradient_checkpointing": Checkpointing.OFFLOAD,
    },
    "LoRA, fused loss": {"adapter": EVERYWHERE, "loss": Loss(path=LossPath.FUSED_LINEAR)},
    "LoRA, fused kernels": {
        "adapter": EVERYWHERE,
        "loss": Loss(path=LossPath.FUSED_LINEAR),
        "kernels": Kernels(fused_norm=True, fused_rope=True, fused_mlp=True),
    },
    "LoRA, eager attention": {"adapter": EVERYWHERE, "attention": AttentionKernel.EAGER},
    "LoRA, accumulating": {"adapter": EVERYWHERE, "gradient_accumulation_steps": 4},
    "LoRA, logits held": {"adapter": EVERYWHERE, "keeps_outputs": True},
    "LoRA, logits held to the step's end": {
        "adapter": EVERYWHERE,
        "keeps_outputs": True,
        "outputs_die_with_step": True,
    },
    "DoRA": {"adapter": replace(EVERYWHERE, use_dora=True), "method": Method.DORA},
    "QLoRA": QLORA,
    "full": {"method": Method.FULL, "optimizer": PURE_BF16_ADAMW},
    "full, no checkpointing": {
        "method": Method.FULL,
        "optimizer": PURE_BF16_ADAMW,
        "gradient_checkpointing": Checkpointing.NONE,
    },
    "full, step in backward": {
        "method": Method.FULL,
        "optimizer": replace(
            PURE_BF16_ADAMW, implementation=OptimizerImplementation.FUSED, in_backward=True
        ),
    },
    "full, fp32 under autocast": FP32_MASTERS,
    "full, fp32 under autocast, no checkpointing": {
        **FP32_MASTERS,
        "gradient_checkpointing": Checkpointing.NONE,
    },
    "the last layers": {
        "method": Method.FREEZE,
        "trained_layers": 4,
        "optimizer": PURE_BF16_ADAMW,
    },
}


def walked(model, settings, *, length=2048.0, sequences=2.0, parallelism=ONE_CARD):
    return walk_model(model, settings, parallelism, sequences=sequences, length=length, record=True)


def replayed(model, settings, *, lengths=(2048.0,), parallelism=ONE_CARD, loading=None):
    """The last of the lengths is the batch, those before it its history."""
    *history, batch = (
        walked(model, settings, length=length, parallelism=parallelism) for length in lengths
    )
    return replay_job(
        job_of(
            batch, settings, parallelism,
            compute_capability=8.0, loading=loading, history=history,
        )
    )  # fmt: skip


def counted(model, settings, *, parallelism=ONE_CARD):
    return assemble(
        walked(model, settings, parallelism=parallelism),
        settings,
        parallelism,
        persistent(model, settings),
        8.0,
    )


@pytest.mark.parametrize("name", RECIPES)
def test_what_the_replay_allocates_at_most_is_the_counted_peak_and_the_rounding(name):
    settings = recipe(**RECIPES[name])
    peak = float(counted(TINY_LLAMA, settings).peak_bytes)
    played = replayed(TINY_LLAMA, settings)
    assert peak * (1 - 1e-4) <= played.peak_allocated_bytes <= peak * 1.002
    assert played.peak_reserved_bytes >= played.peak_allocated_bytes
    assert 0 <= played.fragmentation_bytes <= played.peak_reserved_bytes


@pytest.mark.parametrize("model", [LLAMA_3_8B, MISTRAL_7B, MIXTRAL], ids=lambda model: model.name)
def test_large_matrices_leave_no_rounding_to_speak_of(model):
    settings = recipe(adapter=adapter())
    peak = float(counted(model, settings).peak_bytes)
    assert replayed(model, settings).peak_allocated_bytes == pytest.approx(peak, rel=5e-4)


def test_data_parallel_ranks_hold_their_buckets():
    parallelism = Parallelism(strategy=Strategy.DDP, data=4)
    settings = recipe(method=Method.FULL, optimizer=PURE_BF16_ADAMW)
    peak = float(counted(TINY_LLAMA, settings, parallelism=parallelism).peak_bytes)
    played = replayed(TINY_LLAMA, settings, parallelism=parallelism)
    assert played.peak_allocated_bytes == pytest.approx(peak, rel=3e-3)


def test_a_frozen_layer_below_the_trained_ones_keeps_nothing():
    few, more = (
        replayed(
            TINY_LLAMA,
            recipe(
                method=Method.FREEZE,
                trained_layers=layers,
                optimizer=PURE_BF16_ADAMW,
                gradient_checkpointing=Checkpointing.NONE,
                loss=Loss(path=LossPath.FUSED_LINEAR),
            ),
        ).peak_allocated_bytes
        for layers in (2, 4)
    )
    assert more > few


@given(st.sampled_from(sorted(RECIPES)), st.floats(0.3, 0.95))
@limits(deadline=None, max_examples=15)
def test_an_earlier_shorter_batch_never_lowers_what_the_allocator_reserves_at_worst(name, share):
    settings = recipe(**RECIPES[name])
    length = float(round(1024 * share))
    played = replayed(TINY_LLAMA, settings, lengths=(length, 1024.0))
    assert played.reserved_after_history_bytes >= played.peak_reserved_bytes
    assert played.peak_reserved_bytes >= played.peak_allocated_bytes


def test_lengths_that_grow_leave_blocks_that_are_each_a_little_too_small():
    """Full logits of 0.8, 0.9 and 1.0 x 2 x 2048 tokens: none of the earlier blocks is reused."""
    settings = recipe(adapter=adapter())
    alone = replayed(TINY_LLAMA, settings)
    grown = replayed(TINY_LLAMA, settings, lengths=(1640.0, 1844.0, 2048.0))
    logits = 2 * 2048 * 32000 * 4  # 500 MiB in fp32
    assert grown.peak_allocated_bytes == pytest.approx(alone.peak_allocated_bytes, rel=0.01)
    assert grown.reserved_after_history_bytes - alone.peak_reserved_bytes > 2 * logits


def test_a_job_fits_in_what_it_reserves_and_not_in_less_than_it_allocates():
    played = replayed(TINY_LLAMA, recipe(adapter=EVERYWHERE))
    assert played.fits(played.peak_reserved_bytes)
    assert not played.fits(played.peak_allocated_bytes - MIB)


def test_cached_blocks_are_given_back_before_a_request_fails():
    """Longer batches reserve half as much again, yet run where a little more than the peak is."""
    played = replayed(LLAMA_3_8B, recipe(adapter=adapter()), lengths=(1640.0, 1844.0, 2048.0))
    assert played.reserved_after_history_bytes > 1.3 * played.peak_allocated_bytes
    assert played.fits(int(1.06 * played.peak_allocated_bytes))


def test_a_shortage_says_what_was_asked_for_and_what_was_there():
    settings = recipe(adapter=adapter())
    job = job_of(walked(LLAMA_3_8B, settings), settings, ONE_CARD, compute_capability=8.0)
    weights_alone = 16 * GIB  # 8.03e9 parameters x 2 B = 14.96 GiB, and nothing for logits
    refused = shortage(job, weights_alone)
    assert refused is not None
    assert refused.limit_bytes == weights_alone
    assert refused.allocated_bytes > 14.9 * GIB
    assert refused.segment_bytes > refused.card_free_bytes


def test_expandable_segments_need_less_where_lengths_vary():
    settings = recipe(adapter=adapter())
    history = [walked(TINY_LLAMA, settings, length=length) for length in (1640.0, 1844.0)]
    job = job_of(
        walked(TINY_LLAMA, settings), settings, ONE_CARD, compute_capability=8.0, history=history
    )
    played = replay_job(job)
    limit = int(1.05 * played.peak_allocated_bytes)
    assert shortage(job, limit, expandable=True) is None
    assert shortage(job, limit) is not None


def test_loading_in_threads_or_after_one_large_block_moves_reserved_but_not_allocated():
    settings = recipe(**QLORA)
    ways = [
        Loading(),
        Loading(reserved_bytes_per_weight=0.5, reserved_fraction_of_rest=1.0, threads=4),
        Loading(empties_cache=True),
    ]
    played = [replayed(TINY_LLAMA, settings, loading=way) for way in ways]
    allocated = [one.peak_allocated_bytes for one in played]
    assert max(allocated) < 1.01 * min(allocated)
    assert len({one.peak_reserved_bytes for one in played}) > 1


@pytest.mark.parametrize(
    ("parallelism", "expected"),
    [
        (Parallelism(), True),
        (Parallelism(strategy=Strategy.DDP, data=8), True),
        (Parallelism(strategy=Strategy.FSDP, data=8), False),
        (Parallelism(strategy=Strategy.ZERO2, data=8), False),
        (Parallelism(offload=Offload.OPTIMIZER), False),
    ],
)
def test_only_what_one_card_holds_whole_is_replayed(parallelism, expected):
    assert can_replay(parallelism) is expected


def test_a_walk_that_was_not_recorded_cannot_be_replayed():
    settings = recipe(adapter=adapter())
    walk = walk_model(TINY_LLAMA, settings, ONE_CARD, sequences=1.0, length=512.0)
    with pytest.raises(ValueError, match="not recorded"):
        job_of(walk, settings, ONE_CARD)
