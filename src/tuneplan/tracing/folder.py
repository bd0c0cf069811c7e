"""Where traces are kept."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/tuneplan/traces``, else under ``~/.cache``."""
    stated = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(stated) if Path(stated).is_absolute() else Path.home() / ".cache"
    return base / "tuneplan" / "traces"
