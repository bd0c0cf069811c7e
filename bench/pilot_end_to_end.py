"""From theory to truth on this machine's processor: predict, pilot, predict again, run.

Three small jobs (full, LoRA, packed) on real text with a real tokenizer. The processor is measured
as an accelerator; each job is predicted, piloted and predicted again; then it runs at least ten
times as long. A second table holds the calibration by the first job alone against other lengths,
batches, sizes and methods.

    python bench/pilot_end_to_end.py [--threads N] [--seconds S] [--write FILE.md]

Speed is compared in wall time and in the time that the process spent on a CPU: machines that share
their cores drift in the first. The models have random weights; nothing is downloaded.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DATA = ROOT / "examples" / "support_chat.jsonl"
LONGER = 10  # a run over its pilot, in steps


def architecture(hidden: int, layers: int) -> dict[str, Any]:
    """A small Qwen2 with the vocabulary of the real tokenizer."""
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_size": hidden,
        "intermediate_size": hidden * 11 // 4,
        "num_hidden_layers": layers,
        "num_attention_heads": hidden // 64,
        "num_key_value_heads": max(hidden // 128, 1),
        "vocab_size": 151_936,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10_000.0,
        "use_sliding_window": False,
        "torch_dtype": "float32",
    }


MODELS = {"32M": (192, 8), "21M": (128, 8), "81M": (384, 12)}


def job(
    folder: Path, *, model: str = "32M", method: str = "full", rows: int = 2, length: int = 256,
    packing: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """A job as a job file has it."""
    stated: dict[str, Any] = {
        "model": str(folder / model),
        "method": method,
        "framework": "transformers",
        "data": {"path": str(DATA), "tokenizer": "Qwen/Qwen2.5-0.5B"},
        "training": {
            "per_device_train_batch_size": rows,
            "gradient_accumulation_steps": 1,
            "max_length": length,
            "packing": packing,
            "num_train_epochs": 3,
            "gradient_checkpointing": False,
            "optim": "adamw_torch",
            "precision": "float32",
        },
        "hardware": {"accelerator": "this processor", "accelerators_per_node": 1},
        "accelerators": [str(folder / "chip.yaml")],
    }
    if method == "lora":
        stated["adapter"] = {"r": 16}
    return stated


JOBS: dict[str, dict[str, Any]] = {
    "full, padded": {},
    "LoRA, padded": {"method": "lora"},
    "full, packed": {"packing": True},
}
OTHERS: dict[str, dict[str, Any]] = {
    "max_length 512": {"length": 512},
    "max_length 128": {"length": 128},
    "batch of 4": {"rows": 4},
    "batch of 1": {"rows": 1},
    "model of 21M": {"model": "21M"},
    "model of 81M": {"model": "81M"},
    "LoRA": {"method": "lora"},
    "packed": {"packing": True},
}


class Bench:
    """The commands, in a folder of their own."""

    def __init__(self, folder: Path, *, threads: int, pilot_s: float) -> None:
        self.folder = folder
        self.pilot_s = pilot_s
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "OMP_NUM_THREADS": str(threads),
        }
        for name, (hidden, layers) in MODELS.items():
            (folder / name).mkdir()
            text = json.dumps(architecture(hidden, layers))
            (folder / name / "config.json").write_text(text, encoding="utf-8")

    def tuneplan(self, *words: str) -> str:
        """What a command prints."""
        done = subprocess.run(
            [sys.executable, "-m", "tuneplan", *words],
            capture_output=True, text=True, check=False, env=self.environment,
        )  # fmt: skip
        if done.returncode:
            sys.exit(f"tuneplan {' '.join(words)}\n{done.stderr}")
        return done.stdout

    def measure(self) -> None:
        """The processor as an accelerator."""
        file = self.folder / "chip.yaml"
        self.tuneplan("catalog", "accelerators", "--measure", "--output", str(file))
        lines = file.read_text(encoding="utf-8").splitlines()
        named = ["  - name: this processor" if "- name:" in one else one for one in lines]
        file.write_text("\n".join(named) + "\n", encoding="utf-8")

    def write(self, name: str, **changes: Any) -> str:
        """The job file."""
        file = self.folder / f"{name.replace(' ', '_').replace(',', '')}.json"
        file.write_text(json.dumps(job(self.folder, **changes)), encoding="utf-8")
        return str(file)

    def pilot(self, file: str, *more: str, seconds: float) -> dict[str, Any]:
        """A pilot's answer."""
        words = ("--device", "cpu", "--time-limit", f"{seconds:.0f} s", "--json", *more)
        answer: dict[str, Any] = json.loads(self.tuneplan("pilot", file, *words))
        if answer["status"] != "ok":
            sys.exit(f"{file}: {answer['status']} {answer['warnings']}")
        return answer

    def estimate(self, file: str, *more: str) -> dict[str, Any]:
        """An estimate's answer."""
        answer: dict[str, Any] = json.loads(self.tuneplan("estimate", file, "--json", *more))
        return answer


def totals(answer: dict[str, Any]) -> tuple[float, float, int, int]:
    """Wall and CPU seconds, positions and steps, without the warm-up."""
    kept = answer["steps"][answer["warm_up_steps"] :]
    return (
        sum(one["step_s"] for one in kept),
        sum(one["cpu_s"] for one in kept),
        sum(one["padded_tokens"] for one in kept),
        len(kept),
    )


WHATEVER_THE_LENGTH = ("optimizer", "host", "launch")


