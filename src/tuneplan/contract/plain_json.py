"""Values of ours as values that JSON can hold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from tuneplan.language import Message


def json_value(value: Any) -> Any:
    """The value in plain JSON: dataclasses as objects, tuples as arrays, the rest as text.

    A float that is no number (infinite, undefined) becomes text too: JSON has none.
    """
    if value is None or isinstance(value, bool | int) or type(value) is str:
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    if isinstance(value, Enum):
        return json_value(value.value)
    if isinstance(value, Mapping):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, str | bytes):
        items = sorted(value) if isinstance(value, set | frozenset) else value
        return [json_value(item) for item in items]
    if is_dataclass(value) and not isinstance(value, type | Message):
        return {field.name: json_value(getattr(value, field.name)) for field in fields(value)}
    if hasattr(value, "item"):  # a NumPy scalar
        return json_value(value.item())
    return str(value)
