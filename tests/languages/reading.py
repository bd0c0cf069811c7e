"""The catalogues as the tools read them."""

from __future__ import annotations

import importlib
import string
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "tuneplan"
CHINESE = ("zh_TW", "zh_CN")


@cache
def tool(name: str) -> Any:
    """A module of tools/."""
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(ROOT / "tools"))


@cache
def told(locale: str) -> dict[str, str]:
    """Every text of a language's catalogue with its translation."""
    return dict(tool("make_catalogues").translations(locale))


@cache
def found() -> tuple[Any, ...]:
    """Every sentence of the source tree."""
    return tuple(tool("catalogue_extraction").sentences(str(SOURCE)))


def fields(template: str) -> Counter[tuple[str, str, str]]:
    """The fields of a template with their formats; the words that hang on a number are none."""
    return Counter(
        (name, spec or "", conversion or "")
        for _, name, spec, conversion in string.Formatter().parse(template)
        if name is not None and not (spec or "").startswith("~")
    )
