"""No figure of docs/accuracy.md may get worse without being published.

Every run of ``evidence/`` is predicted anew. What fails here is either a mistake, or to be told on
the page: ``make accuracy`` fits the ranges again and writes it.
"""

import importlib
import json
import sys
from pathlib import Path

import pytest

from tuneplan.catalog.calibration import load_calibration

ROOT = Path(__file__).parents[2]
PUBLISHED = json.loads((ROOT / "docs" / "accuracy.json").read_text(encoding="utf-8"))
# A rounded figure and the last bits of another processor, not a change.
RELATIVE, ABSOLUTE = 0.02, 0.0005
# Fitted anew for each model, or measured by tools that take hours: not done again here.
ELSEWHERE = (
    "speed_models",
    "coverage_memory_model",
    "coverage_throughput_model",
    "trace",
    "formula",
)


@pytest.fixture(scope="module")
def figures():
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        runs = importlib.import_module("accuracy_runs").Runs()
        targets = importlib.import_module("accuracy_targets")
    finally:
        sys.path.remove(str(ROOT / "tools"))
    runs.__dict__["calibration"] = load_calibration()  # what ships, not a new fit
    runs.__dict__["held_out_models"] = runs.shipped
    return {one.key: one for one in targets.figures(runs)}


@pytest.mark.parametrize("key", [key for key in PUBLISHED if not key.startswith(ELSEWHERE)])
def test_no_figure_is_worse_than_published(figures, key):
    found, published = figures[key], PUBLISHED[key]
    assert found.count >= published["runs"]
    for now, then in zip(found.measured, published["measured"], strict=True):
        if then is not None:
            assert now is not None
            assert now <= then * (1 + RELATIVE) + ABSOLUTE


def test_every_figure_is_published(figures):
    assert set(figures) == set(PUBLISHED)


def test_the_bundled_calibration_is_small_and_says_what_it_was_fitted_to():
    path = ROOT / "src" / "tuneplan" / "catalog" / "data" / "calibration.json"
    plain = json.loads(path.read_text(encoding="utf-8"))
    assert path.stat().st_size < 50_000
    assert plain["rows"] > 500
    assert len(plain["sources"]) > 5
    assert plain["as_of"].startswith("20")
