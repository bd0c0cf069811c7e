"""``python -m tuneplan`` and the ``tuneplan`` command."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and leave with its exit status."""
    from tuneplan.cli.main import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
