"""Where measurements are kept."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

NAME: Final = "measurements.sqlite3"


def store_path(environment: dict[str, str] | None = None) -> Path:
    """The file of the store.

    ``TUNEPLAN_STORE`` names it; else it lies in the data folder of the platform: ``XDG_DATA_HOME``
    or ``~/.local/share`` (freedesktop.org, "XDG Base Directory"), ``~/Library/Application Support``
    on macOS.
    """
    variables = os.environ if environment is None else environment
    named = variables.get("TUNEPLAN_STORE", "").strip()
    if named:
        return Path(named).expanduser()
    data = variables.get("XDG_DATA_HOME", "").strip()
    if data and Path(data).is_absolute():
        return Path(data) / "tuneplan" / NAME
    home = Path.home()
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "tuneplan" / NAME
    return home / ".local" / "share" / "tuneplan" / NAME
