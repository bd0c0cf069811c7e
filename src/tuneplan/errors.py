"""Every exception of tuneplan.

::

    TuneplanError
      InputError               the user can fix it: what, where, why, how
        InvalidRequest         every mistake of a request at once (``.mistakes``)
        InvalidQuantity        a size, time, rate or price that does not read
        UnknownName            model, chip, tokenizer, provider; ``.near`` has close matches
        UnknownArchitecture    a model whose layers we cannot describe; says what is missing
        UnreadableFile         a file that is absent, empty, broken; ``.path``, ``.line``
        NotSupported           a thing that has no formula yet: refused by name, never approximated
        CannotExport           a framework has no way to say a setting; ``.mistakes`` names each
      MissingExtra             ``.extra``: an optional dependency is not installed
      TraceStopped             the process that traces ended without an answer
      CatalogError             one of the bundled fact files is wrong; file and key

"Does not fit" is an answer, not an exception.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tuneplan.frozen import dataclass
from tuneplan.language import Message, message


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """One thing that is wrong with what the user gave.

    Attributes:
        message: What and why.
        path: Where: a key path such as ``training.max_length``, or a file.
        line: Line in the file, counted from 1, where there is a file.
        column: Column in the line, counted from 1, where it is known.
        file: The file that ``line`` counts in, where ``path`` is a key path.
        value: What stood there.
        near: The nearest valid choices, best first.
        how_to_fix: What to write instead.
        places: Where it stands, the first ones, each with what is wrong there: one mistake that
            is made on many lines.
    """

    message: Message
    path: str | None = None
    line: int | None = None
    file: str | None = None
    value: Any = None
    near: tuple[str, ...] = ()
    how_to_fix: Message | None = None
    column: int | None = None
    places: tuple[Mistake, ...] = ()


class TuneplanError(Exception):
    """Base of all; ``message`` is the sentence for people."""

    def __init__(self, text: Message) -> None:
        super().__init__(text)
        self.message = text

    def __str__(self) -> str:
        return str(self.message)

    @property
    def mistakes(self) -> tuple[Mistake, ...]:
        """The error as a list of mistakes, one by default."""
        return (Mistake(message=self.message),)


class InputError(TuneplanError):
    """Something the user can fix."""


class InvalidRequest(InputError):
    """Every mistake of a request at once."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        super().__init__(
            message(
                "invalid_request",
                "{count} {count:~mistake/mistakes} in the request",
                count=len(mistakes),
            )
        )
        self._mistakes = tuple(mistakes)

    @property
    def mistakes(self) -> tuple[Mistake, ...]:
        """Every mistake, in the order of the file."""
        return self._mistakes

    def __str__(self) -> str:
        return "\n".join(str(mistake.message) for mistake in self._mistakes)


class InvalidQuantity(InputError):
    """A size, time, rate or price that does not read."""


class UnknownName(InputError):
    """A name that no catalogue holds."""

    def __init__(self, text: Message, *, name: str, near: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.name = name
        self.near = tuple(near)

    @property
    def mistakes(self) -> tuple[Mistake, ...]:
        """One mistake, with the close matches."""
        return (Mistake(message=self.message, value=self.name, near=self.near),)


class UnknownArchitecture(InputError):
    """A model whose layers we cannot describe; the message says what is missing."""


class UnreadableFile(InputError):
    """A file that is absent, empty or broken."""

    def __init__(self, text: Message, *, path: str, line: int | None = None) -> None:
        super().__init__(text)
        self.path = path
        self.line = line

    @property
    def mistakes(self) -> tuple[Mistake, ...]:
        """One mistake, with the file and line."""
        return (Mistake(message=self.message, path=self.path, line=self.line),)


class NotSupported(InputError):
    """A thing that has no formula yet: refused by name, never approximated in silence.

    Attributes:
        mistake: The same with the key that asks for it, where that is known.
    """

    def __init__(self, text: Message, *, path: str | None = None, value: Any = None) -> None:
        super().__init__(text)
        self.mistake = Mistake(message=text, path=path, value=value)

    @property
    def mistakes(self) -> tuple[Mistake, ...]:
        """One mistake."""
        return (self.mistake,)

    def at(self, mistake: Mistake) -> NotSupported:
        """The same error with its place told."""
        located = NotSupported(self.message)
        located.mistake = mistake
        return located


class CannotExport(InvalidRequest):
    """A framework has no way to say some settings of a job; each is a mistake with its key."""


class MissingExtra(TuneplanError):
    """An optional dependency is not installed; the message is the install command."""

    def __init__(self, *, extra: str, purpose: str) -> None:
        super().__init__(
            message(
                "missing_extra",
                "{purpose} needs an optional dependency: pip install 'tuneplan[{extra}]' "
                "(in a clone: pip install '.[{extra}]')",
                purpose=purpose,
                extra=extra,
            )
        )
        self.extra = extra
        self.purpose = purpose


class TraceStopped(TuneplanError):
    """The process that traces ended without an answer; the message says where it was."""


class CatalogError(TuneplanError):
    """One of the bundled fact files is wrong."""
