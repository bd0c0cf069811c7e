"""Optimizers: states and temporaries, counted by hand."""

from dataclasses import replace

import pytest

from tracing.small_jobs import (
    HIDDEN,
    INNER,
    LAYERS,
    VOCABULARY,
    of_kind,
    recipe_for,
    small_llama,
    traced,
)
from tuneplan.errors import NotSupported
from tuneplan.spec.recipe import OptimizerFamily, OptimizerImplementation, TrainingRecipe
from tuneplan.tracing.recording import Recording
from tuneplan.tracing.result import summarize

MATRICES = LAYERS * (4 * HIDDEN * HIDDEN + 3 * HIDDEN * INNER)
NORMS = (2 * LAYERS + 1) * HIDDEN  # vectors of 256 elements: under 4,096
OUTER = 2 * VOCABULARY * HIDDEN
PARAMETERS = MATRICES + OUTER + NORMS
BIG = MATRICES + OUTER


def recipe_with(optim: str, **training: object) -> TrainingRecipe:
    return recipe_for(small_llama(), training={"optim": optim, **training})


def run(recipe: TrainingRecipe) -> Recording:
    return traced(small_llama(), recipe)


def states(recording: Recording) -> int:
    return of_kind(recording, "optimizer_state")


def step_temporary(recording: Recording) -> int:
    """Most that is alive in the second step beyond what is there when it begins."""
    begins = [at for at, phase, step in recording.marks if (phase, step) == ("optimizer_step", 1)]
    alive = most = 0
    for event in recording.events[begins[0] : recording.end]:
        block = recording.blocks[event if event >= 0 else ~event]
        if block.born >= begins[0]:
            alive += block.size if event >= 0 else -block.size
        most = max(most, alive)
    return most


def test_foreach_adamw_makes_one_list_as_large_as_all_second_moments():
    recording = run(recipe_with("adamw_torch"))
    assert states(recording) == 2 * 2 * PARAMETERS
    assert 2 * PARAMETERS <= step_temporary(recording) < 2 * PARAMETERS + 2000


def test_fused_adamw_makes_nothing_but_keeps_its_step_counts_on_the_device():
    tensors = 7 * LAYERS + 2 * LAYERS + 3
    recording = run(recipe_with("adamw_torch_fused"))
    assert states(recording) == 2 * 2 * PARAMETERS + 4 * tensors
    assert step_temporary(recording) < 2000


def test_adamw_in_a_loop_makes_two_copies_of_one_tensor():
    recipe = recipe_with("adamw_torch")
    loop = replace(recipe.optimizer, implementation=OptimizerImplementation.FOR_LOOP)
    recording = run(replace(recipe, optimizer=loop))
    assert states(recording) == 2 * 2 * PARAMETERS
    two = 2 * 2 * VOCABULARY * HIDDEN
    assert two <= step_temporary(recording) < two + 2000


def test_master_weights_have_fp32_moments_and_their_gradients_are_cast_and_laid_flat():
    recipe = recipe_with("adamw_torch")
    masters = replace(recipe.optimizer, master_weights=True)
    recording = run(replace(recipe, optimizer=masters))
    assert of_kind(recording, "master_weight") == 4 * PARAMETERS
    assert states(recording) == 2 * 4 * PARAMETERS
    assert 8 * PARAMETERS <= step_temporary(recording) < 8 * PARAMETERS + 2000
    assert "DeepSpeed" in recording.stand_ins["fp32 master weights"]


@pytest.mark.parametrize(("optim", "moments"), [("sgd", 0), ("sgd_momentum", 1)])
def test_sgd_keeps_nothing_or_one_moment(optim, moments):
    recording = run(recipe_with(optim, max_grad_norm=0))
    assert states(recording) == moments * 2 * PARAMETERS


