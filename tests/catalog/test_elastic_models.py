"""Gemma 3n: which layers lend or borrow keys and values, which cut their gate."""

from __future__ import annotations

from tuneplan.catalog.architectures import build_architecture
from tuneplan.catalog.models import load_models
from tuneplan.estimation.adapters import resolve_target_modules
from tuneplan.spec.weights import leaf_of


def _gemma_3n(**changes):
    entry = load_models().entry("gemma-3n-E4B")
    config = {**entry.config, **changes}
    return build_architecture(config, name="gemma-3n", hf_id=None, source="")[0]


def _positions(model, wanted):
    return sorted(n for group in model.groups if wanted(group.layer) for n in group.positions)


def test_the_last_15_layers_borrow_from_the_last_of_their_kind_before_them():
    model = _gemma_3n()  # 35 layers, each fifth one full
    assert _positions(model, lambda layer: layer.mixer.borrows_key_values) == list(range(20, 35))
    # Layer 19 is the last full one of the first twenty, 18 the last that slides.
    assert _positions(model, lambda layer: layer.mixer.lends_key_values) == [18, 19]


def test_layers_that_borrow_have_no_projections_of_keys_and_values():
    for group in _gemma_3n().groups:
        names = {weight.leaf for weight in group.layer.mixer.weights}
        assert ("k_proj" in names) is not group.layer.mixer.borrows_key_values


def test_no_layer_lends_where_none_borrows():
    model = _gemma_3n(num_kv_shared_layers=0)
    assert not _positions(model, lambda layer: layer.mixer.lends_key_values)


def test_the_first_ten_layers_cut_their_gate_unless_there_are_no_more():
    assert _positions(_gemma_3n(), lambda layer: layer.feed_forward.sparse) == list(range(10))
    small = _gemma_3n(num_hidden_layers=10, num_kv_shared_layers=5)
    assert not _positions(small, lambda layer: layer.feed_forward.sparse)
    stated = _gemma_3n(activation_sparsity_pattern=[0.0] * 34 + [0.95])
    assert _positions(stated, lambda layer: layer.feed_forward.sparse) == [34]


def test_a_member_of_a_list_is_named_with_its_list():
    assert leaf_of("model.altup_projections.0") == "altup_projections.0"
    assert leaf_of("self_attn.q_proj") == "q_proj"
    names = resolve_target_modules(_gemma_3n(), "all-linear")
    assert "altup_projections.0" in names
    assert "0" not in names  # which would match every first layer
