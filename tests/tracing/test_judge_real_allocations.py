"""The trace of a CPU run against what PyTorch's CPU allocator really handed out."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def _tool() -> ModuleType:
    path = Path(__file__).parents[2] / "tools" / "trace_against_cpu.py"
    spec = importlib.util.spec_from_file_location("trace_against_cpu", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["trace_against_cpu"] = module
    spec.loader.exec_module(module)
    return module


def test_the_trace_finds_the_peak_of_real_training_steps_on_a_cpu() -> None:
    found = _tool().compare(["falcon"])  # math attention, gradients that meet, checkpointing
    assert len(found) == 4 + 6
    for one in found:
        assert abs(one.error()) < 0.001, f"{one.case}: {one.error():+.2%}"
        for phase in one.measured:
            assert abs(one.error(phase)) < 0.005, f"{one.case} {phase}: {one.error(phase):+.2%}"
