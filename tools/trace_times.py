"""What tracing takes: seconds and main memory, for jobs of every size.

    python tools/trace_times.py [--write docs/internals/trace_times.md]

Each job has a process of its own, as under ``tuneplan trace``: the libraries are imported, then
the job is recorded. Seconds are those of the processor, which other work on the machine hardly
changes; seconds of the clock stand beside them, with the machine's load.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

ROWS: Mapping[str, tuple[str, str, int]] = {
    "8B, LoRA": ("meta-llama/Llama-3.1-8B", "lora", 2048),
    "8B, full": ("meta-llama/Llama-3.1-8B", "full", 2048),
    "70B, QLoRA": ("meta-llama/Llama-3.1-70B", "qlora", 2048),
    "MoE of 30B, LoRA": ("Qwen/Qwen3-30B-A3B", "lora", 2048),
    "vision-language of 7B, LoRA": ("Qwen/Qwen2.5-VL-7B-Instruct", "lora", 2048),
}
_VISION = "vision-language of 7B, LoRA"
HEAD = """# What tracing takes

Made on {day} by `python tools/trace_times.py --write docs/internals/trace_times.md` (torch {torch},
transformers {transformers}, peft {peft}; {cores} cores, load average {load:.1f}).

Two training steps of 1 x 2048 tokens on an A100 under TRL's defaults, at full depth, no cache; the
vision-language model with an image of 1008 x 980 pixels. Seconds of the processor after the
imports, which are the same for every job; beside them seconds of the clock, which a busy machine
makes longer, and the most main memory that the process held. Where lengths of rows vary, a second
length is recorded too, which takes as long again.

| job | imports (s) | trace (s) | trace, by the clock (s) | main memory (MiB) |
|---|---|---|---|---|
"""


def job_of(name: str) -> dict[str, Any]:
    """A row as a job file."""
    model, method, length = ROWS[name]
    return {
        "model": model,
        "method": method,
        **({} if method == "full" else {"adapter": {"lora_dropout": 0.0}}),
        "framework": "trl",
        "training": {
            "max_length": length, "per_device_train_batch_size": 1, "packing": False,
            "gradient_accumulation_steps": 1,
        },
        "data": {"num_samples": 1000, "mean_tokens": length},
        "hardware": {"accelerator": "A100 80GB SXM"},
    }  # fmt: skip


def record_one(name: str) -> dict[str, float]:
    """Record a job in this process."""
    from tuneplan.contract.reading import load_job
    from tuneplan.planner.estimate import resolve_job
    from tuneplan.planner.sources import sources_for
    from tuneplan.planner.trace_requests import request_of

    job = load_job(job_of(name))
    request = request_of(resolve_job(job, sources_for(job, today=datetime.now(tz=UTC).date())))
    from tuneplan.tracing.images import ImageSize
    from tuneplan.tracing.session import prepare_process, record

    begun = time.process_time()
    prepare_process()
    imported, clock = time.process_time(), time.perf_counter()
    record(
        request.architecture, request.recipe, sequences=request.sequences, length=request.length,
        compute_capability=request.compute_capability, parallelism=request.parallelism,
        images=(ImageSize(1008, 980),) if name == _VISION else (),
    )  # fmt: skip
    return {
        "import_s": imported - begun,
        "trace_s": time.process_time() - imported,
        "clock_s": time.perf_counter() - clock,
        "bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def measured(name: str) -> dict[str, float]:
    """The same in a fresh process."""
    command = [sys.executable, __file__, "--one", name]
    settings = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=settings)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--one", help="record this job here, and say what it took")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(record_one(options.one)))
        return
    text = HEAD.format(
        day=datetime.now(tz=UTC).date().isoformat(),
        cores=os.cpu_count(),
        load=os.getloadavg()[0],
        **{name: version(name) for name in ("torch", "transformers", "peft")},
    )
    for name in ROWS:
        row = measured(name)
        text += (
            f"| {name} | {row['import_s']:.1f} | {row['trace_s']:.1f} | {row['clock_s']:.1f} "
            f"| {row['bytes'] / 2**20:.0f} |\n"
        )
    print(text)
    if options.write:
        options.write.write_text(text)


if __name__ == "__main__":
    main()
