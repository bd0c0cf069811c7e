"""Readers: how one value of the job file is read, refused and described in JSON Schema.

A reader stands in a field's annotation (``Annotated[int | None, Whole(1, 64)]``) and is all that
pydantic needs: it turns what was written into a value or raises ``Refused``.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any, Final

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from tuneplan.errors import InvalidQuantity
from tuneplan.frozen import dataclass
from tuneplan.language import Message, message, phrase

LONGEST_TEXT: Final = 4096
# Whole numbers of more than 64 bits come as text (contract/documents.py `plain`).
_HUGE: Final = re.compile(r"-?(?:\d{20,}|0x[0-9a-f]{16,})")


class Refused(ValueError):
    """A value that does not do: the sentence, the nearest valid choices, the way out."""

    def __init__(
        self, text: Message, *, near: Sequence[str] = (), how_to_fix: Message | None = None
    ) -> None:
        super().__init__(text.code)
        self.message = text
        self.near = tuple(near)
        self.how_to_fix = how_to_fix


class WrittenNumber(float):
    """A fractional number that remembers how it was written (``2.10`` as a version)."""

    text: str

    def __new__(cls, text: str) -> WrittenNumber:
        """Read ``text`` as a float and keep it."""
        number = super().__new__(cls, text)
        number.text = text
        return number


@dataclass(frozen=True, slots=True)
class Choice:
    """A list where a single value would do: candidates for ``plan``."""

    values: tuple[Any, ...]


def kind_of(value: object) -> str:
    """What a value is, in the words of a job file."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    names: tuple[tuple[type | tuple[type, ...], str], ...] = (
        (bool, phrase("true/false")),
        ((int, float), phrase("a number")),
        (str, phrase("text")),
        ((list, tuple), phrase("a list")),
        (dict, phrase("a section")),
    )
    return next((name for kind, name in names if isinstance(value, kind)), type(value).__name__)


def nearest(word: str, words: Sequence[str], count: int = 3) -> tuple[str, ...]:
    """The closest of ``words``, best first, letter case aside."""
    by_lower = {candidate.lower(): candidate for candidate in words}
    found = get_close_matches(word.lower()[:100], list(by_lower), n=count, cutoff=0.55)
    return tuple(by_lower[candidate] for candidate in found)