def step_range(estimate: dict[str, Any], ran: dict[str, Any]) -> tuple[float, float, float]:
    """Predicted seconds of a step of as many positions as the steps of a run had, on average."""
    _, _, positions, count = totals(ran)
    time = estimate["time"]
    step, terms = time["step_s"], {one["kind"]: one["time_s"] for one in time["terms"]}
    planned = time["tokens_per_s_per_accelerator"]["likely"] * step["likely"]
    own = terms.pop("own_measurements", 0.0)
    fixed = sum(terms.get(kind, 0.0) for kind in WHATEVER_THE_LENGTH)
    fixed *= step["likely"] / (step["likely"] - own)
    share = fixed + (step["likely"] - fixed) * positions / count / planned
    return tuple(  # type: ignore[return-value]
        share * step[edge] / step["likely"] for edge in ("low", "likely", "high")
    )


def first_table(bench: Bench, say: Any) -> Iterator[str]:
    """Before, after, actual."""
    yield (
        "| job | s of a step, before | after the pilot | the run | wall | CPU time | "
        "in the range | pilot | run |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    memory = [
        "| job | GiB of the process, before | after the pilot | the run | off by |",
        "|---|---|---|---|---|",
    ]
    for name, changes in JOBS.items():
        say(name)
        file = bench.write(name, **changes)
        store = str(bench.folder / f"{name}.sqlite3")
        before = bench.estimate(file)
        piloted = bench.pilot(file, "--store", store, seconds=bench.pilot_s)
        after = bench.estimate(file, "--calibration", "own", "--store", store)
        steps = LONGER * len(piloted["steps"])
        ran = bench.pilot(
            file, "--no-store", "--all-steps", "--steps", str(steps), seconds=100 * bench.pilot_s
        )
        low, likely, high = step_range(after, ran)
        wall, cpu, _, count = totals(ran)
        _, pilot_cpu, _, pilot_count = totals(piloted)
        # In CPU time: the pilot's factor on the same prediction.
        factor = pilot_cpu / pilot_count / step_range(before, piloted)[1]
        in_cpu = (cpu / count) / (factor * step_range(before, ran)[1])
        actual = wall / count
        yield (
            f"| {name} | {_range(step_range(before, ran))} | {_range((low, likely, high))} | "
            f"{actual:.3f} | {actual / likely - 1:+.1%} | {in_cpu - 1:+.1%} | "
            f"{'yes' if low <= actual <= high else 'no'} | "
            f"{len(piloted['steps'])} steps, {sum(one['step_s'] for one in piloted['steps']):.0f} s"
            f" | {len(ran['steps'])} steps, {sum(one['step_s'] for one in ran['steps']):.0f} s |"
        )
        held = ran["peak"]["device_bytes"]
        device = after["memory"]["peak_device_bytes"]
        memory.append(
            f"| {name} | {_gib(before['memory']['peak_device_bytes'])} | {_gib(device)} | "
            f"{held / 2**30:.3f} | {device['likely'] / held - 1:+.1%} |"
        )
    yield ""
    yield from memory


def second_table(bench: Bench, say: Any) -> Iterator[str]:
    """The calibration by one job, on others."""
    store = str(bench.folder / "first.sqlite3")
    bench.pilot(bench.write("first"), "--store", store, seconds=bench.pilot_s)
    yield (
        "| job | s of a step, measured | before | off by | calibrated by another job | "
        "off by | in the range |"
    )
    yield "|---|---|---|---|---|---|---|"
    for name, changes in OTHERS.items():
        say(name)
        file = bench.write(f"other_{name}", **changes)
        before = bench.estimate(file)
        after = bench.estimate(file, "--calibration", "own", "--store", store)
        ran = bench.pilot(file, "--no-store", seconds=bench.pilot_s)
        wall, _, _, count = totals(ran)
        actual = wall / count
        before, after = step_range(before, ran), step_range(after, ran)
        yield (
            f"| {name} | {actual:.3f} | {_range(before)} | {before[1] / actual - 1:+.0%} | "
            f"{_range(after)} | {after[1] / actual - 1:+.0%} | "
            f"{'yes' if after[0] <= actual <= after[2] else 'no'} |"
        )


def _range(found: tuple[float, float, float]) -> str:
    return f"{found[1]:.3f} ({found[0]:.3f} to {found[2]:.3f})"


def _gib(found: dict[str, float]) -> str:
    return _range((found["low"] / 2**30, found["likely"] / 2**30, found["high"] / 2**30))


def main() -> int:
    """Run all and print the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0, help="a pilot at most")
    parser.add_argument("--write", type=Path)
    asked = parser.parse_args()

    def say(name: str) -> None:
        sys.stderr.write(f"{name} ...\n")

    with tempfile.TemporaryDirectory(prefix="tuneplan-bench-") as folder:
        bench = Bench(Path(folder), threads=asked.threads, pilot_s=asked.seconds)
        bench.measure()
        lines = [
            "# Pilot, calibrate, run",
            "",
            _machine(asked.threads),
            "Small Qwen2 models with random weights, 300 real chats, Qwen's tokenizer, float32.",
            "",
            "## Before and after a pilot of the job itself",
            "",
            *first_table(bench, say),
            "",
            "## Calibrated by another job",
            "",
            "Calibrated by the pilot of the first job alone (full, 32M, batches of 2, 256 tokens).",
            "",
            *second_table(bench, say),
            "",
        ]
    text = "\n".join(lines)
    sys.stdout.write(text)
    if asked.write:
        asked.write.write_text(text, encoding="utf-8")
    return 0


def _machine(threads: int) -> str:
    sys.path.insert(0, str(ROOT / "src"))
    from tuneplan.piloting.surroundings import processor

    command = f"`python bench/pilot_end_to_end.py --threads {threads}`"
    return f"{command} on {processor()}, Python {platform.python_version()}."


if __name__ == "__main__":
    sys.exit(main())
