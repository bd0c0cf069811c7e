"""A function that kills the process it runs in, once, for tests of workers."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


class KilledOnce:
    """Does what ``function`` does, but kills its process on the second unit that comes to it.

    Only where ``marker`` is not yet there, which it makes; so it happens once in all processes.
    """

    def __init__(self, function: Callable[[Any], Any], marker: Path) -> None:
        self.function = function
        self.marker = marker
        self.seen = 0

    def __call__(self, unit: Any) -> Any:
        self.seen += 1
        if self.seen == 2 and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), 9)
        return self.function(unit)
