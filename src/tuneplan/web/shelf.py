"""What was sent to the page, kept in memory for a while, so that an address can name it.

Nothing is written to disk. The oldest goes when there is too much of it, all of it when the server
ends.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from threading import Lock
from typing import Any, Final

from tuneplan.errors import InvalidRequest, Mistake
from tuneplan.language import message

_MOST: Final = 64
_MOST_BYTES: Final = 64 * 2**20


class Known:
    """Answers by what they were made of; the one that nobody asked for the longest goes first."""

    def __init__(self, *, most: int) -> None:
        self._most = most
        self._things: OrderedDict[Any, Any] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Any) -> Any:
        """What is known; None for nothing."""
        with self._lock:
            if key in self._things:
                self._things.move_to_end(key)
            return self._things.get(key)

    def put(self, key: Any, thing: Any) -> None:
        """Know it from now on."""
        with self._lock:
            self._things[key] = thing
            while len(self._things) > self._most:
                self._things.popitem(last=False)


class Shelf:
    """Things by their tokens; several requests may use it at once."""

    def __init__(self) -> None:
        self._things: OrderedDict[str, tuple[Any, int]] = OrderedDict()
        self._lock = Lock()

    def put(self, thing: Any, *, size_bytes: int = 0) -> str:
        """Keep a thing; the token that names it."""
        token = secrets.token_urlsafe(9)
        with self._lock:
            self._things[token] = (thing, size_bytes)
            while len(self._things) > _MOST or (
                len(self._things) > 1 and self._size_bytes() > _MOST_BYTES
            ):
                self._things.popitem(last=False)
        return token

    def _size_bytes(self) -> int:
        return sum(size for _, size in self._things.values())

    def find(self, token: str, kind: type) -> Any:
        """The thing of that kind; None where it is not kept any more."""
        with self._lock:
            thing, _ = self._things.get(token, (None, 0))
            if thing is not None:
                self._things.move_to_end(token)
        return thing if isinstance(thing, kind) else None

    def get(self, token: str, kind: type, *, path: str) -> Any:
        """The thing of that kind; ``path`` is the field that names it.

        Raises:
            InvalidRequest: It is not kept any more.
        """
        found = self.find(token, kind)
        if found is None:
            text = message(
                "not_kept_any_more",
                "what was sent is not kept any more (the page was restarted, or much was sent "
                "since): send it again",
            )
            raise InvalidRequest([Mistake(message=text, path=path)])
        return found
