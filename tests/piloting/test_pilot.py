"""``tuneplan pilot`` on this machine's CPU: real training of a model too small to matter."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch  # noqa: F401 - without it nothing here means anything
import yaml

from small_pilots import CONFIG, JOB
from tuneplan.catalog.accelerators import load_accelerators
from tuneplan.planner.measure_chip import measure_chip

TWO = (
    *("--set", "hardware.accelerator=A100-80GB-PCIe"),
    *("--set", "hardware.accelerators_per_node=2"),
)


def command(folder: Path, *arguments: str) -> list[str]:
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "job.yaml").write_text(yaml.safe_dump(JOB))
    store = str(folder / "store.sqlite3")
    return [
        *(sys.executable, "-m", "tuneplan", "pilot", str(folder / "job.yaml"), "--device", "cpu"),
        *("--store", store, "--json", *arguments),
    ]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def answer(folder: Path, *arguments: str) -> dict:
    done = subprocess.run(
        command(folder, *arguments), capture_output=True, text=True, env=environment(), check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def kept(folder: Path) -> list[dict]:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tuneplan", "store", "list", "--json"),
            *("--store", str(folder / "store.sqlite3")),
        ],
        capture_output=True,
        text=True,
        env=environment(),
        check=True,
    )
    return json.loads(done.stdout)["measurements"]


def test_a_small_job_is_trained_and_measured(tmp_path: Path) -> None:
    found = answer(tmp_path, "--steps", "4", "--method", "lora")
    assert found["status"] == "ok"
    assert found["stage"] is None
    assert len(found["steps"]) == 4
    first, *rest = found["steps"]
    # The worst micro-batch comes first: two rows of 64, then rows from the data.
    assert first["padded_tokens"] > max(step["padded_tokens"] for step in rest) / 2
    assert all(0 < step["tokens"] <= step["padded_tokens"] for step in found["steps"])
    assert all(step["step_s"] > 0 and step["cpu_s"] > 0 for step in found["steps"])
    assert found["peak"]["host_bytes"] > 50 * 2**20
    assert found["environment"]["software"]["torch"]
    (one,) = kept(tmp_path)
    assert one["measurement_id"] == found["measurement_id"]
    assert one["origin"] == "pilot"
    assert found["before"]["memory"]["peak_bytes"]["likely"] > 0
    # No accelerator is stated: there was no time to move, memory alone.
    assert {one["figure"] for one in found["moved"]} <= {"peak_reserved_bytes", "peak_device_bytes"}


def test_memory_that_runs_out_is_an_answer_with_its_stage(tmp_path: Path) -> None:
    found = answer(tmp_path, "--steps", "4", "--memory-limit", "1 MiB")
    assert found["status"] == "oom"
    assert found["stage"] in {"load", "first_forward", "first_backward"}
    assert kept(tmp_path)[0]["status"] == "oom"


@pytest.mark.parametrize("extra", [(), TWO], ids=["one process", "two processes"])
def test_an_interrupt_leaves_no_process_and_no_record(
    tmp_path: Path, extra: tuple[str, ...]
) -> None:
    process = subprocess.Popen(
        command(tmp_path, "--steps", "9999", "--time-limit", "1 h", *extra),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    wanted = 2 if extra else 1
    workers: set[int] = set()
    while len(workers) < wanted:
        assert process.poll() is None
        workers = {one for one in below(process.pid) if trains(words_of(one))}
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 130
    assert [one for one in workers if Path(f"/proc/{one}").exists()] == []
    assert kept(tmp_path) == []


def words_of(number: int) -> list[str]:
    try:
        found = Path(f"/proc/{number}/cmdline").read_bytes()
    except OSError:
        return []
    return found.decode().split("\0")


def trains(words: list[str]) -> bool:
    return "tuneplan.piloting.worker" in words and "torch.distributed.run" not in words


def below(number: int) -> set[int]:
    """The processes that one has started, and those that they have."""
    try:
        listed = Path(f"/proc/{number}/task/{number}/children").read_text().split()
    except OSError:
        return set()
    return {int(one) for one in listed}.union(*(below(int(one)) for one in listed))


@pytest.mark.parametrize(
    "arguments",
    [
        ("--method", "gptq-lora"),
        ("--set", "objective=dpo"),
        ("--memory-limit", "7"),
        ("--time-limit", "soon"),
    ],
)
def test_what_no_pilot_runs_is_refused_with_status_2(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    done = subprocess.run(
        command(tmp_path, *arguments),
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    assert done.returncode == 2
    assert json.loads(done.stdout)["errors"]


def test_two_processes_train_together_and_each_tells_its_own(tmp_path: Path) -> None:
    found = answer(tmp_path, "--steps", "4", *TWO)
    assert found["status"] == "ok", found["warnings"]
    assert found["environment"]["num_accelerators"] == 2
    assert [one["host_bytes"] > 50 * 2**20 for one in found["ranks"]] == [True, True]
    assert found["peak"]["host_bytes"] == max(one["host_bytes"] for one in found["ranks"])
    assert all(one["step_s"] > 0 for one in found["ranks"])
    # Two rows of 64 on one process, rows of the data on the other; two micro-batches a step.
    first = found["steps"][0]
    assert first["padded_tokens"] > 2 * 64
    (one,) = kept(tmp_path)
    assert one["num_accelerators"] == 2


def test_a_process_out_of_memory_ends_all_of_them(tmp_path: Path) -> None:
    found = answer(tmp_path, "--steps", "4", "--memory-limit", "1 MiB", *TWO)
    assert found["status"] == "oom", found["warnings"]
    assert found["stage"] in {"load", "first_forward", "first_backward"}


def test_what_accelerate_would_not_shard_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        command(tmp_path, *TWO, "--set", "parallelism.strategy=fsdp2"),
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    assert done.returncode == 2
    assert [one["code"] for one in json.loads(done.stdout)["errors"]] == ["pilot_cpu_not_sharded"]


def test_this_machine_s_processor_is_measured(tmp_path: Path) -> None:
    file = tmp_path / "chip.yaml"
    file.write_text(measure_chip(device="cpu", as_of="2026-12-01"))
    (entry,) = [
        entry
        for entry in load_accelerators([file]).accelerators
        if entry.as_of == "2026-12-01" and "--measure" in entry.source
    ]
    assert 1e9 < entry.dense_flop_per_s["float32"] < 1e15
    assert 1e8 < entry.memory_bandwidth_bytes_per_s < 1e13
