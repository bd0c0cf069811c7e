"""Every bundled model: the described layers give the published numbers of parameters."""

from __future__ import annotations

import pytest

from tuneplan.catalog.architectures import BUILDERS, build_architecture, known_model_types
from tuneplan.catalog.model_entries import ModelEntry, bundled_entries
from tuneplan.catalog.models import load_models
from tuneplan.errors import InvalidRequest
from tuneplan.estimation.parameters import parameter_counts
from tuneplan.spec.blocks import Attention, AttentionKind
from tuneplan.spec.weights import WeightKind

CATALOG = load_models()
ENTRIES = bundled_entries()


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_the_description_gives_the_recorded_numbers_of_parameters(entry: ModelEntry) -> None:
    architecture = CATALOG.architecture(entry.name)
    counts = parameter_counts(architecture)
    assert architecture.total_parameters == entry.total_parameters
    assert architecture.active_parameters == entry.active_parameters
    assert counts.embeddings + counts.head == entry.embedding_parameters
    assert counts.vision == (entry.vision_parameters or 0)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_the_layers_stand_once_at_each_position(entry: ModelEntry) -> None:
    architecture = CATALOG.architecture(entry.name)
    positions = [position for group in architecture.groups for position in group.positions]
    assert sorted(positions) == list(range(architecture.num_layers))


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_the_weights_of_attention_fit_its_heads(entry: ModelEntry) -> None:
    architecture = CATALOG.architecture(entry.name)
    for group in architecture.groups:
        mixer = group.layer.mixer
        if isinstance(mixer, Attention) and architecture.model_type != "deepseek_v4":
            output = (architecture.hidden_size, mixer.output_size)
            assert mixer.num_attention_heads % mixer.num_key_value_heads == 0
            assert output in [w.shape for w in mixer.weights if w.kind is WeightKind.LINEAR]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_entry_has_a_source_a_date_and_nothing_left_to_the_class(entry: ModelEntry) -> None:
    assert entry.source
    assert entry.as_of
    assert entry.confidence in ("high", "medium", "low")
    sizes = {"hidden_size", "num_hidden_layers", "vocab_size", "intermediate_size"}
    assert not sizes & set(CATALOG.architecture(entry.name).assumed_fields)


def test_llama_2_7b_counted_by_hand() -> None:
    embeddings = 2 * 32000 * 4096
    layer = 4 * 4096 * 4096 + 3 * 4096 * 11008 + 2 * 4096
    assert CATALOG.architecture("Llama-2-7b").total_parameters == embeddings + 32 * layer + 4096


def test_mixtral_counted_by_hand() -> None:
    embeddings = 2 * 32000 * 4096
    attention = 2 * 4096 * 4096 + 2 * 4096 * 1024
    one_expert = 3 * 4096 * 14336
    layer = attention + 8 * one_expert + 8 * 4096 + 2 * 4096
    total = embeddings + 32 * layer + 4096
    model = CATALOG.architecture("Mixtral-8x7B-v0.1")
    assert model.total_parameters == total
    assert model.active_parameters == total - 32 * 6 * one_expert


def test_deepseek_v3_has_three_dense_layers_before_the_mixtures() -> None:
    dense, sparse = CATALOG.architecture("DeepSeek-V3").groups
    assert (dense.positions, sparse.count) == ((0, 1, 2), 58)
    assert isinstance(sparse.layer.mixer, Attention)
    assert sparse.layer.mixer.latent is not None
    assert (sparse.layer.mixer.head_dim, sparse.layer.mixer.v_head_dim) == (128 + 64, 128)


def test_gemma_3_attends_globally_in_every_sixth_layer() -> None:
    groups = CATALOG.architecture("gemma-3-4b").groups
    full = next(g for g in groups if g.layer.mixer.kind is AttentionKind.FULL)  # type: ignore[union-attr]
    assert full.positions == (5, 11, 17, 23, 29)


def test_a_tied_head_is_counted_once() -> None:
    tied = CATALOG.architecture("Qwen2.5-0.5B")
    assert tied.head is None
    assert tied.token_embedding.num_parameters == 151936 * 896


def test_every_family_is_used_by_an_entry_or_built_in_a_test() -> None:
    used = {entry.config["model_type"] for entry in ENTRIES}
    built_here = {"gemma4_text", "kimi_k2", "olmo3", "qwen3_5_text", "qwen3_5_moe_text"}
    assert set(known_model_types()) - used == built_here


@pytest.mark.parametrize(
    ("model_type", "base"),
    [
        ("gemma4_text", "gemma-4-26B-A4B"),
        ("qwen3_5_text", "Qwen3.5-9B"),
        ("qwen3_5_moe_text", "Qwen3.5-35B-A3B"),
    ],
)
def test_the_text_part_alone_is_the_whole_without_its_tower(model_type: str, base: str) -> None:
    whole = CATALOG.architecture(base)
    config = {**CATALOG.entry(base).config["text_config"], "model_type": model_type}
    config.setdefault("tie_word_embeddings", whole.head is None)
    alone, _ = build_architecture(config, name="text")
    assert whole.vision is not None
    assert alone.total_parameters == whole.total_parameters - whole.vision.num_parameters


def test_kimi_k2_is_deepseek_v3_under_its_own_type() -> None:
    config = {**CATALOG.entry("Kimi-K2-Instruct").config, "model_type": "kimi_k2"}
    alone, _ = build_architecture(config, name="kimi")
    assert alone.total_parameters == CATALOG.entry("Kimi-K2-Instruct").total_parameters


def test_olmo_3_slides_in_three_of_four_layers() -> None:
    config = {**CATALOG.entry("OLMo-2-1124-7B").config, "model_type": "olmo3"}
    model, _ = build_architecture({**config, "sliding_window": 4096}, name="olmo3")
    assert [group.count for group in model.groups] == [24, 8]
    assert model.total_parameters == CATALOG.entry("OLMo-2-1124-7B").total_parameters


@pytest.mark.parametrize("model_type", sorted(BUILDERS))
def test_a_configuration_of_nothing_but_its_type_lists_what_is_missing(model_type: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        build_architecture({"model_type": model_type}, name="empty")
    assert len(raised.value.mistakes) >= 2
