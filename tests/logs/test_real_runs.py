"""Logs that real training leaves behind: transformers' Trainer on this machine's CPU."""

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from tuneplan.logs.measuring import measure
from tuneplan.logs.registry import find_logs, read_log
from tuneplan.spec.run_log import Metric

STEPS = 12


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[float]]:
    """The folder of a run, and when it logged by a clock of its own."""
    folder = tmp_path_factory.mktemp("run")
    script = Path(__file__).with_name("training_run.py")
    done = subprocess.run(
        [sys.executable, str(script), str(folder)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    clock = json.loads((folder / "clock.json").read_text())
    (folder / "clock.json").unlink()
    return folder, clock


def test_every_log_of_the_run_is_found_and_agrees(run: tuple[Path, list[float]]) -> None:
    folder, _ = run
    logs = {log.format: log for log in map(read_log, find_logs([folder]))}
    assert set(logs) == {"trainer_state", "tensorboard", "csv"}
    losses = {
        name: {point.step: loss for point, loss in log.series(Metric.LOSS)}
        for name, log in logs.items()
    }
    assert set(losses["csv"]) == set(range(1, STEPS + 1))
    assert losses["trainer_state"] == losses["csv"]
    assert losses["tensorboard"] == pytest.approx(losses["csv"], rel=1e-6)


def test_the_step_time_is_that_of_the_runs_own_clock(run: tuple[Path, list[float]]) -> None:
    folder, clock = run
    measured, _ = measure([read_log(path) for path in find_logs([folder])], num_accelerators=1)
    gaps = [after - before for before, after in pairwise(clock)]
    steady = gaps[2:]  # the first tenth of eleven gaps, rounded up, is warm-up
    assert measured.step_s == pytest.approx(median(steady), rel=0.1)
    assert measured.num_steps == STEPS
    assert measured.train_s is not None
    # 4 rows of 64 tokens a step.
    assert measured.tokens_per_s_per_accelerator == pytest.approx(256 / measured.step_s, rel=0.01)
    assert measured.measured_at is not None


def test_tensorboard_tells_how_far_the_run_goes_and_how_long_it_took(
    run: tuple[Path, list[float]],
) -> None:
    folder, _ = run
    (log,) = (one for one in map(read_log, find_logs([folder])) if one.format == "tensorboard")
    assert log.totals[Metric.TOTAL_STEPS] == STEPS
    assert log.points[-1].step == STEPS
    assert log.points[-1].values[Metric.TRAIN_S] > 0
