"""Readers of the keys with a spelling of their own: framework pins, versions, quantiles, links."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any, Final

from tuneplan.contract.values import (
    Choice,
    Number,
    Quantity,
    Reader,
    Refused,
    Text,
    Texts,
    Word,
    WrittenNumber,
)
from tuneplan.errors import InvalidQuantity
from tuneplan.frozen import dataclass
from tuneplan.language import message, phrase
from tuneplan.units import parse_bytes_per_s, parse_seconds

SOFTWARE: Final = (
    "torch",
    "transformers",
    "peft",
    "bitsandbytes",
    "accelerate",
    "trl",
    "deepspeed",
    "flash-attn",
    "liger-kernel",
    "cuda",
    "date",
)
_VERSION: Final = re.compile(r"v?\d+(\.\d+)*([.+\-]?[A-Za-z0-9]+)*")
_DATE: Final = re.compile(r"(\d{4})-(\d{2})(?:-(\d{2}))?")
_LINK: Final = re.compile(r"(infiniband|roce|ethernet)-(\d{1,6})")
_QUANTILE: Final = re.compile(r"p(\d{1,2}(?:\.\d+)?|100)")
_FRAMEWORK_SPELLINGS: Final = {
    "llama-factory": "llamafactory",
    "llama_factory": "llamafactory",
    "ms_swift": "ms-swift",
    "swift": "ms-swift",
    "lit-gpt": "litgpt",
    "colossal-ai": "colossalai",
    "megatron-lm": "megatron",
    "huggingface": "transformers",
    "hf": "transformers",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Version(Text):
    """A version or a date. Unquoted ``2.10`` keeps its zero."""

    what: str = phrase("a version such as 2.11")
    dated: bool = False

    def one(self, value: Any) -> str:
        """The version as written."""
        if isinstance(value, WrittenNumber):
            value = value.text
        elif isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)
        elif isinstance(value, dt.date):
            value = value.isoformat()
        text = Text.one(self, value)
        pattern = _DATE if self.dated else _VERSION
        if len(text) > 64 or pattern.fullmatch(text) is None or (self.dated and not _is_day(text)):
            raise Refused(
                message("not_a_version", "{value!r} is not {wanted}", value=text, wanted=self.what)
            )
        return text


def _is_day(text: str) -> bool:
    match = _DATE.fullmatch(text)
    if match is None:
        return False
    try:
        dt.date(int(match[1]), int(match[2]), int(match[3] or 1))
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkPin(Word):
    """``trl`` or ``trl==1.16``."""

    def one(self, value: Any) -> str:
        """Name, or name ``==`` version, with the name spelled as ours."""
        if not isinstance(value, str):
            return str(Word.one(self, value))
        name, separator, version = value.partition("==")
        spelled = _FRAMEWORK_SPELLINGS.get(name.strip().lower(), name)
        known = str(Word.one(self, spelled))
        return f"{known}=={Version().one(version.strip())}" if separator else known

    def schema(self) -> dict[str, Any]:
        """A pattern of the known names."""
        return {"type": "string", "pattern": f"^({'|'.join(self.words)})(==.+)?$"}

    @property
    def describes(self) -> str:
        """The type in words."""
        return f"{Word.describes.fget(self)}; `trl==1.16` with a version"  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True, kw_only=True)
class ByName(Reader):
    """Library name to version, and perhaps ``date``."""

    def one(self, value: Any) -> dict[str, str]:
        """The versions as written."""
        if not isinstance(value, dict):
            raise Refused(
                message("not_versions", "expects library names with versions: {{torch: 2.11}}")
            )
        dates = Version(what="a date: 2026-10 or 2026-10-05", dated=True)
        return {
            str(name).lower().replace("_", "-"): (dates if name == "date" else Version()).one(item)
            for name, item in value.items()
            if item is not None
        }

    def schema(self) -> dict[str, Any]:
        """An object of strings."""
        return {"type": "object", "additionalProperties": {"type": ["string", "number"]}}

    @property
    def describes(self) -> str:
        """The type in words."""
        return "library: version"


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets(Texts):
    """``all-linear`` or leaf names."""

    what: str = phrase("module name")

    def read(self, value: Any) -> Any:
        """``all-linear`` as a word, everything else as a tuple of names."""
        if isinstance(value, str) and value.strip() in ("all-linear", "all_linear", "all"):
            return "all-linear"
        if isinstance(value, str) and "," in value:
            value = [name.strip() for name in value.split(",") if name.strip()]
        return Texts.read(self, value)

    @property
    def describes(self) -> str:
        """The type in words."""
        return "`all-linear`, or a list of module names"


@dataclass(frozen=True, slots=True, kw_only=True)
class InterNode(Reader):
    """A named link or a rate."""

    def one(self, value: Any) -> str:
        """The link as written, checked."""
        text = value.strip() if isinstance(value, str) else value
        if isinstance(text, str) and _LINK.fullmatch(text.lower()):
            return text.lower()
        try:
            rate = parse_bytes_per_s(text)
        except (InvalidQuantity, OverflowError):
            rate = 0.0
        if not 0 < rate < 1e18:
            raise Refused(
                message(
                    "not_a_link",
                    "{value!r} is neither a named link (infiniband-400, roce-1600, ethernet-100) "
                    "nor a rate such as 50 GB/s",
                    value=value,
                )
            )
        return str(text)

    def schema(self) -> dict[str, Any]:
        """A string."""
        return {"type": "string", "examples": ["infiniband-400", "50 GB/s"]}

    @property
    def describes(self) -> str:
        """The type in words."""
        return "link name or rate, e.g. `infiniband-400`, `50 GB/s`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles(Reader):
    """Length by quantile."""

    def one(self, value: Any) -> dict[float, float]:
        """Quantile (0 to 1) to tokens, rising."""
        if not isinstance(value, dict):
            raise Refused(
                message("not_quantiles", "expects lengths by quantile: {{p50: 610, max: 16000}}")
            )
        length = Number(low=0, high=10**9)
        found = {
            _quantile(str(name)): float(length.one(item))
            for name, item in value.items()
            if item is not None
        }
        ordered = dict(sorted(found.items()))
        lengths = list(ordered.values())
        if lengths != sorted(lengths):
            raise Refused(message("quantiles_fall", "lengths must not fall from one to the next"))
        return ordered

    def schema(self) -> dict[str, Any]:
        """An object of numbers."""
        return {
            "type": "object",
            "patternProperties": {"^(p[0-9.]+|min|max)$": {"type": "number", "minimum": 0}},
            "additionalProperties": False,
        }

    @property
    def describes(self) -> str:
        """The type in words."""
        return "`p50`, `p95`, `min`, `max`, ...: tokens"


def _quantile(name: str) -> float:
    if name in ("min", "max"):
        return 0.0 if name == "min" else 1.0
    match = _QUANTILE.fullmatch(name)
    if match is None:
        raise Refused(
            message(
                "not_a_quantile",
                "{name!r} is not a quantile: write p1 to p99.9, min or max",
                name=name,
            )
        )
    return round(float(match[1]) / 100, 6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Occasions(Number):
    """Every so many steps; below one it is a share of the run, as `TrainingArguments` has it."""

    low: float = 0
    high: float = 10**9  # more than any run has steps
    open_low: bool = True

    def one(self, value: Any) -> int | float | str:
        """A share as it is, a count as a whole number."""
        read = Number.one(self, value)
        if isinstance(read, float) and read >= 1:
            return Number(low=1, high=self.high, whole=True).one(read)
        return read

    @property
    def describes(self) -> str:
        """The type in words."""
        return "whole number, or a share of the run below 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryFactor(Reader):
    """A factor or a range of it."""

    def one(self, value: Any) -> tuple[float, float]:
        """Low and high."""
        factor = Number(low=1, high=1000)
        items = value if isinstance(value, list | tuple) else [value, value]
        if len(items) != 2:
            raise Refused(message("not_a_range", "expects one factor or [low, high]"))
        low, high = (float(factor.one(item)) for item in items)
        if low > high:
            raise Refused(message("range_reversed", "{low} is above {high}", low=low, high=high))
        return low, high

    def schema(self) -> dict[str, Any]:
        """A number or two."""
        number = {"type": "number", "minimum": 1}
        pair = {"type": "array", "items": number, "minItems": 2, "maxItems": 2}
        return {"anyOf": [number, pair]}

    @property
    def describes(self) -> str:
        """The type in words."""
        return "number, or `[low, high]`"


def _two(value: Any, wanted: str) -> list[Any]:
    items = value if isinstance(value, list | tuple) else [value, value]
    if len(items) != 2:
        raise Refused(message("not_a_range_of", "expects {wanted} or [low, high]", wanted=wanted))
    return list(items)


def _ordered(low: Any, high: Any, written: list[Any]) -> tuple[Any, Any]:
    if low > high:
        raise Refused(
            message("range_reversed", "{low} is above {high}", low=written[0], high=written[1])
        )
    return low, high


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares(Reader):
    """A share from 0 to 1, or a range of it."""

    below_one: bool = False
    above_zero: bool = False

    def one(self, value: Any) -> tuple[float, float]:
        """Low and high."""
        number = Number(low=0, high=1, open_low=self.above_zero, open_high=self.below_one)
        items = _two(value, phrase("one share"))
        low, high = (float(number.one(item)) for item in items)
        found: tuple[float, float] = _ordered(low, high, items)
        return found

    def schema(self) -> dict[str, Any]:
        """A number or two."""
        number = {"type": "number", "minimum": 0, "maximum": 1}
        pair = {"type": "array", "items": number, "minItems": 2, "maxItems": 2}
        return {"anyOf": [number, pair]}

    @property
    def describes(self) -> str:
        """The type in words."""
        return "share from 0 to 1, or `[low, high]`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Times(Reader):
    """A duration, or a range of it, in seconds."""

    example: str

    def one(self, value: Any) -> tuple[float, float]:
        """Low and high."""
        quantity = Quantity(parse=parse_seconds, example=self.example, high=3.2e9)
        items = _two(value, phrase("one duration"))
        low, high = (quantity.one(item) for item in items)
        found: tuple[float, float] = _ordered(low, high, items)
        return found

    def schema(self) -> dict[str, Any]:
        """A text or two."""
        text = {"type": "string", "pattern": "[0-9]", "examples": [self.example]}
        pair = {"type": "array", "items": text, "minItems": 2, "maxItems": 2}
        return {"anyOf": [text, pair]}

    @property
    def describes(self) -> str:
        """The type in words."""
        return f"quantity, e.g. `{self.example}`, or `[low, high]`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Day(Reader):
    """A day: ``2026-12-07``."""

    def one(self, value: Any) -> dt.date:
        """The date."""
        if isinstance(value, dt.datetime):
            return value.date()
        if isinstance(value, dt.date):
            return value
        try:
            return dt.date.fromisoformat(value.strip())
        except (AttributeError, ValueError):
            raise Refused(
                message("not_a_day", "{value!r} is not a day such as 2026-12-07", value=value)
            ) from None

    def schema(self) -> dict[str, Any]:
        """A text."""
        return {"type": "string", "format": "date", "examples": ["2026-12-07"]}

    @property
    def describes(self) -> str:
        """The type in words."""
        return "day, e.g. `2026-12-07`"


__all__ = [
    "SOFTWARE",
    "ByName",
    "Choice",
    "Day",
    "FrameworkPin",
    "InterNode",
    "Occasions",
    "Quantiles",
    "RetryFactor",
    "Shares",
    "Targets",
    "Times",
    "Version",
]
