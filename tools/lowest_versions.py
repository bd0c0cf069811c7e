"""Print the lowest version that ``pyproject.toml`` allows of each dependency, as pip constraints.

``make lowest`` installs with them and runs the tests. Covers the base dependencies and the extras
of ``EXTRAS``; what PyTorch, Ray and the agents' SDK go with is not ours to say.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = ("tokens", "logs", "report", "schedule", "prices", "watch")


def lowest_versions() -> Iterator[str]:
    """``click==8.1`` for ``click>=8.1``, and so on."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    written = [*project["dependencies"], *(one for name in EXTRAS for one in extras[name])]
    for requirement in map(Requirement, dict.fromkeys(written)):
        for bound in requirement.specifier:
            if bound.operator == ">=":
                yield f"{requirement.name}=={bound.version}"


if __name__ == "__main__":
    print("\n".join(lowest_versions()))
