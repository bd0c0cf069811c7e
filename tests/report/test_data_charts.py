"""Pictures of a data profile: what they show adds up, and they can be drawn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tuneplan.contract.measured import DataProfileAnswer
from tuneplan.planner.profile_data import profile_data
from tuneplan.report.data_charts import length_histogram, length_tradeoff, packing_bars
from tuneplan.report.drawing import svg
from tuneplan.report.profile_answer import profile_answer

CHAT = Path(__file__).parents[2] / "examples" / "support_chat.jsonl"


@pytest.fixture(scope="module")
def answer() -> DataProfileAnswer:
    return profile_answer(profile_data([CHAT], tokenizer="approximate"), as_of="2026-01-01")


def test_the_histogram_shows_every_sequence_once(answer: DataProfileAnswer):
    chart = length_histogram(answer, width=600)
    bars = chart["layer"][0]["data"]["values"]
    assert sum(bar["sequences"] for bar in bars) == answer.num_samples
    assert len({bar["tokens"] for bar in bars}) == len(bars)
    assert answer.recommended is not None
    (mark,) = chart["layer"][1]["data"]["values"]
    assert mark["tokens"].endswith(f"{answer.recommended.max_length - 1:,}")


def test_the_tradeoff_has_every_length_and_all_four_shares(answer: DataProfileAnswer):
    values = length_tradeoff(answer, width=600)["data"]["values"]
    lengths = [one.max_length for one in answer.at_max_length]
    assert [value["max_length"] for value in values[::4]] == lengths
    assert all(0 <= value["percent"] <= 100 for value in values)
    cut = [value["percent"] for value in values if value["what"] == "tokens cut off"]
    assert cut == sorted(cut, reverse=True)


def test_the_bars_of_packing_have_every_way(answer: DataProfileAnswer):
    at = answer.at_max_length[0]
    values = packing_bars(answer, max_length=at.max_length, width=600)["data"]["values"]
    assert len(values) == 2 * len(at.packed_efficiency)
    with pytest.raises(ValueError, match="no max_length 7"):
        packing_bars(answer, max_length=7, width=600)


@pytest.mark.parametrize("width", [270, 660])
def test_each_can_be_drawn(answer: DataProfileAnswer, width: int):
    length = answer.at_max_length[-1].max_length
    for chart in (
        length_histogram(answer, width=width),
        length_tradeoff(answer, width=width),
        packing_bars(answer, max_length=length, width=width),
    ):
        assert json.loads(json.dumps(chart)) == chart
        assert svg(chart, label="lengths").startswith('<svg role="img"')
