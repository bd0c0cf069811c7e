"""The calibration that comes with the package: sums of residuals, fitted by ``tools/calibrate.py``.

Read ``calibration/hierarchy.py`` for what is made of them.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Final

from tuneplan.calibration.calibrated import Calibration, from_plain

PATH: Final = Path(__file__).parent / "data" / "calibration.json"


@lru_cache(maxsize=1)
def load_calibration() -> Calibration | None:
    """The bundled calibration; None where the package was built without one."""
    if not PATH.is_file():
        return None
    return from_plain(json.loads(PATH.read_text(encoding="utf-8")))
