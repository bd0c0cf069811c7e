"""Reading a Hugging Face configuration: every mistake is collected, none stops the reading.

A builder asks for the fields it needs; a missing or impossible one is noted and 1 stands in for
it, so that the builder runs to its end and the user reads all mistakes at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tuneplan.errors import InvalidRequest, Mistake
from tuneplan.language import Message, message, phrase

# Beyond these a configuration is broken, not large.
_LARGEST_COUNT: Final = 10**9
_LARGEST_LAYERS: Final = 10_000
_LAYER_COUNTS: Final = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth")
_COUNT: Final = phrase("a positive whole number")


class Fields:
    """The fields of one configuration (or of one section of it).

    Attributes:
        config: The mapping as read.
        section_name: ``text_config``, ``vision_config``, ... or empty for the whole.
        mistakes: What is wrong so far; shared with the sections.
        defaults: Sizes that were not stated, with the configuration class's value; shared too.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        section_name: str = "",
        mistakes: list[Mistake] | None = None,
        defaults: dict[str, int] | None = None,
    ) -> None:
        self.config = config
        self.section_name = section_name
        self.mistakes: list[Mistake] = [] if mistakes is None else mistakes
        self.defaults: dict[str, int] = {} if defaults is None else defaults
        self.outer: Mapping[str, Any] = {}

    def count(self, *names: str, default: int | None = None) -> int:
        """A positive whole number under the first of ``names`` that is stated.

        ``default`` is what the configuration class of ``transformers`` takes for a missing field;
        it is recorded in ``defaults``. Without one a missing field is a mistake.
        """
        value = self._first(names)
        if value is None:
            if default is None:
                self._missing(names)
                return 1
            self.defaults[self._path(names[0])] = default
            return default
        if not self._is_count(value):
            self._wrong(self._stated_name(names), value)
            return 1
        if value > (limit := _LARGEST_LAYERS if names[0] in _LAYER_COUNTS else _LARGEST_COUNT):
            self._wrong(
                self._stated_name(names),
                value,
                kind=message("at_most", "at most {limit:,}", limit=limit),
            )
            return 1
        return int(value)

    def derived_count(self, *names: str, otherwise: int) -> int:
        """A positive whole number, or ``otherwise`` where it follows from other fields."""
        return otherwise if self._first(names) is None else self.count(*names)

    def optional_count(self, *names: str) -> int | None:
        """A positive whole number, or None where absent, null or zero (switched off)."""
        value = self._first(names)
        return None if value is None or value == 0 else self.count(*names)

    def flag(self, name: str, *, default: bool) -> bool:
        """A truth value; ``default`` is that of the configuration class."""
        value = self.config.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self._wrong(name, value, kind=phrase("true or false"))
            return default
        return value

    def text(self, *names: str, default: str) -> str:
        """A word such as ``hidden_act``; ``default`` is that of the configuration class."""
        value = self._first(names)
        return default if value is None else str(value)

    def fraction(self, *names: str, default: float) -> float:
        """A plain number, as it stands."""
        value = self._first(names)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._wrong(self._stated_name(names), value, kind=phrase("a number"))
            return default
        return float(value)

    def words(self, name: str, *, length: int) -> tuple[str, ...] | None:
        """A list of ``length`` words (``layer_types``), or None where absent."""
        value = self.config.get(name)
        if value is None:
            return None
        if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != length:
            self._wrong(
                name, value, kind=message("list_of", "a list of {length} entries", length=length)
            )
            return None
        return tuple(str(word) for word in value)

    def section(self, name: str, *, default: Mapping[str, Any] | None = None) -> Fields:
        """A nested configuration; a missing one is a mistake unless there is a default."""
        value = self.config.get(name)
        if value is None and default is not None:
            value = default
        if not isinstance(value, Mapping):
            self._missing((name,))
            value = {}
        section = Fields(
            value, section_name=self._path(name), mistakes=self.mistakes, defaults=self.defaults
        )
        section.outer = self.config
        return section

    def take_default(self, name: str, default: int) -> None:
        """Fills in the configuration class's value where a size is missing, and records it."""
        if self.config.get(name) is None:
            self.config = {**self.config, name: default}
            self.defaults[self._path(name)] = default

    def inherit(self, *names: str) -> None:
        """Takes fields that the outer configuration states and this section leaves out."""
        outer = {name: self.outer[name] for name in names if self.outer.get(name) is not None}
        self.config = {**outer, **self.config}

    def must_divide(self, divisor_name: str, divisor: int, name: str, value: int) -> None:
        """Notes a mistake unless ``divisor`` divides ``value``, or one of them is wrong already."""
        wrong = {mistake.path for mistake in self.mistakes}
        if value % divisor and wrong.isdisjoint({self._path(divisor_name), self._path(name)}):
            self.note(
                message(
                    "does_not_divide",
                    "{divisor_name} ({divisor}) must divide {name} ({value})",
                    divisor_name=divisor_name,
                    divisor=divisor,
                    name=name,
                    value=value,
                ),
                name=divisor_name,
                value=divisor,
            )

    def must_not_exceed(self, name: str, value: int, limit_name: str, limit: int) -> None:
        """Notes a mistake where ``value`` is above ``limit``."""
        if value > limit:
            self.note(
                message(
                    "exceeds",
                    "{name} ({value}) must not exceed {limit_name} ({limit})",
                    name=name,
                    value=value,
                    limit_name=limit_name,
                    limit=limit,
                ),
                name=name,
                value=value,
            )

    def impossible(self, name: str, value: Any, kind: str | Message) -> None:
        """Notes that the field ``name`` is not ``kind`` (a phrase such as "a list of 4 words")."""
        self._wrong(name, value, kind=kind)

    def note(self, text: Message, *, name: str, value: Any = None) -> None:
        """Adds a mistake about the field ``name``, once however often the field is asked for."""
        path = self._path(name)
        if all((one.path, str(one.message)) != (path, str(text)) for one in self.mistakes):
            self.mistakes.append(Mistake(message=text, path=path, value=value))

    def raise_mistakes(self) -> None:
        """Raises InvalidRequest with all mistakes, if there are any."""
        if self.mistakes:
            raise InvalidRequest(self.mistakes)

    def _first(self, names: Sequence[str]) -> Any:
        return next((self.config[n] for n in names if self.config.get(n) is not None), None)

    def _stated_name(self, names: Sequence[str]) -> str:
        return next(name for name in names if self.config.get(name) is not None)

    @staticmethod
    def _is_count(value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return value >= 1 and float(value).is_integer()

    def _path(self, name: str) -> str:
        return f"{self.section_name}.{name}" if self.section_name else name

    def _missing(self, names: Sequence[str]) -> None:
        self.note(
            message(
                "missing_model_field",
                "the model configuration lacks {name}, without which its size is unknown",
                name=self._path(names[0]),
            ),
            name=names[0],
        )

    def _wrong(self, name: str, value: Any, *, kind: str | Message = _COUNT) -> None:
        self.note(
            message(
                "impossible_model_field",
                "{name} of the model configuration is {value!r}, but must be {kind}",
                name=self._path(name),
                value=value,
                kind=kind,
            ),
            name=name,
            value=value,
        )
