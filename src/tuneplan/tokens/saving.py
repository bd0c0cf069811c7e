"""A profile as a small JSON file that a job can name (``data.profile``), and back.

The exact lengths are kept as ``[length, number of sequences]`` pairs, so the file stays small
however many samples there are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum, StrEnum
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Final, cast, get_args, get_origin, get_type_hints

from tuneplan.errors import InvalidRequest, Mistake, UnreadableFile
from tuneplan.language import Message, message, phrase
from tuneplan.tokens.files import unreadable
from tuneplan.tokens.lengths import num_sequences, num_tokens
from tuneplan.tokens.profile import DataProfile
from tuneplan.tokens.rows import kind_of

FORMAT: Final = "tuneplan data profile"
VERSION: Final = 1
_WORDS: Final = {
    bool: phrase("true or false"),
    str: phrase("text"),
    int: phrase("a whole number of 0 or more"),
    float: phrase("a number of 0 or more"),
}


def save_profile(profile: DataProfile, path: str | Path) -> None:
    """Write the profile; an existing file is replaced."""
    table = {"format": FORMAT, "version": VERSION, **_plain(profile)}
    lines = (f"  {json.dumps(key)}: {_dumped(value)}" for key, value in table.items())
    Path(path).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _dumped(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def load_profile(path: str | Path) -> DataProfile:
    """Read a profile that ``save_profile`` wrote.

    Raises:
        InvalidRequest: Every mistake in the file, each with its key.
        UnreadableFile: The file is absent, empty, or not JSON (with the line).
    """
    file = Path(path)
    problem = unreadable(file)
    if problem is not None:
        raise InvalidRequest([problem])
    try:
        table = json.loads(file.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else None
        raise UnreadableFile(
            message(
                "broken_json", "{path} is not JSON: {reason}", path=str(file), reason=str(error)
            ),
            path=str(file),
            line=line,
        ) from error
    return _Reader(str(file)).profile(table)


class _Reader:
    """Builds values from plain JSON by their types, collecting every mistake on the way."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._mistakes: list[Mistake] = []

    def profile(self, table: Any) -> DataProfile:
        """The profile, or every mistake at once."""
        self._check_head(table)
        found = self._build(DataProfile, {**table, "tokens_per_s": None}, "")
        if not self._mistakes:
            self._check_sums(found)
        if self._mistakes:
            raise InvalidRequest(self._mistakes)
        return cast("DataProfile", found)

    def _check_head(self, table: Any) -> None:
        if not isinstance(table, dict) or table.get("format") != FORMAT:
            self._mistake(
                message(
                    "not_a_profile",
                    "{path} is not a data profile; make one with: tuneplan data profile FILES "
                    "--save {path}",
                    path=self._path,
                )
            )
        elif table.get("version") != VERSION:
            self._mistake(
                message(
                    "other_profile_version",
                    "{path} is a profile of version {version}, this program reads {known}; make "
                    "it anew",
                    path=self._path,
                    version=repr(table.get("version")),
                    known=VERSION,
                )
            )
        if self._mistakes:
            raise InvalidRequest(self._mistakes)

    def _check_sums(self, found: DataProfile) -> None:
        """What must agree in a file that nobody changed."""
        sequences = found.num_samples * found.sequences_per_sample
        sums = (
            (num_sequences(found.length_counts), sequences, "num_samples"),
            (num_tokens(found.length_counts), round(found.tokens.all.likely), "tokens.all"),
        )
        for counted, stated, key in sums:
            if counted != stated or not stated:
                self._mistake(
                    message(
                        "profile_disagrees",
                        "length_counts add up to {counted}, {key} says {stated}: the file was "
                        "changed by hand; make it anew",
                        counted=counted,
                        stated=stated,
                        key=key,
                    ),
                    key,
                )

    # --- Values by type ------------------------------------------------------------------------

    def _build(self, kind: type, table: Any, where: str) -> Any:
        """A dataclass from an object; keys with a default may be absent."""
        if not isinstance(table, dict):
            return self._wrong(table, where, phrase("an object"))
        hints = get_type_hints(kind)
        values = {}
        before = len(self._mistakes)
        for one in fields(kind):
            key = f"{where}.{one.name}" if where else one.name
            optional = one.default is not MISSING or one.default_factory is not MISSING
            if one.name in table or not optional:
                values[one.name] = self._value(hints[one.name], table.get(one.name), key)
        if len(self._mistakes) > before:
            return None
        try:
            return kind(**values)
        except ValueError as error:
            return self._wrong(table, where, str(error))

    def _value(self, kind: Any, value: Any, where: str) -> Any:
        origin, arguments = get_origin(kind), get_args(kind)
        if origin is UnionType:
            inner = next(one for one in arguments if one is not NoneType)
            return None if value is None else self._value(inner, value, where)
        if origin is tuple:
            return self._tuple(arguments, value, where)
        if origin is Mapping:
            return self._mapping(arguments, value, where)
        if kind is Message:
            return self._message(value, where)
        if is_dataclass(kind):
            return self._build(cast("type", kind), value, where)
        return self._simple(kind, value, where)

    def _tuple(self, arguments: tuple[Any, ...], value: Any, where: str) -> Any:
        if not isinstance(value, list):
            return self._wrong(value, where, phrase("a list"))
        if arguments[-1] is Ellipsis:
            return tuple(
                self._value(arguments[0], one, f"{where}[{number}]")
                for number, one in enumerate(value)
            )
        if len(value) != len(arguments):
            wanted = message("list_of", "a list of {length} entries", length=len(arguments))
            return self._wrong(value, where, wanted)
        return tuple(
            self._value(kind, one, where) for kind, one in zip(arguments, value, strict=True)
        )

    def _mapping(self, arguments: tuple[Any, ...], value: Any, where: str) -> Any:
        if not isinstance(value, dict):
            return self._wrong(value, where, phrase("an object"))
        try:
            return MappingProxyType(
                {
                    arguments[0](key): self._value(arguments[1], one, f"{where}.{key}")
                    for key, one in value.items()
                }
            )
        except ValueError:
            return self._wrong(value, where, phrase("an object whose keys are numbers"))

    def _message(self, value: Any, where: str) -> Any:
        found = self._build_message(value)
        try:
            str(found)
        except (KeyError, IndexError, ValueError, AttributeError, TypeError):
            found = None
        return found or self._wrong(value, where, phrase("a sentence with its parameters"))

    @staticmethod
    def _build_message(value: Any) -> Message | None:
        if not isinstance(value, dict) or not isinstance(value.get("params"), dict):
            return None
        code, template = value.get("code"), value.get("template")
        if not isinstance(code, str) or not isinstance(template, str):
            return None
        return Message(code, template, MappingProxyType(value["params"]))

    def _simple(self, kind: Any, value: Any, where: str) -> Any:
        if kind is Any:
            return value
        if kind is bool or kind is str:
            if not isinstance(value, kind):
                self._wrong(value, where, _WORDS[kind])
            return value
        if isinstance(kind, type) and issubclass(kind, StrEnum):
            if value in list(kind):
                return kind(value)
            self._wrong(value, where, ", ".join(one.value for one in kind))
            return None
        types = (int, float) if kind is float else int
        if isinstance(value, types) and not isinstance(value, bool) and value >= 0:
            return kind(value)
        return self._wrong(value, where, _WORDS[kind])

    def _wrong(self, value: Any, where: str, wanted: str | Message) -> Any:
        """Enter a mistake; the None that comes back is never used, as the reading fails."""
        self._mistake(
            message(
                "profile_key",
                "{key} must be {wanted}, this is {kind}",
                key=where,
                wanted=wanted,
                kind=kind_of(value),
            ),
            where,
        )

    def _mistake(self, text: Message, key: str | None = None) -> None:
        where = f"{self._path}: {key}" if key else self._path
        self._mistakes.append(Mistake(message=text, path=where))
