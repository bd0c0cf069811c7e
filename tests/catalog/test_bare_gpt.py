"""A GPT by its dimensions."""

from __future__ import annotations

import pytest

from tuneplan.catalog.models import load_models
from tuneplan.errors import InvalidRequest

CATALOG = load_models()


def test_gpt_3_175b_counted_by_hand():
    text = "gpt:num_layers=96,hidden_size=12288,num_attention_heads=96"
    found = CATALOG.resolve(text)
    # l (12 h^2 + 13 h) + v h + s h + 2 h: bigscience's closed form, vocabulary of GPT-2
    counted = 96 * (12 * 12288**2 + 13 * 12288) + (50257 + 2048 + 2) * 12288
    assert found.architecture.total_parameters == counted


def test_dimensions_that_nobody_stated_are_assumptions():
    found = CATALOG.resolve("GPT: num_layers=24, hidden_size=2048")
    assert {one.name for one in found.assumptions} == {
        "model.n_head", "model.n_inner", "model.vocab_size", "model.n_positions",
    }  # fmt: skip
    assert found.architecture.groups[0].layer.mixer.num_attention_heads == 16


@pytest.mark.parametrize(
    "text",
    [
        "gpt:",
        "gpt:num_layers=24",
        "gpt:num_layers=24,hidden_size=wide",
        "gpt:num_layers=24,hidden_size=2048,layers=3",
        "gpt:num_layers=0,hidden_size=2048",
    ],
)
def test_what_is_no_dimension_is_refused_with_an_example(text):
    with pytest.raises(InvalidRequest) as caught:
        CATALOG.resolve(text)
    assert "gpt:num_layers=24" in str(caught.value.mistakes[0].how_to_fix)
