"""Tables of keys by the reason why no job key is made of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tuneplan.formats.carrying import Carrier
from tuneplan.formats.foreign import ForeignDocument
from tuneplan.frozen import dataclass
from tuneplan.language import Message, message

_OFF = message("key_off", "switched off, as it is where nobody asks for it")


@dataclass(frozen=True, slots=True, init=False)
class Reasons:
    """Keys with a reason each.

    A name ending in ``*`` stands for all keys that start so; a name with dots is a key path.
    """

    rows: tuple[tuple[Message, tuple[str, ...]], ...]

    def __init__(self, *rows: tuple[Message, tuple[str, ...]]) -> None:
        """Reasons, each with its keys."""
        object.__setattr__(self, "rows", rows)

    def __iter__(self) -> Iterator[tuple[str, Message]]:
        """Every name with its reason."""
        return ((name, why) for why, names in self.rows for name in names)

    @property
    def names(self) -> tuple[str, ...]:
        """The keys in full, for near matches."""
        return tuple(name for name, _ in self if not name.endswith("*"))


def close(
    carrier: Carrier,
    tree: Mapping[str, object],
    *,
    irrelevant: Reasons,
    not_carried: Reasons,
    of: ForeignDocument | None = None,
) -> None:
    """Close every key of the tables that is written and still open.

    What is switched off (``false``) or left blank changes nothing, whichever key it is.
    """
    for path, why in _written(tree, irrelevant):
        carrier.irrelevant((path,), why, of=of)
    for path, why in _written(tree, not_carried):
        if carrier.value(path, of=of) in (None, False, "", "no"):
            carrier.irrelevant((path,), _OFF, of=of)
        else:
            carrier.not_carried((path,), why, of=of)


def _written(tree: Mapping[str, object], reasons: Reasons) -> Iterator[tuple[str, Message]]:
    for name, why in reasons:
        if name.endswith("*"):
            yield from ((key, why) for key in tree if key.startswith(name[:-1]))
        else:
            yield name, why
