"""What this machine's PyTorch can train on; ``python -m tuneplan.piloting.probe`` writes it."""

from __future__ import annotations

import json
import subprocess
import sys

from tuneplan.frozen import dataclass
from tuneplan.piloting.runner import child_environment

_TIME_LIMIT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """The first card that PyTorch sees through CUDA or ROCm; None where there is none."""

    name: str | None = None
    memory_bytes: int | None = None
    count: int = 0


def probe(python: str = sys.executable) -> Probe:
    """Ask the interpreter's PyTorch; nothing is known where it does not answer."""
    try:
        done = subprocess.run(  # noqa: S603 - our own code, in the user's interpreter
            [python, "-m", "tuneplan.piloting.probe"],
            capture_output=True,
            text=True,
            timeout=_TIME_LIMIT_S,
            env=child_environment(),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Probe()
    return Probe(**json.loads(done.stdout)) if done.returncode == 0 else Probe()


def main() -> int:
    """Look and write."""
    import torch

    found: dict[str, str | int | None] = {}
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        found = {
            "name": properties.name,
            "memory_bytes": properties.total_memory,
            "count": torch.cuda.device_count(),
        }
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
