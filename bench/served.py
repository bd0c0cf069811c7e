"""A real ``tuneplan serve`` in a process of its own, for the benches of the page."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tuneplan.frozen import dataclass

ROOT = Path(__file__).resolve().parents[1]
JOB = "model=Qwen%2FQwen2.5-7B-Instruct&method=lora&samples=20000&mean_tokens=600"
CARD = f"{JOB}&gpu=H100+SXM"


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A server that listens.

    Attributes:
        port: On loopback.
        pid: Of the process.
    """

    port: int
    pid: int

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def resident_bytes(self) -> int:
        """What the process holds in memory now."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        line = next(one for one in status.splitlines() if one.startswith("VmRSS"))
        return int(line.split()[1]) * 1024


@contextmanager
def served() -> Iterator[Served]:
    """Start the command, wait for its line, end it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "tuneplan", "serve", "--port", "0"],
        stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            port = line.split("127.0.0.1:")[1].split("/")[0]
            yield Served(port=int(port), pid=process.pid)
        finally:
            process.terminate()
