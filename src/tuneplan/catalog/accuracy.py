"""How far predictions were from measured runs: what ``make accuracy`` found, with the package."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

PATH: Final = Path(__file__).parent / "data" / "accuracy.json"


@lru_cache(maxsize=1)
def load_accuracy() -> dict[str, Any]:
    """The figures, the sources, and the points as rows under ``columns``."""
    found: dict[str, Any] = json.loads(PATH.read_text(encoding="utf-8"))
    return found
