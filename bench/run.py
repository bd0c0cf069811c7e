"""How fast tuneplan is, on this machine: ``make bench``.

Prints one table: whole commands with Python's own start, and what happens inside. Medians; the
ratio is to a bare start of Python, so that two machines can be compared. Nothing here is a test:
the tests do not look at a clock.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import date
from importlib.metadata import version
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from tuneplan import __version__, load_job, plan  # noqa: E402 - the source tree of this file comes first
from tuneplan.catalog import kernels  # noqa: E402
from tuneplan.planner.estimate import estimate_job, estimate_resolved  # noqa: E402
from tuneplan.planner.plan import Plan  # noqa: E402
from tuneplan.planner.sources import sources_for  # noqa: E402
from tuneplan.spec.stated import StatedJob  # noqa: E402

TODAY = date(2026, 11, 30)
MODEL = "Qwen/Qwen2.5-7B-Instruct"
NUMBERS = {"data.num_samples": 20_000, "data.mean_tokens": 600}
ONE = {"model": MODEL, "method": "lora", "hardware.accelerator": "H100 SXM", **NUMBERS}
# Every chip that has an offer, 1 to 64 cards in nodes of eight, everything else free.
WHOLE = {"model": MODEL, **NUMBERS}


def main() -> None:
    """Measure and print."""
    print(f"{_machine()}\n")
    bare_s = _process(["-c", "pass"])
    searched = plan(load_job(overrides=WHOLE), today=TODAY)
    print(f"{'':52}{'median':>10}{'x bare Python':>15}")
    for name, seconds in [*_processes(bare_s), *_inside(searched)]:
        print(f"{name:52}{_shown(seconds):>10}{seconds / bare_s:>15.1f}")
    rate = searched.num_evaluated / searched.elapsed_s
    each = searched.num_candidates / searched.elapsed_s
    print(f"\nevaluations per second of the search: {rate:,.0f} in full (memory, time, cost),")
    print(f"{each:,.0f} counting those that memory rules out")
    print(f"the whole catalogue: {_grid(searched)}")


def _processes(bare_s: float) -> Iterator[tuple[str, float]]:
    """Whole commands, Python's start included."""
    yield "python -c pass", bare_s
    yield "import tuneplan", _process(["-c", "import tuneplan"])
    yield "tuneplan --help", _tuneplan("--help")
    yield "tuneplan estimate, numbers for data", _tuneplan("estimate", *_flags(ONE))
    example = str(ROOT / "examples" / "support_chat.yaml")
    yield (
        "tuneplan estimate, 300 rows read and tokenised",
        _tuneplan("estimate", "--accelerator", "H100 SXM", example),
    )
    yield "tuneplan plan, the example", _tuneplan("plan", example)
    yield (
        "tuneplan plan, the whole catalogue",
        _process(["-m", "tuneplan", "plan", *_flags(WHOLE)], 3),
    )


def _inside(searched: Plan) -> Iterator[tuple[str, float]]:
    """What happens within one process, caches warm unless it says otherwise."""
    job = load_job(overrides=ONE)
    sources = sources_for(job, today=TODAY)
    resolved = estimate_job(job, sources).resolved
    chip = sources.accelerators.resolve("H100 SXM").accelerator

    def curves() -> None:
        for cached in (kernels._curves, kernels._arrays, kernels._manifest):  # noqa: SLF001
            cached.cache_clear()
        kernels.load_curves(chip)

    yield "one full evaluation, in process", _repeated(lambda: estimate_resolved(resolved, sources))
    yield "the same from the job on", _repeated(lambda: estimate_job(job, sources))
    yield "curves of one chip, read anew", _repeated(curves)
    whole: StatedJob = load_job(overrides=WHOLE)
    yield "plan of the whole catalogue, in process", _repeated(lambda: plan(whole, today=TODAY), 3)
    yield "one evaluation within it", searched.elapsed_s / max(searched.num_evaluated, 1)


def _grid(searched: Plan) -> str:
    from tuneplan.planner.space import space_of

    space = space_of(searched.job, sources_for(searched.job, today=TODAY))
    cards = sorted({nodes * cards for nodes, cards in space.shapes})
    return (
        f"{len(space.accelerators)} chips x {len(space.shapes)} counts ({cards[0]} to {cards[-1]} "
        f"cards) x methods {', '.join(map(str, space.methods))} x layouts "
        f"{', '.join(map(str, space.strategies))} x checkpointing {len(space.checkpointing)} x "
        f"packing {len(space.packing)} x micro-batches {', '.join(map(str, space.micro_batches))}\n"
        f"= {searched.num_candidates:,} candidates, {searched.num_evaluated:,} of them evaluated, "
        f"{searched.elapsed_s:.2f} s the first time in a process"
    )


def _flags(keys: dict[str, object]) -> list[str]:
    return [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]


def _tuneplan(*arguments: str) -> float:
    return _process(["-m", "tuneplan", *arguments])


def _process(arguments: list[str], count: int = 5) -> float:
    """Median seconds of a Python process, after one that fills the file cache."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, *arguments]

    def run() -> None:
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)

    return _repeated(run, count)


def _repeated(function: Callable[[], object], count: int = 15) -> float:
    function()
    taken = []
    for _ in range(count):
        started = perf_counter()
        function()
        taken.append(perf_counter() - started)
    return statistics.median(taken)


def _shown(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} us"


def _machine() -> str:
    model = platform.processor() or platform.machine()
    facts = Path("/proc/cpuinfo")
    if facts.exists():
        lines = facts.read_text(encoding="utf-8").splitlines()
        model = next((x.split(":")[1].strip() for x in lines if x.startswith("model name")), model)
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return (
        f"{model}, {os.cpu_count()} cores{load}; {platform.system()}, "
        f"Python {platform.python_version()}, NumPy {version('numpy')}, "
        f"tuneplan {__version__}"
    )


if __name__ == "__main__":
    main()
