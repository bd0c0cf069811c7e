"""``python -m tuneplan`` and the ``tuneplan`` command."""

from __future__ import annotations

import gc
import os
import sys


def main() -> None:
    """Run the command line and leave with its exit status."""
    # NumPy's BLAS would start a thread a core; nothing here multiplies matrices.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Looking for plugins of pydantic opens every installed distribution; none is used.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # A command makes many small objects that live to its end: looking for cycles that often
    # (every 700 new ones) takes a twentieth of its time.
    gc.set_threshold(100_000)
    from tuneplan.cli.main import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
