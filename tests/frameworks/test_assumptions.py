"""Laws: every blank is one assumption, nothing stated is one, nothing stays blank."""

from collections import Counter
from dataclasses import fields, is_dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameworks.sample_models import A100, H100, T4, model, stated
from tuneplan.frameworks import FRAMEWORKS, resolve_recipe
from tuneplan.spec.recipe import Method
from tuneplan.spec.stated import StatedAdapter, StatedQuantization

STATABLE = {
    "dtype": "bfloat16",
    "precision": "none",
    "master_weights": False,
    "max_length": 1024,
    "packing": False,
    "padding": "longest",
    "per_device_train_batch_size": 2,
    "per_device_eval_batch_size": 2,
    "gradient_accumulation_steps": 4,
    "optim": "adamw_torch",
    "gradient_checkpointing": True,
    "use_reentrant": False,
    "attn_implementation": "sdpa",
    "loss": "full",
    "torch_compile": False,
    "max_grad_norm": 0.5,
    "num_train_epochs": 2.0,
    "eval_steps": 100,
    "save_steps": 100,
    "save_total_limit": 2,
    "use_liger_kernel": False,
}
ADAPTER = {
    "r": 8,
    "lora_alpha": 16.0,
    "lora_dropout": 0.1,
    "target_modules": ("q_proj",),
    "modules_to_save": ("lm_head",),
}
QUANTIZATION = {"bits": 4, "type": "nf4", "double_quant": True}
ALWAYS = {"software", "behaviour", "parallelism", "framework"}


def stated_names(training, adapter, quantization):
    return {
        *(f"training.{name}" for name in training),
        *(f"adapter.{name}" for name in adapter),
        *(f"quantization.{name}" for name in quantization),
    }


@given(
    framework=st.sampled_from(sorted(FRAMEWORKS)),
    training=st.sets(st.sampled_from(sorted(STATABLE))),
    adapter=st.sets(st.sampled_from(sorted(ADAPTER))),
    quantization=st.sets(st.sampled_from(sorted(QUANTIZATION))),
)
def test_a_key_is_stated_or_assumed_once_and_never_both(framework, training, adapter, quantization):
    recipe = stated(
        framework,
        "qlora",
        objective="sft",
        adapter=StatedAdapter(**{name: ADAPTER[name] for name in adapter}),
        quantization=StatedQuantization(**{name: QUANTIZATION[name] for name in quantization}),
        **{name: STATABLE[name] for name in training},
    )
    found = resolve_recipe(recipe, model(), A100, world_size=1)
    times = Counter(assumption.name for assumption in found.assumptions)
    assert set(times.values()) == {1}
    said = stated_names(training, adapter, quantization)
    assert not said & set(times)
    wanted = stated_names(STATABLE, ADAPTER, QUANTIZATION)
    if found.recipe.gradient_checkpointing == "none":
        wanted -= {"training.use_reentrant"}
    if found.recipe.packing:
        wanted -= {"training.padding"}
    if "training.save_strategy" in times:  # it saves by epoch
        wanted = (wanted - {"training.save_steps"}) | {"training.save_strategy"}
    assert wanted - said <= set(times)
    assert {name.split(".")[0] for name in set(times) - wanted} <= ALWAYS


@pytest.mark.parametrize("cards", [1, 8])
@pytest.mark.parametrize("method", list(Method))
@pytest.mark.parametrize("framework", sorted(FRAMEWORKS))
def test_every_framework_resolves_every_method_on_every_chip(framework, method, cards):
    for chip in (A100, H100, T4, None):
        for architecture in (model(), model("mixtral", num_experts=8)):
            found = resolve_recipe(
                stated(framework, method.value), architecture, chip, world_size=cards
            )
            assert found.parallelism.world_size == cards
            assert_no_blank(found.recipe)
            for assumption in found.assumptions:
                assert assumption.source
                assert str(assumption.reason)
                assert assumption.how_to_set
                assert assumption.value is not None


def assert_no_blank(recipe):
    may_be_none = {"gradient_dtype", "max_grad_norm", "quantization", "adapter"}
    for field in fields(recipe):
        value = getattr(recipe, field.name)
        assert value is not None or field.name in may_be_none, field.name
        if is_dataclass(value):
            assert all(getattr(value, inner.name) is not None for inner in fields(value))
    assert (recipe.adapter is None) is not recipe.method.uses_adapter
    assert (recipe.quantization is None) is not recipe.method.quantized


@given(
    framework=st.sampled_from(sorted(FRAMEWORKS)),
    date=st.dates().map(lambda day: day.isoformat()),
    method=st.sampled_from([method.value for method in Method]),
)
def test_any_day_has_software_and_no_library_is_younger_than_the_day(framework, date, method):
    found = resolve_recipe(stated(framework, method, date=date), model(), A100, world_size=1)
    assert found.software
    assert_no_blank(found.recipe)


@given(text=st.text(max_size=40))
def test_any_text_for_a_version_is_read_or_placed_by_date(text):
    recipe = stated("trl", "lora", version=text)
    assert resolve_recipe(recipe, model(), A100, world_size=1).recipe.framework == "trl"
