"""What one rank holds under tensor, pipeline, context and expert parallelism."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneplan.catalog.models import load_models
from tuneplan.estimation.memory import count_memory
from tuneplan.estimation.persistent import persistent
from tuneplan.estimation.split_memory import count_split_memory, held_by, in_flight
from tuneplan.estimation.splitting import Position, obstacle, split_tensors, stages_of
from tuneplan.frameworks import resolve_recipe
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.parallelism import Parallelism, Strategy
from tuneplan.spec.recipe import Checkpointing, TrainingRecipe
from tuneplan.spec.stated import StatedRecipe, StatedTraining

DENSE = ("Llama-3.1-8B", "gpt2-xl", "Qwen2.5-7B")
MIXTURES = ("gpt-oss-20b", "Qwen3-30B-A3B")
POWERS = st.sampled_from((1, 2, 4, 8))


@cache
def model_of(name: str) -> ModelArchitecture:
    return load_models().architecture(name)


@cache
def recipe_of(name: str, framework: str = "megatron", steps: int = 4) -> TrainingRecipe:
    stated = StatedRecipe(
        framework=framework,
        method="full",
        training=StatedTraining(
            max_length=1024,
            per_device_train_batch_size=1,
            gradient_accumulation_steps=steps,
            packing=True,
        ),
    )
    return resolve_recipe(stated, model_of(name), None, world_size=1).recipe


def held_bytes(model, recipe, parallelism):
    """The most that any stage holds: weights, gradients and its share of the states."""
    most = 0.0
    for stage in stages_of(model, parallelism):
        held = held_by(stage, recipe, parallelism)
        states = held.state_bytes + held.master_bytes
        shards = parallelism.shards if parallelism.shards_optimizer else 1
        most = max(most, held.trained_bytes + held.gradient_bytes + states / shards)
    return most


@pytest.mark.parametrize("name", [*DENSE, *MIXTURES])
@pytest.mark.parametrize("strategy", [Strategy.SINGLE, Strategy.DDP, Strategy.ZERO1])
@pytest.mark.parametrize("checkpointing", [Checkpointing.NONE, Checkpointing.FULL])
def test_degrees_of_one_count_exactly_as_a_model_that_is_not_split(name, strategy, checkpointing):
    recipe = replace(recipe_of(name), gradient_checkpointing=checkpointing)
    layout = Parallelism(strategy=strategy, data=1 if strategy is Strategy.SINGLE else 4)
    whole = count_memory(model_of(name), recipe, layout, sequences=2.0, length=512.0)
    split = count_split_memory(model_of(name), recipe, layout, sequences=2.0, length=512.0)
    assert split.by_phase == whole.by_phase


@given(
    name=st.sampled_from(DENSE + MIXTURES),
    tensor=POWERS,
    pipeline=POWERS,
    data=POWERS,
    expert=st.sampled_from((1, 2, 4)),
    strategy=st.sampled_from((Strategy.DDP, Strategy.ZERO1)),
)
def test_no_degree_raises_what_a_rank_holds(name, tensor, pipeline, data, expert, strategy):
    model, recipe = model_of(name), recipe_of(name)
    expert = min(expert, data) if name in MIXTURES else 1
    layout = Parallelism(
        strategy=strategy, tensor=tensor, pipeline=pipeline, data=data, expert=expert
    )
    if obstacle(model, layout) is not None:
        return
    here = held_bytes(model, recipe, layout)
    for name_of_degree in ("tensor", "pipeline", "expert"):
        degree = getattr(layout, name_of_degree)
        if degree > 1:
            fewer = replace(layout, **{name_of_degree: degree // 2})
            assert here <= held_bytes(model, recipe, fewer) * (1 + 1e-9)


@given(name=st.sampled_from(DENSE + MIXTURES), tensor=POWERS)
def test_tensor_ranks_together_hold_every_matrix_at_least_once(name, tensor):
    model = model_of(name)
    layout = Parallelism(tensor=tensor)
    if obstacle(model, layout) is not None:
        return
    part = split_tensors(model, layout)
    assert part.total_parameters * tensor >= model.total_parameters
    assert part.total_parameters <= model.total_parameters


@given(name=st.sampled_from(DENSE + MIXTURES), pipeline=st.sampled_from((2, 4)))
def test_stages_together_hold_every_layer(name, pipeline):
    model = model_of(name)
    stages = stages_of(model, Parallelism(pipeline=pipeline))
    layers = sum(stage.count * stage.model.num_layers for stage in stages)
    assert model.num_layers <= layers < model.num_layers + pipeline
    assert sum(stage.count for stage in stages) == pipeline
    assert [stage.has_head for stage in stages][-1]


def test_a_tied_embedding_stands_on_the_first_and_on_the_last_stage():
    model = model_of("gpt2-xl")
    first, *_, last = stages_of(model, Parallelism(pipeline=4))
    table = 50257 * 1600
    assert first.model.token_embedding.num_parameters == table
    assert last.model.head is not None
    assert last.model.head.num_parameters == table
    assert last.model.token_embedding.num_parameters == 0


def test_llama_3_1_8b_on_four_tensor_ranks_counted_by_hand():
    # 32 query and 8 key-value heads of 128: 8 and 2 a rank; feed-forward 14336 / 4 = 3584;
    # 128256 entries padded to a multiple of 128 x 4 = 512: 128512, so 32128 rows a rank.
    part = split_tensors(model_of("Llama-3.1-8B"), Parallelism(tensor=4, pads_vocabulary_to=128))
    attention = 4096 * (8 * 128) * 2 + 4096 * (2 * 128) * 2
    layer = attention + 3 * 4096 * 3584 + 2 * 4096
    assert part.total_parameters == 32 * layer + 2 * 32128 * 4096 + 4096


def test_fewer_key_heads_than_ranks_are_repeated():
    # Qwen2.5-7B has 28 query and 4 key-value heads: on 7 ranks 4 query heads and one key head each.
    part = split_tensors(model_of("Qwen2.5-7B"), Parallelism(tensor=7))
    mixer = part.groups[0].layer.mixer
    assert (mixer.num_attention_heads, mixer.num_key_value_heads) == (4, 1)
    assert [weight.shape[0] for weight in mixer.weights[:3]] == [4 * 128, 128, 128]


@pytest.mark.parametrize(
    ("stages", "virtual", "micro_batches", "first", "last"),
    [
        (4, 1, 16, 4.0, 1.0),  # one forward, one backward: as many as stages
        (4, 1, 2, 2.0, 1.0),  # there are not more
        (4, 2, 16, 5.5, 2.5),  # (2 x 3 + 4 + 1) / 2, (0 + 4 + 1) / 2 pieces of half a stage
        (1, 1, 16, 1.0, 1.0),
    ],
)
def test_micro_batches_in_flight(stages, virtual, micro_batches, first, last):
    layout = Parallelism(pipeline=stages, virtual_stages=virtual)
    assert in_flight(Position.FIRST, layout, micro_batches) == first
    assert in_flight(Position.LAST, layout, micro_batches) == last


@given(name=st.sampled_from(DENSE), tensor=st.sampled_from((2, 4)))
def test_sharing_the_positions_keeps_less_and_holds_the_same(name, tensor):
    model, recipe = model_of(name), recipe_of(name)
    alone = Parallelism(tensor=tensor, strategy=Strategy.ZERO1)
    if obstacle(model, alone) is not None:
        return
    counts = [
        count_split_memory(model, recipe, layout, sequences=4.0, length=2048.0)
        for layout in (alone, replace(alone, sequence=True))
    ]
    whole, shared = counts
    assert shared.base["trained_weights"] == whole.base["trained_weights"]
    assert shared.peak_bytes < whole.peak_bytes


@given(name=st.sampled_from(DENSE), context=st.sampled_from((2, 4, 8)))
def test_context_ranks_lower_the_peak_and_hold_whole_weights(name, context):
    model, recipe = model_of(name), recipe_of(name)
    alone = Parallelism(strategy=Strategy.DDP)
    split = replace(alone, context=context)
    counts = [
        count_split_memory(model, recipe, layout, sequences=1.0, length=8192.0)
        for layout in (alone, split)
    ]
    assert counts[1].peak_bytes < counts[0].peak_bytes
    assert counts[1].base["trained_weights"] == persistent(model, recipe).trained_bytes


@given(
    name=st.sampled_from(DENSE + MIXTURES),
    tensor=st.sampled_from((1, 2)),
    pipeline=st.sampled_from((1, 2, 4)),
    context=st.sampled_from((1, 2)),
    sequence=st.booleans(),
)
def test_terms_sum_to_every_phase(name, tensor, pipeline, context, sequence):
    model, recipe = model_of(name), recipe_of(name)
    layout = Parallelism(
        strategy=Strategy.ZERO1, data=2, tensor=tensor, pipeline=pipeline, context=context,
        sequence=sequence,
    )  # fmt: skip
    if obstacle(model, layout) is not None:
        return
    count = count_split_memory(model, recipe, layout, sequences=1.0, length=1024.0)
    for phase, size in count.by_phase.items():
        parts = sum(count.base.values()) + sum(count.at_phase[phase].values())
        assert float(size) == pytest.approx(float(parts))


@pytest.mark.parametrize("cards", [2, 4])
def test_spread_layers_hold_a_share_each_and_one_micro_batch(cards):
    model, recipe = model_of("Llama-3.1-8B"), recipe_of("Llama-3.1-8B")
    spread = Parallelism(strategy=Strategy.DEVICE_MAP, pipeline=cards)
    count = count_split_memory(model, recipe, spread, sequences=1.0, length=1024.0)
    one = count_memory(model, recipe, Parallelism(), sequences=1.0, length=1024.0)
    held = one.base["trained_weights"]
    ends = 2 * 128256 * 4096  # bf16: the embedding or the head
    assert count.base["trained_weights"] == pytest.approx(
        (held - 2 * ends) / cards + ends, rel=1e-3
    )
    assert "in_flight_activations" not in count.base
