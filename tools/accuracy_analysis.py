"""Why a target is missed, and what would fix it, by the key of its figure (or its first word)."""

from __future__ import annotations

ANALYSIS: dict[str, str] = {}
