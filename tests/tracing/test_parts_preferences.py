"""Preference objectives: the reference, both forwards, copies of logits."""

import pytest

from tracing.small_jobs import (
    HIDDEN,
    LAYERS,
    LENGTH,
    SEQUENCES,
    TOKENS,
    VOCABULARY,
    of_kind,
    recipe_for,
    small_llama,
    traced,
)
from tuneplan.errors import NotSupported
from tuneplan.frameworks.losses import fused_linear
from tuneplan.spec.recipe import Loss, LossPath, Objective, TrainingRecipe
from tuneplan.tracing.recording import Recording

LOGITS = TOKENS * VOCABULARY


def recipe_with(objective: Objective, method: str = "lora", **changed: object) -> TrainingRecipe:
    loss = Loss(path=LossPath.FULL, upcast_logits=False, output_fp32_copies=1)
    changes = {"loss": loss, "objective": objective, **changed}
    return recipe_for(small_llama(), method=method, **changes)


def run(recipe: TrainingRecipe) -> Recording:
    return traced(small_llama(), recipe)


def attentions(recording: Recording) -> int:
    """Calls of attention's forward in the second step's layers."""
    return sum(
        block.operation == "_scaled_dot_product_efficient_attention"
        and block.step == 1
        and block.dtype == "bfloat16"
        for block in recording.blocks
    )


@pytest.mark.parametrize(
    ("objective", "forwards"),
    [
        (Objective.DPO, 2),
        (Objective.KTO, 4),
        (Objective.ORPO, 1),
        (Objective.SIMPO, 1),
        (Objective.RM, 1),
    ],
)
def test_objectives_run_as_many_forwards_as_their_trainers(objective, forwards):
    recording = run(recipe_with(objective))
    plain = attentions(run(recipe_with(Objective.SFT)))
    assert attentions(recording) == forwards * plain
    assert any(block.kind == "gradient" for block in recording.blocks)


def test_dpo_of_a_whole_model_holds_a_frozen_copy_and_of_adapters_none():
    full = run(recipe_with(Objective.DPO, "full", reference_model=True))
    weights = of_kind(full, "trained_weight")
    assert of_kind(full, "reference_weight") == weights
    adapted = run(recipe_with(Objective.DPO, "lora"))
    assert of_kind(adapted, "reference_weight") == 0


def test_the_policys_fp32_logits_are_there_while_the_reference_makes_its_own():
    recording = run(recipe_with(Objective.DPO))
    made = [
        (block.born, block.died)
        for block in recording.blocks
        if block.step == 1 and block.operation == "_to_copy" and block.size == 4 * LOGITS
        if block.shape == (SEQUENCES, LENGTH, VOCABULARY)
    ]
    policy, reference = made
    assert policy[0] < reference[0] < reference[1] < policy[1]


def test_a_log_softmax_of_all_logits_is_kept_where_the_recipe_says_so():
    loss = Loss(path=LossPath.FULL, upcast_logits=True, output_fp32_copies=1)
    recording = run(recipe_with(Objective.DPO, loss=loss))
    made = [
        block
        for block in recording.blocks
        if block.step == 1 and block.operation == "_log_softmax" and block.size == 4 * LOGITS
    ]
    assert len(made) == 2


def test_a_reward_model_has_no_head_over_the_vocabulary():
    recording = run(recipe_with(Objective.RM, "full"))
    language = run(recipe_with(Objective.SFT, "full"))
    kinds = [of_kind(one, "trained_weight") for one in (language, recording)]
    assert kinds[0] - kinds[1] == 2 * HIDDEN * (VOCABULARY - 1)
    assert not any(
        block.size >= 2 * LOGITS and block.shape[-1:] == (VOCABULARY,)
        for block in recording.blocks
        if block.step == 1
    )


def test_evaluation_runs_the_same_forwards_without_a_graph():
    model = small_llama()
    recording = traced(model, recipe_with(Objective.DPO), evaluation_sequences=SEQUENCES)
    begins = next(at for at, phase, _ in recording.marks if phase == "evaluation")
    later = [block for block in recording.blocks if begins <= block.born < recording.end]
    assert sum(b.operation.startswith("_scaled_dot") for b in later) > LAYERS
    assert not any(block.kind == "gradient" for block in later)


def test_kernels_of_preference_trainers_are_refused_by_name():
    with pytest.raises(NotSupported, match="fused_linear is not traced with the objective dpo"):
        run(recipe_with(Objective.DPO, loss=fused_linear()))


def test_the_gradient_of_picked_logits_fills_zeros_in_place():
    """PyTorch's backward of ``gather`` scatters into the zeros that it made: one block, not two."""
    recording = run(recipe_with(Objective.DPO))
    made = [
        block.operation
        for block in recording.blocks
        if (block.step, block.phase) == (1, "backward") and block.size == 4 * LOGITS
    ]
    assert made.count("new_zeros") == 1
    assert "scatter_add" not in made


def test_the_log_sum_of_exponentials_makes_a_copy_of_its_row_in_passing():
    """Each row of the batch has a temporary as large as itself in both forwards."""
    recording = run(recipe_with(Objective.DPO))
    made = [
        block.died - block.born
        for block in recording.blocks
        if block.step == 1 and block.operation == "logsumexp (in the kernel)"
        if block.size == 4 * LENGTH * VOCABULARY
    ]
    assert made == [1] * 2 * SEQUENCES