@pytest.mark.parametrize(("optim", "moments"), [("adamw_bnb_8bit", 2), ("lion_8bit", 1)])
def test_eight_bit_states_are_a_byte_and_a_scale_for_256_and_small_tensors_fp32(optim, moments):
    recording = run(recipe_with(optim))
    each = BIG + 4 * BIG // 256 + 4 * NORMS
    assert states(recording) == moments * (each + 4 * 256)  # a table of 256 values for each
    assert step_temporary(recording) < 2000
    assert "bitsandbytes 0.50.2" in recording.stand_ins[f"optimizer {optim}"]


def test_paged_states_leave_the_allocator_where_a_tensor_has_100_000_elements():
    recording = run(recipe_with("paged_adamw_32bit"))
    small = LAYERS * 4 * HIDDEN * HIDDEN  # 65,536 each
    assert states(recording) == 2 * 4 * (small + NORMS)
    assert recording.notes["paged_states"] == 2 * (3 * LAYERS + 2)


def test_lion_of_bitsandbytes_keeps_one_fp32_moment():
    assert states(run(recipe_with("lion_32bit"))) == 4 * PARAMETERS


def test_adafactor_keeps_a_row_and_a_column_of_each_matrix_and_the_root_mean_square():
    recording = run(recipe_with("adafactor"))
    rows_and_columns = LAYERS * (4 * 2 * HIDDEN + 3 * (HIDDEN + INNER)) + 2 * (VOCABULARY + HIDDEN)
    tensors = 9 * LAYERS + 3
    assert states(recording) == 4 * (rows_and_columns + NORMS + tensors)


def test_muon_keeps_one_moment_of_matrices_and_adamw_two_of_the_rest():
    recording = run(recipe_with("muon"))
    assert states(recording) == 2 * MATRICES + 2 * 2 * (OUTER + NORMS)


def named(name: str) -> TrainingRecipe:
    recipe = recipe_with("adamw_torch")
    loop = OptimizerImplementation.FOR_LOOP
    return replace(recipe, optimizer=replace(recipe.optimizer, name=name, implementation=loop))


def test_galore_keeps_moments_of_rank_128_and_its_projections():
    """A matrix of n x m, n >= m, projects to n x 128: n x 128 twice and 128 x m."""
    recording = run(named("galore_adamw"))
    square, wide = 3 * HIDDEN * 128, (2 * INNER + HIDDEN) * 128
    head = (2 * VOCABULARY + HIDDEN) * 128
    low = LAYERS * (4 * square + 3 * wide) + head
    assert states(recording) == 2 * (low + 2 * (VOCABULARY * HIDDEN + NORMS))
    assert "galore-torch" in recording.stand_ins["optimizer galore_adamw"]


def test_apollo_keeps_what_galore_keeps_and_a_norm_of_each_matrix():
    few = states(run(named("galore_adamw")))
    assert states(run(named("apollo_adamw"))) == few + 2 * (7 * LAYERS + 1)


def test_a_step_in_the_backward_leaves_no_gradient_behind():
    recipe = recipe_with("adamw_torch", max_grad_norm=0)
    early = replace(recipe, optimizer=replace(recipe.optimizer, in_backward=True))
    late, soon = (summarize(run(one)).by_phase for one in (recipe, early))
    assert late["optimizer_step"] >= 2 * 5 * PARAMETERS
    assert "optimizer_step" not in soon  # nothing is made or freed there
    assert soon["forward"] == late["forward"]
    assert states(run(early)) == 2 * 2 * PARAMETERS


def test_the_fused_step_runs_under_the_gradient_scaler():
    recipe = recipe_with("adamw_torch_fused", dtype="float32", precision="fp16")
    assert run(recipe).notes["gradient_scaler"] == 1


def test_optimizers_that_are_not_traced_are_refused_by_name():
    recipe = recipe_with("adamw_torch")
    host = replace(recipe.optimizer, name="deepspeed_cpu_adam", family=OptimizerFamily.ADAMW)
    with pytest.raises(NotSupported, match="deepspeed_cpu_adam"):
        run(replace(recipe, optimizer=host))
