"""What a text report is laid out for."""

from __future__ import annotations

from tuneplan.frozen import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Width in columns and whether colours are wanted; the default suits files and pipes."""

    width: int = 80
    colors: bool = False
