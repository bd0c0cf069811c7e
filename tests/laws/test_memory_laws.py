"""Laws of the memory count, over recipes nobody prepared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from settings import FP32_ADAMW, LLAMA_3_8B, MIXTRAL, TINY_LLAMA, adapter, recipe
from tuneplan.estimation.memory import count_memory
from tuneplan.estimation.persistent import persistent, shards_of
from tuneplan.spec.parallelism import Parallelism, Strategy
from tuneplan.spec.recipe import (
    AttentionKernel,
    Checkpointing,
    DType,
    Kernels,
    Loss,
    LossPath,
    Method,
    OptimizerFamily,
    OptimizerImplementation,
    Quantization,
    TrainingRecipe,
)

_LOSSES = st.builds(
    Loss,
    path=st.sampled_from(LossPath),
    upcast_logits=st.booleans(),
    shifted_copy=st.booleans(),
    holds_model_logits=st.booleans(),
    keeps_logits=st.booleans(),
    keeps_softmax=st.booleans(),
    fp32_gradients=st.booleans(),
)
_OPTIMIZERS = st.builds(
    lambda family, how, width: replace(
        FP32_ADAMW, family=family, implementation=how, state_dtype=width
    ),
    st.sampled_from(OptimizerFamily),
    st.sampled_from(OptimizerImplementation),
    st.sampled_from([DType.FLOAT32, DType.BFLOAT16]),
)
_KERNELS = st.builds(
    Kernels, fused_norm=st.booleans(), fused_rope=st.booleans(), fused_mlp=st.booleans()
)


@st.composite
def recipes(draw: st.DrawFn) -> TrainingRecipe:
    """Any recipe of part of the space that has a formula."""
    method = draw(st.sampled_from([Method.FULL, Method.LORA, Method.QLORA, Method.DORA]))
    changes: dict[str, object] = {"method": method}
    if method is not Method.FULL:
        changes["adapter"] = adapter(
            r=draw(st.sampled_from([4, 16, 64])),
            use_dora=method is Method.DORA,
            lora_dropout=draw(st.sampled_from([0.0, 0.1])),
            dtype=draw(st.sampled_from([DType.FLOAT32, DType.BFLOAT16])),
        )
    if method is Method.QLORA:
        changes["quantization"] = Quantization(double_quant=draw(st.booleans()))
    return recipe(
        **changes,
        loss=draw(_LOSSES),
        optimizer=draw(_OPTIMIZERS),
        kernels=draw(_KERNELS),
        gradient_checkpointing=draw(
            st.sampled_from([Checkpointing.NONE, Checkpointing.FULL, Checkpointing.OFFLOAD])
        ),
        use_reentrant=draw(st.booleans()),
        expand_key_value=draw(st.booleans()),
        attention=draw(
            st.sampled_from(
                [AttentionKernel.FLASH_2, AttentionKernel.EAGER, AttentionKernel.SDPA_EFFICIENT]
            )
        ),
        gradient_accumulation_steps=draw(st.sampled_from([1, 4])),
    )


_STRATEGIES = st.sampled_from(
    [Strategy.ZERO1, Strategy.ZERO2, Strategy.ZERO3, Strategy.FSDP, Strategy.FSDP2]
)


def peak(settings_: TrainingRecipe, *, sequences: float, length: float) -> float:
    count = count_memory(TINY_LLAMA, settings_, Parallelism(), sequences=sequences, length=length)
    return float(count.peak_bytes)


@given(recipes(), st.sampled_from([1, 2, 4]), st.sampled_from([128, 512, 2048]))
@settings(max_examples=60, deadline=None)
def test_more_sequences_or_longer_ones_never_need_less(settings_, sequences, length):
    here = peak(settings_, sequences=sequences, length=length)
    assert peak(settings_, sequences=2 * sequences, length=length) >= here
    assert peak(settings_, sequences=sequences, length=2 * length) >= here


@given(recipes(), st.sampled_from([4, 16]))
@settings(max_examples=40, deadline=None)
def test_a_larger_rank_never_needs_less(settings_, rank):
    if settings_.adapter is None:
        return
    small = replace(settings_, adapter=replace(settings_.adapter, r=rank))
    large = replace(settings_, adapter=replace(settings_.adapter, r=4 * rank))
    assert peak(large, sequences=1, length=512) >= peak(small, sequences=1, length=512)


@given(recipes(), _STRATEGIES, st.sampled_from([1, 2, 4, 8]))
@settings(max_examples=60, deadline=None)
def test_sharding_over_more_ranks_never_raises_persistent_bytes_per_rank(
    settings_, strategy, ranks
):
    held = persistent(TINY_LLAMA, settings_)

    def per_rank(count: int) -> float:
        weights, gradients, states = shards_of(Parallelism(strategy=strategy, data=count))
        return (
            (held.frozen_bytes + held.trained_bytes + held.adapter_bytes + held.quantized_bytes)
            / weights
            + held.gradient_bytes / gradients
            + (held.state_bytes + held.master_bytes) / states
        )

    assert per_rank(2 * ranks) <= per_rank(ranks)


@given(recipes(), _STRATEGIES, st.sampled_from([1, 8]))
@settings(max_examples=30, deadline=None)
def test_base_and_phase_parts_add_up_to_every_phase(settings_, strategy, ranks):
    layout = Parallelism(strategy=strategy, data=ranks, activation_gather=True)
    count = count_memory(TINY_LLAMA, settings_, layout, sequences=2, length=512)
    for phase, total in count.by_phase.items():
        parts = sum(count.base.values()) + sum(count.at_phase[phase].values())
        assert float(total) == pytest.approx(float(parts), rel=1e-12)


@given(recipes())
@settings(max_examples=40, deadline=None)
def test_many_micro_batches_at_once_count_as_each_does_alone(settings_):
    sequences = np.array([1.0, 2.0, 3.0, 8.0])
    lengths = np.array([512.0, 128.0, 1024.0, 256.0])
    together = count_memory(
        TINY_LLAMA, settings_, Parallelism(), sequences=sequences, length=lengths
    ).peak_bytes
    alone = [
        peak(settings_, sequences=one, length=long)
        for one, long in zip(sequences, lengths, strict=True)
    ]
    assert np.allclose(together, alone, rtol=1e-12)


@given(recipes())
@settings(max_examples=20, deadline=None)
def test_checkpointing_never_keeps_more_per_layer(settings_):
    none = replace(settings_, gradient_checkpointing=Checkpointing.NONE)
    full = replace(settings_, gradient_checkpointing=Checkpointing.FULL)
    one = count_memory(LLAMA_3_8B, none, Parallelism(), sequences=1, length=512)
    other = count_memory(LLAMA_3_8B, full, Parallelism(), sequences=1, length=512)
    assert max(map(float, other.by_phase.values())) <= max(map(float, one.by_phase.values()))


@given(recipes())
@settings(max_examples=20, deadline=None)
def test_experts_are_held_whole_but_used_in_part(settings_):
    held = persistent(MIXTRAL, settings_)
    everything = held.frozen_bytes + held.trained_bytes + held.quantized_bytes
    assert everything >= 0.5 * MIXTRAL.total_parameters
