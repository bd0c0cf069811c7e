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

from tuneplan.catalog.accelerators import load_accelerators
from tuneplan.planner.measure_chip import measure_chip

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
JOB = {
    "model": "config.json",
    "framework": "transformers",
    "method": "full",
    "data": {"num_samples": 100, "mean_tokens": 20, "quantiles": {"p50": 16, "max": 64}},
    "training": {
        "max_length": 64,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "precision": "fp32",
        "dtype": "float32",
        "max_steps": 50,
        "gradient_checkpointing": False,
    },
}


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


@pytest.mark.parametrize("method", ["full", "lora"])
def test_a_small_job_is_trained_and_measured(tmp_path: Path, method: str) -> None:
    found = answer(tmp_path, "--steps", "4", "--method", method)
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
    assert found["moved"] == []  # no accelerator is stated: there was no time to move


def test_memory_that_runs_out_is_an_answer_with_its_stage(tmp_path: Path) -> None:
    found = answer(tmp_path, "--steps", "4", "--memory-limit", "1 MiB")
    assert found["status"] == "oom"
    assert found["stage"] in {"load", "first_forward", "first_backward"}
    assert kept(tmp_path)[0]["status"] == "oom"


def test_an_interrupt_leaves_no_process_and_no_record(tmp_path: Path) -> None:
    process = subprocess.Popen(
        command(tmp_path, "--steps", "9999", "--time-limit", "1 h"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    worker = None
    while worker is None:
        listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        for number in map(int, listed.split()):
            if b"piloting.worker" in Path(f"/proc/{number}/cmdline").read_bytes():
                worker = number
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 130
    assert not Path(f"/proc/{worker}").exists()
    assert kept(tmp_path) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("--method", "qlora"),
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
