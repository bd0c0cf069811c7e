"""What trains is the same number wherever it is counted."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from settings import MODELS, adapter, recipe
from tuneplan.errors import InvalidRequest
from tuneplan.estimation.adapters import split_targets
from tuneplan.estimation.parameters import (
    resolve_target_modules,
    trainable_parameters,
)
from tuneplan.estimation.persistent import persistent
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.recipe import Adapter, Method, Quantization

_NAMES = MODELS.names()
_METHODS = (Method.FULL, Method.FREEZE, Method.LORA, Method.DORA, Method.QLORA, Method.GPTQ_LORA)


def _all_linears(model: ModelArchitecture) -> tuple[str, ...]:
    return resolve_target_modules(model, "all-linear", passes_over_refused=True)


@st.composite
def adapters(draw: st.DrawFn, model: ModelArchitecture, method: Method) -> Adapter:
    """All linears, or those of one projection and perhaps the head; perhaps modules saved whole."""
    everything = _all_linears(model)
    first = (everything[0],)
    targets = draw(st.sampled_from([everything, first, (*first, "lm_head")]))
    if model.head is not None and model.head.leaf != "lm_head":
        targets = tuple(name for name in targets if name != "lm_head")
    saved: tuple[str, ...] = ()
    if "lm_head" not in targets:
        names = [(), (model.token_embedding.leaf,), ("lm_head",)]
        saved = draw(st.sampled_from(names if model.head is None else names[:2]))
    return adapter(
        r=draw(st.sampled_from([4, 16])),
        target_modules=targets,
        modules_to_save=saved,
        use_dora=method is Method.DORA,
    )


@given(st.data(), st.sampled_from(_NAMES), st.sampled_from(_METHODS), st.booleans())
@settings(max_examples=150, deadline=None)
def test_the_memory_count_trains_what_the_parameter_count_says(data, name, method, trains_vision):
    model = MODELS.resolve(name).architecture
    chosen = data.draw(adapters(model, method)) if method.uses_adapter else None
    layers = data.draw(st.integers(1, model.num_layers)) if method is Method.FREEZE else 0
    held = recipe(
        method=method,
        adapter=chosen,
        trained_layers=layers,
        trains_vision=trains_vision,
        quantization=Quantization() if method.quantized else None,
    )
    if method is Method.DORA and split_targets(model, chosen)[1]:
        with pytest.raises(InvalidRequest, match="no DoRA"):
            trainable_parameters(model, method, chosen, trains_vision=trains_vision)
        return
    counted = trainable_parameters(
        model, method, chosen, trained_layers=layers, trains_vision=trains_vision
    )
    assert persistent(model, held).num_trained == counted


@pytest.mark.parametrize(
    ("name", "trained"),
    # Mixtral-8x7B, r 8, all linears: 32 layers of 8 experts, their router and the attention
    [("mistralai/Mixtral-8x7B-v0.1", 179_832_832)],
)
def test_adapters_on_stacked_experts_are_held(name, trained):
    model = MODELS.resolve(name).architecture
    everything = resolve_target_modules(model, "all-linear")
    held = persistent(model, recipe(adapter=adapter(r=8, target_modules=everything)))
    assert held.num_trained == trained
    assert held.adapter_bytes == 4 * trained
