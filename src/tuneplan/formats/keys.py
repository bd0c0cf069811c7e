"""The keys below a path of a document: what most formats read, carry and close."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tuneplan.formats import typed_values as typed
from tuneplan.formats.carrying import Carrier
from tuneplan.formats.foreign import ForeignDocument
from tuneplan.formats.tables import Reasons
from tuneplan.frozen import dataclass
from tuneplan.language import Message, message

_OFF = message("key_off", "switched off, as it is where nobody asks for it")
_WORDS_FOR_OFF = ("", "no", "none", "false", "null")


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Keys of one document below a path; names are relative to it.

    Attributes:
        document: None = the first of the carrier.
        below: Path of the section; "" = the whole document.
    """

    carrier: Carrier
    document: ForeignDocument | None = None
    below: str = ""

    def path(self, name: str) -> str:
        """The key path in the document."""
        return f"{self.below}.{name}" if self.below else name

    def under(self, name: str) -> Keys:
        """The keys of a section."""
        return Keys(carrier=self.carrier, document=self.document, below=self.path(name))

    # --- values ---------------------------------------------------------------------------------

    def value(self, name: str) -> Any:
        """What stands there; None where it is absent or blank."""
        return self.carrier.value(self.path(name), of=self.document)

    def holds(self, name: str) -> bool:
        """Whether the key is written."""
        return self.carrier.holds(self.path(name), of=self.document)

    def closed(self, name: str) -> bool:
        """Whether the key has its fate."""
        return self.carrier.closed(self.path(name), of=self.document)

    def first(self, *names: str) -> str | None:
        """The first of the names that says something."""
        return next((name for name in names if self.value(name) is not None), None)

    def flag(self, name: str) -> bool | None:
        """True or false."""
        return typed.flag(self.carrier, self.path(name), of=self.document)

    def whole(self, name: str) -> int | None:
        """A whole number."""
        return typed.whole(self.carrier, self.path(name), of=self.document)

    def number(self, name: str) -> float | None:
        """A number."""
        return typed.number(self.carrier, self.path(name), of=self.document)

    def text(self, name: str) -> str | None:
        """Text."""
        return typed.text(self.carrier, self.path(name), of=self.document)

    def word(self, name: str, words: Sequence[str]) -> str | None:
        """One of the words."""
        return typed.word(self.carrier, self.path(name), words, of=self.document)

    def names(self, name: str) -> tuple[str, ...] | None:
        """A list of names."""
        return typed.names(self.carrier, self.path(name), of=self.document)

    # --- fates ----------------------------------------------------------------------------------

    def carry(self, name: str, *says: tuple[str, Any]) -> None:
        """Close a key by what it says."""
        self.carrier.carry(self.path(name), *says, of=self.document)

    def agree(self, name: str, job_key: str, value: Any) -> None:
        """Close a key by what it says, unless another place says it differently."""
        self.carrier.agree(self.path(name), job_key, value, of=self.document)

    def irrelevant(self, names: Iterable[str], why: Message) -> None:
        """Close those of the keys that are there and open: they change nothing."""
        self.carrier.irrelevant(map(self.path, names), why, of=self.document)

    def not_carried(self, names: Iterable[str], why: Message) -> None:
        """Close those of the keys that are there and open: no job key says them."""
        self.carrier.not_carried(map(self.path, names), why, of=self.document)

    def wrong(
        self,
        name: str,
        text: Message,
        *,
        near: Sequence[str] = (),
        how_to_fix: Message | None = None,
    ) -> None:
        """Note a value that the framework itself would refuse."""
        self.carrier.wrong(
            self.path(name), text, near=near, how_to_fix=how_to_fix, of=self.document
        )

    def refuse(self, name: str, text: Message, *, how_to_fix: Message | None = None) -> None:
        """Close a key of which no estimate can be made."""
        self.carrier.refuse(self.path(name), text, how_to_fix=how_to_fix, of=self.document)

    def notice(self, name: str, text: Message) -> None:
        """Tell the reader something about a key."""
        self.carrier.notice(self.path(name), text, of=self.document)

    def close(self, *, irrelevant: Reasons, not_carried: Reasons) -> None:
        """Close every key of the tables that is there and open; what is off changes nothing."""
        for name, why in self._written(irrelevant):
            self.irrelevant((name,), why)
        for name, why in self._written(not_carried):
            if _is_off(self.value(name)):
                self.irrelevant((name,), _OFF)
            else:
                self.not_carried((name,), why)

    def _written(self, reasons: Reasons) -> Iterable[tuple[str, Message]]:
        section = self.section
        for name, why in reasons:
            if name.endswith("*"):
                yield from ((key, why) for key in section if key.startswith(name[:-1]))
            elif self.holds(name):
                yield name, why

    @property
    def section(self) -> Mapping[str, Any]:
        """The section as written; empty where it is none."""
        document = self.document or self.carrier.document
        found = self.carrier.value(self.below, of=document) if self.below else document.tree
        return found if isinstance(found, Mapping) else {}


def _is_off(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip().lower() in _WORDS_FOR_OFF
    return value is None or value is False or value == 0 or value in ([], {})
