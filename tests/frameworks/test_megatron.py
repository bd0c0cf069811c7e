"""Megatron-LM, NeMo and Megatron-DeepSpeed: what they make of a job."""

from __future__ import annotations

import pytest

from frameworks.sample_models import A100, H100, model
from tuneplan.errors import InvalidRequest, NotSupported
from tuneplan.frameworks import resolve_recipe
from tuneplan.spec.parallelism import Strategy
from tuneplan.spec.recipe import AttentionKernel, Checkpointing, DType
from tuneplan.spec.stated import StatedParallelism, StatedRecipe, StatedTraining


def resolved(framework, *, cards=16, chip=H100, date=None, facts=None, training=None, **layout):
    recipe = StatedRecipe(
        framework=framework, method="full", date=date, facts=facts or {},
        training=training or StatedTraining(), parallelism=StatedParallelism(**layout),
    )  # fmt: skip
    return resolve_recipe(recipe, model(), chip, world_size=cards, num_nodes=max(1, cards // 8))


@pytest.mark.parametrize("framework", ["megatron", "nemo"])
def test_half_weights_fp32_gradients_masters_and_moments(framework):
    recipe = resolved(framework, tensor=2).recipe
    assert (recipe.trainable_dtype, recipe.compute_dtype) == (DType.BFLOAT16, DType.BFLOAT16)
    assert recipe.gradient_dtype is DType.FLOAT32
    assert recipe.gradient_buffer
    assert recipe.optimizer.master_weights
    assert recipe.optimizer.state_dtype is DType.FLOAT32
    assert not recipe.autocast


def test_megatron_replicates_the_optimizer_and_nemo_shares_it():
    assert resolved("megatron", tensor=2).parallelism.strategy is Strategy.DDP
    assert resolved("nemo", tensor=2).parallelism.strategy is Strategy.ZERO1


def test_the_cards_are_data_ranks_times_the_degrees():
    layout = resolved("nemo", cards=16, tensor=2, pipeline=2, context=2).parallelism
    assert (layout.data, layout.world_size) == (2, 16)


def test_nemo_overlaps_what_megatron_does_not_and_both_say_so():
    nemo, megatron = resolved("nemo", tensor=2), resolved("megatron", tensor=2)
    assert nemo.parallelism.sequence
    assert nemo.parallelism.overlap_tensor
    assert not megatron.parallelism.sequence
    assert not megatron.parallelism.overlap_tensor
    for found in (nemo, megatron):
        names = {assumption.name for assumption in found.assumptions}
        assert {
            "behaviour.sequence_parallel",
            "behaviour.overlap_tensor",
            "behaviour.overlap_gradients",
        } <= names


def test_selective_recomputation_runs_attention_alone_again():
    recipe = resolved("nemo", training=StatedTraining(gradient_checkpointing="selective")).recipe
    assert recipe.gradient_checkpointing is Checkpointing.NONE
    assert recipe.recomputes_attention


def test_eager_attention_is_megatron_s_fused_softmax():
    training = StatedTraining(attn_implementation="eager")
    recipe = resolved("megatron-deepspeed", chip=A100, training=training, pipeline=2).recipe
    assert recipe.attention is AttentionKernel.FUSED_SOFTMAX


def test_layers_were_megatron_s_own_before_transformer_engine_was_the_default():
    before = resolved("megatron", chip=A100, date="2022-02").recipe.kernels
    after = resolved("megatron", chip=A100, date="2025-06").recipe.kernels
    assert (before.fused_norm, after.fused_norm) == (False, True)


def test_a_row_names_virtual_stages_and_shared_positions():
    facts = {"parallelism": "tp=2,pp=2,vp=4,sp"}
    layout = resolved("megatron", tensor=2, pipeline=2, facts=facts).parallelism
    assert (layout.virtual_stages, layout.sequence) == (4, True)


def test_fsdp_over_nothing_in_a_row_is_no_fsdp():
    facts = {"parallelism": "fsdp=0,tp=2,pp=1"}
    assert resolved("nemo", tensor=2, facts=facts).parallelism.strategy is Strategy.ZERO1


@pytest.mark.parametrize(
    ("cards", "layout", "word"),
    [
        (8, {"tensor": 3}, "does not divide"),
        (8, {"pipeline": 16}, "does not divide"),
        (64, {"pipeline": 64}, "cannot fill"),
        (8, {"tensor": 2, "expert": 2}, "no experts"),
    ],
)
def test_degrees_that_do_not_go_into_cards_or_model_are_refused(cards, layout, word):
    with pytest.raises(InvalidRequest, match=word):
        resolved("megatron", cards=cards, **layout)


@pytest.mark.parametrize("framework", ["trl", "torchtune", "generic"])
def test_other_frameworks_name_those_that_can(framework):
    with pytest.raises(NotSupported, match="megatron, nemo"):
        resolved(framework, tensor=2)


def test_megatron_deepspeed_has_no_context_ranks():
    with pytest.raises(NotSupported, match="context"):
        resolved("megatron-deepspeed", context=2)
