"""Why a run is not predicted: a stable code and a sentence."""

from __future__ import annotations

from typing import Any

from tuneplan.frozen import dataclass
from tuneplan.language import Message, message


@dataclass(frozen=True, slots=True)
class Skip:
    """A run that is left out, and why.

    Attributes:
        code: Stable and machine-readable; ``message.code``.
        message: One sentence.
    """

    message: Message

    @property
    def code(self) -> str:
        """Machine-readable reason."""
        return self.message.code


def skip(code: str, template: str, /, **params: Any) -> Skip:
    """A ``Skip`` from a code, an English template and its parameters."""
    return Skip(message(code, template, **params))
