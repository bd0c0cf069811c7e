"""A language in which every letter of the catalogues is wide, so that what is not is seen."""

from __future__ import annotations

import re
import string
from functools import cache
from itertools import pairwise

from languages.reading import found

# Where the wide forms of the letters of ASCII stand in Unicode.
_WIDE = 0xFEE0
_WORD = re.compile(r"[A-Za-z]+(?:'[a-z]+)?")


def wide(text: str) -> str:
    """The text with wide letters: still read by people, no longer English to a search."""
    return "".join(
        chr(ord(sign) + _WIDE) if sign.isascii() and sign.isalpha() else sign for sign in text
    )


class PseudoLanguage:
    """In place of a catalogue: every template with its letters wide and its fields as they are."""

    def __init__(self) -> None:
        self.known = {sentence.text for sentence in found()}

    def gettext(self, template: str) -> str:
        """The translation; what is in no catalogue stays English."""
        if template not in self.known:
            return template
        pieces = []
        for literal, name, spec, conversion in string.Formatter().parse(template):
            pieces.append(wide(literal).replace("{", "{{").replace("}", "}}"))
            if name is not None:
                words = wide(spec or "") if (spec or "").startswith("~") else spec or ""
                pieces.append(
                    "{" + name + (f"!{conversion}" if conversion else "")
                    + (f":{words}" if words else "") + "}"
                )  # fmt: skip
        return "".join(pieces)


@cache
def pairs() -> frozenset[tuple[str, str]]:
    """Every two words that stand side by side in a sentence of the catalogues."""
    return frozenset(
        pair
        for sentence in found()
        for part in re.split(r"\{[^}]*\}|[.,:;()\n]", sentence.text)
        for pair in _neighbours(part)
    )


def english(text: str) -> list[str]:
    """Where two words of a sentence of ours stand side by side in ASCII."""
    return [
        line.strip()
        for line in text.splitlines()
        for part in re.split(r"[.,:;()|=/]|\s{2,}", line)
        if any(pair in pairs() for pair in _neighbours(part))
    ]


def _neighbours(text: str) -> list[tuple[str, str]]:
    words = text.split()
    return [
        (one.lower(), other.lower())
        for one, other in pairwise(words)
        if _WORD.fullmatch(one) and _WORD.fullmatch(other) and len(one) + len(other) > 5
    ]
