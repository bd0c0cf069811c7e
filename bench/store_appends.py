"""Two processes append 10,000 measurements each at once; a third is killed with -9 in the middle.

``python bench/store_appends.py [--count N]``: nothing that was acknowledged is lost, nothing is
half-written, the store opens.
"""

import argparse
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tuneplan.contract.measurements import measurement_id, measurement_text
from tuneplan.store.store import Store

SOURCE = Path(__file__).resolve().parents[1] / "src"
WRITER = """
import os, sys
from tuneplan.spec.measurement import MeasuredStep, Measurement, Origin
from tuneplan.store.store import Store
path, name, count, told = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
steps = tuple(MeasuredStep(step_s=0.5 + 0.01 * n, tokens=512, padded_tokens=640) for n in range(12))
acknowledged = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
with Store(path) as store:
    for number in range(count):
        kept = store.append(
            Measurement(origin=Origin.PILOT, num_steps=number, steps=steps, source=(name,))
        )
        os.write(acknowledged, (kept + "\\n").encode())
"""


def writer(folder: Path, name: str, count: int) -> subprocess.Popen[bytes]:
    """A process that appends, and writes down each id that it was told."""
    return subprocess.Popen(
        [
            *(sys.executable, "-c", WRITER, str(folder / "store.sqlite3")),
            *(name, str(count), str(folder / name)),
        ],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )


def acknowledged(folder: Path, name: str) -> list[str]:
    """The ids that a writer was told."""
    path = folder / name
    return path.read_text().split() if path.exists() else []


def main() -> int:
    """Append, kill, count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    count = parser.parse_args().count
    with tempfile.TemporaryDirectory(prefix="tuneplan-appends-") as name:
        folder = Path(name)
        began = time.perf_counter()
        whole = [writer(folder, each, count) for each in ("first", "second")]
        killed = writer(folder, "killed", 10 * count)
        while len(acknowledged(folder, "killed")) < count // 2:
            assert killed.poll() is None, "it ended by itself"
            time.sleep(0.005)
        killed.send_signal(signal.SIGKILL)
        assert killed.wait() == -signal.SIGKILL
        print(f"killed with -9 after {len(acknowledged(folder, 'killed'))} acknowledged appends")
        assert [process.wait() for process in whole] == [0, 0]
        seconds = time.perf_counter() - began
        told = {each: acknowledged(folder, each) for each in ("first", "second", "killed")}
        with Store(folder / "store.sqlite3") as store:
            kept = store.find()
        ids = {one.id for one in kept}
        sums = sum(measurement_id(measurement_text(one.measurement)) != one.id for one in kept)
        lost = {each: len(set(names) - ids) for each, names in told.items()}
        connection = sqlite3.connect(folder / "store.sqlite3")
        (integrity,) = connection.execute("PRAGMA integrity_check").fetchone()
        connection.close()
    appended = sum(map(len, told.values()))
    print(f"{appended} acknowledged in {seconds:.1f} s ({appended / seconds:.0f} a second):")
    for each, names in told.items():
        print(f"  {each:8} acknowledged {len(names):6}   lost {lost[each]}")
    beyond = len(ids) - appended
    print(f"kept {len(kept)}, of which {beyond} kept but not yet acknowledged when it was killed")
    print(f"rows whose content does not give their id: {sums}; integrity_check: {integrity}")
    assert not any(lost.values())
    assert not sums
    assert integrity == "ok"
    assert beyond in (0, 1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
