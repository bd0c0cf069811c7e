"""The book-keeping of one resolution: what was stated, what was assumed, what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any, Generic, TypeVar

from tuneplan.errors import InvalidRequest, Mistake
from tuneplan.frameworks.timeline import Fact
from tuneplan.frozen import dataclass
from tuneplan.language import Message, message, sentence
from tuneplan.spec.answer import Assumption, Notice

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Default(Generic[T]):
    """What is taken when nothing is stated, why, and where that is written.

    Attributes:
        how_to_set: What to write to say otherwise; blank = the key itself.
    """

    value: T
    reason: Message
    source: str
    how_to_set: str = ""


def by_table(fact: Fact, value: T) -> Default[T]:
    """A default read from ``data/defaults.csv``, as the value it means."""
    reason = message(
        "framework_default", "{library} takes this when nothing is set", library=fact.package
    )
    return Default(value, reason, fact.citation)


def by_rule(value: T, reason: Message, source: str, how_to_set: str = "") -> Default[T]:
    """A default that follows from a rule rather than from one row of the table."""
    return Default(value, reason, source, how_to_set)


def switched_on(reason: Message, source: str) -> Default[bool]:
    """A switch that is on by a rule."""
    return Default(value=True, reason=reason, source=source)


def switched_off(reason: Message, source: str) -> Default[bool]:
    """A switch that is off by a rule."""
    return Default(value=False, reason=reason, source=source)


@dataclass(slots=True)
class Ledger:
    """Collects assumptions, notices and mistakes while a recipe is resolved."""

    assumptions: list[Assumption] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    mistakes: list[Mistake] = field(default_factory=list)

    def take(self, name: str, stated: T | None, default: Default[T]) -> T:
        """The stated value, or the default with its assumption."""
        return default_or(stated, lambda: self.assume(name, default))

    def assume(self, name: str, default: Default[T]) -> T:
        """The default, written down as an assumption."""
        self.assumptions.append(
            Assumption(
                name=name,
                value=_plain(default.value),
                reason=default.reason,
                source=default.source,
                how_to_set=default.how_to_set or _how_to_set(name),
            )
        )
        return default.value

    def notice(self, text: Message, path: str | None = None) -> None:
        """Something the reader should know."""
        self.notices.append(Notice(message=text, path=path))

    def mistake(
        self,
        text: Message,
        path: str,
        value: Any = None,
        *,
        near: Sequence[str] = (),
        how_to_fix: Message | None = None,
    ) -> None:
        """Something the user has to change; resolution goes on to find the others."""
        self.mistakes.append(
            Mistake(message=text, path=path, value=value, near=tuple(near), how_to_fix=how_to_fix)
        )

    def refuse_mistakes(self) -> None:
        """Raise everything found so far at once.

        Raises:
            InvalidRequest: If there is at least one mistake.
        """
        if self.mistakes:
            raise InvalidRequest(self.mistakes)


def _how_to_set(name: str) -> str:
    """A key of the job is set by its name; a behaviour follows from the framework's version."""
    if name.startswith("behaviour."):
        return sentence("framework: NAME==VERSION, or the versions under software")
    return f"--set {name}=VALUE"


def default_or(stated: T | None, default: Any) -> T:
    """``stated``, or what ``default()`` gives where it is None."""
    result: T = default() if stated is None else stated
    return result


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return tuple(_plain(item) for item in value)
    return str(value) if hasattr(value, "name") and isinstance(value, str) else value
