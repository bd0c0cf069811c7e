"""How the weights come to the card, by version."""

from __future__ import annotations

import pytest

from settings import adapter, recipe
from tuneplan.estimation.replayed_job import Loading
from tuneplan.frameworks.loading import loading_of
from tuneplan.spec.recipe import Method, Quantization, QuantizationType

NF4 = recipe(method=Method.QLORA, adapter=adapter(), quantization=Quantization())


@pytest.mark.parametrize(
    ("transformers", "bytes_per_weight", "of_the_rest", "threads"),
    [
        ("4.48.1", 0.0, 0.0, 1),
        ("4.57.1", 1.0, 0.5, 1),
        ("5.0.0", 0.5, 1.0, 4),
        ("5.4.0", 0.5, 1.0, 1),
    ],
)
def test_a_quantised_model_is_reserved_as_that_transformers_reserves_it(
    transformers, bytes_per_weight, of_the_rest, threads
):
    found = loading_of(NF4, {"transformers": transformers, "peft": "0.19.1"})
    assert found.reserved_bytes_per_weight == bytes_per_weight
    assert found.reserved_fraction_of_rest == of_the_rest
    assert found.threads == threads


@pytest.mark.parametrize(("peft", "empties"), [("0.19.1", False), ("0.20.0", True)])
def test_peft_empties_the_cache_after_preparing_from_0_20_on(peft, empties):
    assert loading_of(NF4, {"transformers": "5.0.0", "peft": peft}).empties_cache is empties


def test_unknown_versions_count_as_the_newest():
    newest = loading_of(NF4, {"transformers": "5.24.0", "peft": "0.21.2"})
    assert loading_of(NF4, {}) == newest


def test_a_model_that_is_moved_to_the_card_reserves_nothing_first():
    assert loading_of(recipe(adapter=adapter()), {"transformers": "5.0.0"}) == Loading()
    gptq = Quantization(type=QuantizationType.GPTQ, block_size=128)
    quantised = recipe(method=Method.GPTQ_LORA, adapter=adapter(), quantization=gptq)
    assert loading_of(quantised, {"transformers": "5.0.0"}) == Loading()
