"""The formula against the trace of the real code: one family for each rule of its own."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

MODELS = (
    "Llama-3.2-1B",  # grouped keys, a tied head
    "Mistral-7B-v0.1",  # a window
    "gemma-2-2b",  # two masks, eager attention
    "falcon-7b",  # one key head that is broadcast, linears of a class of their own
    "bloom-7b1",  # embeddings that are normalised, a residual stream in fp32
    "mpt-7b",  # eager attention over fused projections
    "phi-2",  # queries joined after partial rotary positions
    "opt-1.3b",  # dropout in the model, learned positions
    "starcoder",  # a mask over all positions in a buffer, dropped-out embeddings
    "Moonlight-16B-A3B",  # latent attention, shared experts
    "gpt-oss-20b",  # sinks, a clamped gate
    "Llama-4-Scout-17B-16E",  # every expert on every token
)


def _tool() -> ModuleType:
    if "formula_against_trace" in sys.modules:
        return sys.modules["formula_against_trace"]
    path = Path(__file__).parents[2] / "tools" / "formula_against_trace.py"
    spec = importlib.util.spec_from_file_location("formula_against_trace", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["formula_against_trace"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("method", "checkpointing", "length"), [("lora-qv", False, 512), ("qlora", True, 1024)]
)
def test_the_formula_is_near_the_trace(model, method, checkpointing, length):
    tool = _tool()
    case = tool.Case(
        model=model, method=method, checkpointing=checkpointing, sequences=1, length=length
    )
    formula, trace, _ = tool.compare(case, layers=2)
    error = tool.errors_of(formula, trace)["peak"]
    assert abs(error) < 0.01, f"{case}: {error:+.2%}"


@pytest.mark.parametrize("checkpointing", [True, False])
@pytest.mark.parametrize("method", ["lora-all", "qlora"])
def test_inputs_of_adapters_are_cast_and_dropped_out_under_autocast(method, checkpointing):
    tool = _tool()
    case = tool.Case(
        model="Llama-3.2-1B", method=method, checkpointing=checkpointing,
        sequences=2, length=1024, dtype="float32", dropout=0.05,
    )  # fmt: skip
    formula, trace, _ = tool.compare(case, layers=2)
    error = tool.errors_of(formula, trace)["backward"]
    assert abs(error) < 0.005, f"{case}: {error:+.2%}"


def test_scaled_embeddings_are_a_leaf_that_the_graph_holds_beside_the_first_layers_input():
    tool = _tool()
    case = tool.Case(
        model="PowerLM-3b", method="qlora", checkpointing=True, sequences=1, length=4096
    )
    formula, trace, _ = tool.compare(case, layers=2)
    assert abs(tool.errors_of(formula, trace)["peak"]) < 0.005


@pytest.mark.parametrize(
    ("method", "checkpointing", "length"), [("lora-all", False, 512), ("full", True, 1024)]
)
def test_streams_of_gemma_3n_are_near_the_trace(method, checkpointing, length):
    tool = _tool()
    case = tool.Case(
        model="gemma-3n-E4B",
        method=method,
        checkpointing=checkpointing,
        sequences=1,
        length=length,
    )
    formula, trace, _ = tool.compare(case, layers=4)  # of every kind: shared, lent, sparse
    error = tool.errors_of(formula, trace)
    assert abs(error["peak"]) < 0.005, f"{case}: {error}"
    assert abs(error["backward"]) < 0.005, f"{case}: {error}"


@pytest.mark.parametrize("checkpointing", [True, False])
def test_hyper_connections_of_deepseek_v4_are_near_the_trace(checkpointing):
    tool = _tool()
    case = tool.Case(
        model="DeepSeek-V4-Flash",
        method="lora-qv",
        checkpointing=checkpointing,
        sequences=1,
        length=2048,
    )
    formula, trace, _ = tool.compare(case, layers=4)  # plain, indexed and heavily pooled keys
    error = tool.errors_of(formula, trace)
    assert abs(error["peak"]) < 0.01, f"{case}: {error}"
    assert abs(error["loss"]) < 0.01, f"{case}: {error}"
