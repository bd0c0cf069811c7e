"""``python -m tuneplan`` and the ``tuneplan`` command."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line and leave with its exit status."""
    # NumPy's BLAS would start a thread a core; nothing here multiplies matrices.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Looking for plugins of pydantic opens every installed distribution; none is used.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    from tuneplan.cli.main import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
