"""A command with limits: ``python -m tuneplan.cli.guarded SETTINGS WORDS``, for agents' calls."""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path


def main() -> int:
    """Set the limits, close the doors, run the command."""
    settings = json.loads(sys.argv[1])
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ["TUNEPLAN_JOBS"] = "1"
    memory = int(settings["memory_bytes"])
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    seconds = int(settings["cpu_s"]) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    import tuneplan.cli.main
    from tuneplan.access.guard import install

    install(
        [Path(os.path.realpath(root)) for root in settings["roots"]],
        [Path(os.path.realpath(folder)) for folder in settings["writable"]],
    )
    return tuneplan.cli.main.run(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
