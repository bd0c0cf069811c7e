"""The training of a pilot, in this process: by TRL, on rows of one's own, on quantised bases."""

import json
import random
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from small_pilots import CONFIG, JOB, write_data
from tuneplan.contract.reading import load_job
from tuneplan.piloting.batches import packed_lengths
from tuneplan.piloting.building import build
from tuneplan.piloting.rows import TokenRow, of_lengths, read_rows, write_rows
from tuneplan.piloting.training import train
from tuneplan.piloting.wire import PilotRequest, read_pilot_request, write_request
from tuneplan.piloting.worker import Events, Stage, is_out_of_memory
from tuneplan.planner.estimate import estimate_job
from tuneplan.planner.pilot_request import PilotChoices, PilotLimits, pilot_request
from tuneplan.planner.sources import sources_for
from tuneplan.spec.answer import Assumption
from tuneplan.spec.data import TokenStatistics

pytestmark = pytest.mark.filterwarnings("ignore")  # libraries warn of their own


def asked(
    folder: Path, trainer: str, *, own: bool = False, **settings: Any
) -> tuple[PilotRequest, dict[str, Assumption]]:
    (folder / "config.json").write_text(json.dumps(CONFIG))
    job = {**JOB, "model": str(folder / "config.json"), **settings}
    if own:
        data = write_data(folder)
        job["data"] = {name: str(folder / value) for name, value in data.items()}
    stated = load_job(job)
    now = estimate_job(stated, sources_for(stated, today=date(2026, 12, 1)))
    request, told = pilot_request(
        now.resolved,
        PilotLimits(num_steps=3),
        PilotChoices(device="cpu"),
        trainer=trainer,
        folder=folder,
    )
    return request, {one.name: one for one in told}


def trained(request: PilotRequest, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The events of a training, by name."""
    path = folder / "events.jsonl"
    events = Events(path)
    try:
        train(request, events, Stage(events), folder=folder)
    finally:
        events.close()
    found: dict[str, list[dict[str, Any]]] = {}
    for line in path.read_text().splitlines():
        event = json.loads(line)
        found.setdefault(event["event"], []).append(event)
    return found


def test_trl_trains_on_the_data_s_own_tokens(tmp_path: Path) -> None:
    request, told = asked(tmp_path, "trl", own=True, framework="trl")
    assert told["pilot.data"].value == "own"
    assert told["pilot.trainer"].value == "trl.SFTTrainer"
    rows = read_rows(Path(request.rows or ""))
    assert [len(row.ids) for row in rows] == [size for one in request.lengths for size in one]
    assert len(request.lengths[0]) == 2
    assert set(request.lengths[0]) == {max(max(one) for one in request.lengths)}
    words = {token for one in rows for token in one.ids.tolist()}
    assert len(words) > 60  # of a hundred and twenty that the data is made of
    assert 0 < np.mean([one.learned.mean() for one in rows]) < 1  # questions are not learned
    events = trained(request, tmp_path)
    assert [step["padded_tokens"] >= step["tokens"] > 0 for step in events["step"]] == [True] * 3
    longest = request.lengths[0][0]
    # Two micro-batches of two rows; the first is the worst, the second no longer than that.
    assert 2 * longest < events["step"][0]["tokens"] <= 4 * longest
    assert events["environment"][0]["software"]["trl"]
    assert [one["name"] for one in events["stage"]][:3] == ["forward", "backward", "optimizer_step"]


def test_trl_packs_as_the_job_says(tmp_path: Path) -> None:
    training = {**JOB["training"], "packing": True}
    request, _ = asked(tmp_path, "trl", own=True, framework="trl", training=training)
    assert request.sft["packing"]
    (first, *_rest) = trained(request, tmp_path)["step"]
    # Two micro-batches of two packed rows of 64, without padding; best fit leaves little unfilled.
    assert first["tokens"] == first["padded_tokens"]
    assert 0.75 * 256 < first["tokens"] <= 256


@pytest.mark.parametrize("trainer", ["trl", "transformers"])
def test_a_quantised_base_is_trained_as_people_do(tmp_path: Path, trainer: str) -> None:
    request, _ = asked(tmp_path, trainer, method="qlora", framework=trainer)
    model = build(request, torch.device("cpu"))
    kinds = {type(part).__name__ for part in model.modules()}
    assert "Linear4bit" in kinds
    trainable = {name for name, one in model.named_parameters() if one.requires_grad}
    assert trainable
    assert all("lora_" in name for name in trainable)
    assert len(trained(request, tmp_path)["step"]) == 3


def test_a_request_comes_back_as_it_was(tmp_path: Path) -> None:
    request, _ = asked(tmp_path, "transformers", framework="transformers")
    write_request(request, tmp_path / "request.json")
    assert read_pilot_request(tmp_path / "request.json") == request


def test_without_data_files_the_tokens_are_random_and_that_is_said(tmp_path: Path) -> None:
    request, told = asked(tmp_path, "transformers", framework="transformers")
    assert request.rows is None
    assert told["pilot.data"].value == "random tokens"
    assert "no data files" in str(told["pilot.data"].reason)


def row(length: int, start: int = 0) -> TokenRow:
    ids = np.arange(start, start + length, dtype=np.int32)
    return TokenRow(ids=ids, learned=np.arange(length) >= length // 2)


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=20),
    st.lists(st.integers(1, 60), min_size=1, max_size=30),
)
def test_rows_have_just_the_lengths_asked_for(have: list[int], wanted: list[int]) -> None:
    samples = [row(length, 1000 * number) for number, length in enumerate(have)]
    found = of_lengths(iter(samples), wanted)
    assert [len(one.ids) for one in found] == wanted
    assert all(one.learned.any() and len(one.learned) == len(one.ids) for one in found)


def test_a_sample_that_is_as_long_as_a_row_is_taken_whole(tmp_path: Path) -> None:
    samples = [row(5), row(9, 100), row(30, 200)]
    found = of_lengths(iter(samples), [9, 30, 5])
    assert [int(one.ids[0]) for one in found] == [100, 200, 0]
    write_rows(found, tmp_path / "rows.npz")
    back = read_rows(tmp_path / "rows.npz")
    assert [one.ids.tolist() for one in back] == [one.ids.tolist() for one in found]
    assert [one.learned.tolist() for one in back] == [one.learned.tolist() for one in found]


def test_samples_to_be_packed_are_as_long_as_those_of_the_data() -> None:
    generator = random.Random(3)  # noqa: S311 - lengths
    lengths = tuple(sorted(generator.randint(1, 400) for _ in range(5000)))
    statistics = TokenStatistics(
        num_samples=5000, total_tokens=sum(lengths), quantiles={}, lengths=lengths
    )
    groups = packed_lengths(statistics, rows=4, max_length=300, num_tokens=200_000)
    flat = [length for one in groups for length in one]
    cut = [min(length, 300) for length in lengths]
    assert sum(flat) == pytest.approx(200_000, rel=0.01)
    assert sum(flat) / len(flat) == pytest.approx(sum(cut) / len(cut), rel=0.01)


@pytest.mark.parametrize(
    ("error", "is_it"),
    [
        (MemoryError(), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (ValueError("shapes do not match"), False),
    ],
)
def test_out_of_memory_is_known_in_the_libraries_own_words(error: Exception, is_it: bool) -> None:
    assert is_out_of_memory(error) is is_it
