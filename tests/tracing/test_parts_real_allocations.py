"""The traced parts against what real steps of them allocate on a CPU."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

TOOLS = Path(__file__).parents[2] / "tools"
PARTS = ("adafactor", "selective", "dora", "saved", "dpo", "loha", "boft", "vblora")


def tool(monkeypatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(TOOLS))
    spec = importlib.util.spec_from_file_location("parts", TOOLS / "parts_against_cpu.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["parts"] = module
    spec.loader.exec_module(module)
    return module


def test_optimizers_checkpoints_adapters_and_objectives_peak_where_the_trace_says(monkeypatch):
    found = tool(monkeypatch).compare(PARTS)
    assert set(found) == set(PARTS)
    for errors in found.values():
        assert abs(errors["peak"]) < 0.01
        assert all(abs(errors[name]) < 0.01 for name in ("forward", "backward", "optimizer_step"))
