"""The version, where every room can read it; ``pyproject.toml`` and the changelog repeat it."""

from typing import Final

__version__: Final = "0.1.0"