def _wrong_kind(value: object, wanted: str | Message) -> Refused:
    return Refused(
        message("wrong_kind", "expects {wanted}, got {kind}", wanted=wanted, kind=kind_of(value))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader(ABC):
    """Base of the readers.

    Attributes:
        many: A list is accepted as a choice for ``plan``.
        auto: The word ``auto`` is accepted and means "blank".
    """

    many: bool = False
    auto: bool = False

    @abstractmethod
    def one(self, value: Any) -> Any:
        """Read one value or raise ``Refused``."""

    @abstractmethod
    def schema(self) -> dict[str, Any]:
        """JSON Schema of one value."""

    @property
    @abstractmethod
    def describes(self) -> str:
        """The type in words, for the reference."""

    def read(self, value: Any) -> Any:
        """Read a value, ``auto`` or a choice."""
        if value is None or (self.auto and value == "auto"):
            return None
        if not (self.many and isinstance(value, list | tuple)):
            return self.one(value)
        if not value:
            raise Refused(
                message("empty_choice", "an empty list leaves nothing to choose from"),
                how_to_fix=message("leave_blank", "leave the key out to leave the choice open"),
            )
        values = tuple(dict.fromkeys(self.one(item) for item in value))
        return values[0] if len(values) == 1 else Choice(values)

    def full_schema(self) -> dict[str, Any]:
        """JSON Schema of all that ``read`` accepts."""
        options = [self.schema()]
        if self.auto:
            options.append({"const": "auto"})
        if self.many:
            options.append({"type": "array", "items": self.schema(), "minItems": 1})
        return {"anyOf": [*options, {"type": "null"}]}

    def __get_pydantic_core_schema__(
        self, _source: Any, _handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(
        self, _schema: CoreSchema, _handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return self.full_schema()


@dataclass(frozen=True, slots=True, kw_only=True)
class Text(Reader):
    """Free text: a name, a path."""

    what: str = phrase("text")

    def one(self, value: Any) -> str:
        """Text that is not empty and fits one line."""
        if not isinstance(value, str):
            raise _wrong_kind(value, self.what)
        if not value.strip():
            raise Refused(message("empty_text", "expects {wanted}, got nothing", wanted=self.what))
        if len(value) > LONGEST_TEXT or not value.isprintable():
            raise Refused(
                message(
                    "odd_text",
                    "expects {wanted}: one printable line of at most {limit} characters",
                    wanted=self.what,
                    limit=LONGEST_TEXT,
                )
            )
        return value.strip()

    def schema(self) -> dict[str, Any]:
        """A string."""
        return {"type": "string", "minLength": 1, "maxLength": LONGEST_TEXT}

    @property
    def describes(self) -> str:
        """The type in words."""
        return self.what


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts(Text):
    """A list of texts; a single one is a list of one."""

    def read(self, value: Any) -> tuple[str, ...] | None:
        """Read a text or a list of texts."""
        if value is None:
            return None
        items = value if isinstance(value, list | tuple) else [value]
        return tuple(self.one(item) for item in items)

    def full_schema(self) -> dict[str, Any]:
        """A string, or an array of strings."""
        one = self.schema()
        return {"anyOf": [one, {"type": "array", "items": one}, {"type": "null"}]}

    @property
    def describes(self) -> str:
        """The type in words."""
        return f"{self.what}, or a list"


@dataclass(frozen=True, slots=True, kw_only=True)
class Word(Reader):
    """One of a few words; ``also`` holds other spellings."""

    words: tuple[str, ...]
    also: tuple[tuple[str, str], ...] = ()
    flags: bool = False  # true and false are accepted beside the words

    def one(self, value: Any) -> str | bool:
        """The word, letter case aside."""
        if self.flags and isinstance(value, bool):
            return value
        spellings = {word.lower(): word for word in self.words} | dict(self.also)
        if isinstance(value, str) and value.strip().lower() in spellings:
            return spellings[value.strip().lower()]
        if isinstance(value, bool):  # YAML reads an unquoted `no` or `off` as false
            word = next((w for w in ("none", "no", "off") if w in spellings), None)
            if value is False and word is not None:
                return spellings[word]
        choices = ("true", "false", *self.words) if self.flags else self.words
        listed = ", ".join((*choices, "auto") if self.auto else choices)
        if not isinstance(value, str | int | float):
            raise _wrong_kind(value, listed)
        raise Refused(
            message("not_one_of", "{value!r} is not one of {choices}", value=value, choices=listed),
            near=nearest(value, choices) if isinstance(value, str) else (),
        )

    def schema(self) -> dict[str, Any]:
        """An enumeration."""
        return {"enum": [*self.words, True, False] if self.flags else list(self.words)}

    @property
    def describes(self) -> str:
        """The type in words."""
        words = ("true", "false", *self.words) if self.flags else self.words
        return ", ".join(f"`{word}`" for word in ((*words, "auto") if self.auto else words))


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag(Reader):
    """True or false."""

    def one(self, value: Any) -> bool:
        """A boolean, never a number or a word."""
        if not isinstance(value, bool):
            raise _wrong_kind(value, phrase("true or false"))
        return value

    def schema(self) -> dict[str, Any]:
        """A boolean."""
        return {"type": "boolean"}

    @property
    def describes(self) -> str:
        """The type in words."""
        return "`true`, `false`, `auto`" if self.auto else "`true`, `false`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Number(Reader):
    """A number between bounds; ``whole`` for counts; ``word`` is one word kept as it is."""

    low: float
    high: float
    whole: bool = False
    open_low: bool = False
    open_high: bool = False
    word: str | None = None

    def one(self, value: Any) -> int | float | str:
        """The number, if it is one and makes sense here."""
        if self.word is not None and value == self.word:
            return self.word
        wanted = phrase("a whole number") if self.whole else phrase("a number")
        if isinstance(value, str) and _HUGE.fullmatch(value):
            raise self._out_of_bounds(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            either = message("number_or", "{wanted} or {word}", wanted=wanted, word=self.word)
            raise _wrong_kind(value, wanted if self.word is None else either)
        if not math.isfinite(value):
            raise Refused(
                message(
                    "not_finite",
                    "expects {wanted}, not infinity or an undefined value",
                    wanted=wanted,
                )
            )
        if self.whole and value != int(value):
            raise Refused(
                message("not_whole", "{value} is not a whole number", value=value),
                near=(str(math.floor(value)), str(math.ceil(value))),
            )
        self._within_bounds(value)
        return int(value) if self.whole else float(value)

    def _within_bounds(self, value: float) -> None:
        below = value <= self.low if self.open_low else value < self.low
        above = value >= self.high if self.open_high else value > self.high
        if below or above:
            raise self._out_of_bounds(value)

    def _out_of_bounds(self, value: float | str) -> Refused:
        return Refused(
            message(
                "out_of_bounds",
                "{value} is out of bounds: {bounds}",
                value=value,
                bounds=self.bounds,
            )
        )

    @property
    def bounds(self) -> Message:
        """The bounds in words."""
        low, high = (
            message("above", "more than {low:,g}", low=self.low)
            if self.open_low
            else message("from", "at least {low:,g}", low=self.low),
            message("below", "less than {high:,g}", high=self.high)
            if self.open_high
            else message("to", "at most {high:,}", high=int(self.high)),
        )
        return message("bounds", "{low} and {high}", low=low, high=high)

    def schema(self) -> dict[str, Any]:
        """A number with bounds."""
        number: dict[str, Any] = {
            "type": "integer" if self.whole else "number",
            "exclusiveMinimum" if self.open_low else "minimum": self.low,
            "exclusiveMaximum" if self.open_high else "maximum": self.high,
        }
        return number if self.word is None else {"anyOf": [number, {"const": self.word}]}

    @property
    def describes(self) -> str:
        """The type in words."""
        words = [f"`{self.word}`"] if self.word else []
        return ", ".join(["whole number" if self.whole else "number", *words])


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity(Reader):
    """A number and a unit, read by one of the parsers of ``units``."""

    parse: Callable[[str], Any]
    example: str
    low: float = 0.0
    high: float = math.inf

    def one(self, value: Any) -> Any:
        """The quantity in the base unit."""
        try:
            parsed = self.parse(value)
        except InvalidQuantity as error:
            raise Refused(
                error.message,
                how_to_fix=message("write_quantity", "write e.g. {example}", example=self.example),
            ) from None
        except (OverflowError, ArithmeticError, ValueError):
            parsed = math.inf
        amount = parsed[0] if isinstance(parsed, tuple) else parsed
        if not self.low < amount <= self.high:
            raise Refused(
                message(
                    "absurd_quantity",
                    "{value!r} makes no sense here: it must be more than nothing and real",
                    value=value,
                ),
                how_to_fix=message("write_quantity", "write e.g. {example}", example=self.example),
            )
        return parsed

    def schema(self) -> dict[str, Any]:
        """A string such as the example."""
        return {"type": "string", "pattern": "[0-9]", "examples": [self.example]}

    @property
    def describes(self) -> str:
        """The type in words."""
        return f"quantity, e.g. `{self.example}`"
