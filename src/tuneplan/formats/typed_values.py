"""Values of a foreign file as the types that its framework expects; what does not read is noted.

Frameworks are lenient: pydantic, ``HfArgumentParser`` and jsonargparse read ``"2"`` as a number and
``"True"`` as a flag, and everything on a launch line is text. So are these readers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tuneplan.contract.values import kind_of, nearest
from tuneplan.formats.carrying import Carrier
from tuneplan.formats.foreign import ForeignDocument
from tuneplan.language import message, phrase

_FLAGS: Final = {
    **dict.fromkeys(("true", "yes", "on", "1", "t", "y"), True),
    **dict.fromkeys(("false", "no", "off", "0", "f", "n"), False),
}
_LARGEST: Final = 10**15
_LISTED: Final = 12


def flag(carrier: Carrier, path: str, *, of: ForeignDocument | None = None) -> bool | None:
    """True or false; None where the key is absent, or wrong (which is noted)."""
    value = carrier.value(path, of=of)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float) and value in (0, 1):
        return bool(value)
    found = _FLAGS.get(value.strip().lower()) if isinstance(value, str) else None
    if found is None:
        _wrong_kind(carrier, path, value, phrase("true or false"), of)
    return found


def number(carrier: Carrier, path: str, *, of: ForeignDocument | None = None) -> float | None:
    """A finite number; None where the key is absent, or wrong (which is noted)."""
    value = carrier.value(path, of=of)
    if value is None:
        return None
    read = math.nan
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        try:
            read = float(value)
        except (ValueError, OverflowError):
            read = math.nan
    if not math.isfinite(read) or abs(read) > _LARGEST:
        _wrong_kind(carrier, path, value, phrase("a number"), of)
        return None
    return read


def whole(carrier: Carrier, path: str, *, of: ForeignDocument | None = None) -> int | None:
    """A whole number; None where the key is absent, or wrong (which is noted)."""
    value = number(carrier, path, of=of)
    if value is None:
        return None
    if value != int(value):
        _wrong_kind(carrier, path, value, phrase("a whole number"), of)
        return None
    return int(value)


def text(carrier: Carrier, path: str, *, of: ForeignDocument | None = None) -> str | None:
    """Text that is not empty; None where the key is absent or wrong (which is noted)."""
    value = carrier.value(path, of=of)
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if not isinstance(value, str):
        _wrong_kind(carrier, path, value, phrase("text"), of)
        return None
    return value.strip()


def word(
    carrier: Carrier, path: str, words: Sequence[str], *, of: ForeignDocument | None = None
) -> str | None:
    """One of the words, letter case aside; another is noted with the nearest ones."""
    value = carrier.value(path, of=of)
    if value is None:
        return None
    if isinstance(value, bool):  # YAML reads an unquoted `no` as false
        value = "true" if value else "no" if "no" in words else "false"
    written = str(value).strip()
    by_lower = {name.lower(): name for name in words}
    found = by_lower.get(written.lower())
    if found is None:
        not_one_of(carrier, path, written, words, of=of)
    return found


def not_one_of(
    carrier: Carrier,
    path: str,
    written: str,
    words: Sequence[str],
    *,
    of: ForeignDocument | None = None,
) -> None:
    """Note a value that is none of the words, with the nearest ones."""
    text = message(
        "not_one_of",
        "{value!r} is not one of {choices}",
        value=written[:100],
        choices=", ".join(words),
    )
    if len(words) > _LISTED:
        text = message(
            "none_of_many",
            "{value!r} is none of the {count} words that are known here",
            value=written[:100],
            count=len(words),
        )
    carrier.wrong(path, text, near=nearest(written, words), of=of)


def names(
    carrier: Carrier, path: str, *, of: ForeignDocument | None = None
) -> tuple[str, ...] | None:
    """A list of texts; one text with commas or blanks between is a list as well."""
    value = carrier.value(path, of=of)
    if value is None:
        return None
    if isinstance(value, str):
        listed = value.strip()
        if listed[:1] == "[" and listed[-1:] == "]":  # how hydra's overrides write a list
            listed = listed[1:-1]
        return tuple(one.strip("'\"") for one in listed.replace(",", " ").split())
    if isinstance(value, Sequence) and all(isinstance(item, str) for item in value):
        return tuple(item.strip() for item in value if item.strip())
    _wrong_kind(carrier, path, value, phrase("a list of names"), of)
    return None


def section(
    carrier: Carrier, path: str, *, of: ForeignDocument | None = None
) -> Mapping[str, Any] | None:
    """Keys with values below a key; None where it is absent, blank, or no section."""
    value = carrier.value(path, of=of)
    return value if isinstance(value, Mapping) else None


def _wrong_kind(
    carrier: Carrier, path: str, value: object, wanted: str, of: ForeignDocument | None
) -> None:
    carrier.wrong(
        path,
        message("wrong_kind", "expects {wanted}, got {kind}", wanted=wanted, kind=kind_of(value)),
        of=of,
    )
