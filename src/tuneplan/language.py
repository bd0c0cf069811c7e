"""Every sentence for people goes through here: a code, an English template, its parameters.

The core makes ``Message`` values; a face turns them into text with ``str``. The template is the
gettext key (the standard library's ``gettext``), so a translation is a catalogue file and no code.
"""

from __future__ import annotations

import gettext
import string
from collections.abc import Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from tuneplan.frozen import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

LANGUAGES: Final = ("en", "zh-TW", "zh-CN")
# Languages, scripts and regions that systems and browsers name, and whose characters those read.
_READERS: Final = {
    "zh-hant": "zh-TW",
    "zh-tw": "zh-TW",
    "zh-hk": "zh-TW",
    "zh-mo": "zh-TW",
    "zh": "zh-CN",
    "en": "en",
}
_language: ContextVar[str] = ContextVar("language", default="en")
_WORD: Final = ":~"
_translations: dict[str, gettext.NullTranslations] = {}


@dataclass(frozen=True, slots=True)
class Message:
    """One sentence for people, not yet in any language.

    Attributes:
        code: Stable and machine-readable, e.g. ``unknown_model``.
        template: English, in ``str.format`` syntax; the key of the translation. Where a word hangs
            on a number: ``{count} {count:~plan/plans}``.
        params: What the template names.
    """

    code: str
    template: str
    params: Mapping[str, Any] = field(default_factory=dict)

    def __reduce__(self) -> tuple[type[Message], tuple[str, str, dict[str, Any]]]:
        return Message, (self.code, self.template, dict(self.params))

    def __str__(self) -> str:
        return _filled(translate(self.template), self.params)


def message(code: str, template: str, /, **params: Any) -> Message:
    """A ``Message``; ``code`` and ``template`` first, the parameters by name."""
    return Message(code, template, MappingProxyType(params))


def sentence(template: str, /) -> str:
    """The template itself: marks a literal that reaches ``say`` or ``translate`` by a variable.

    Catalogues are made from literals, so a text that stands in a table is marked where it stands.
    """
    return template


class Phrase(str):
    """Words of ours as a parameter of a message: English as a text, translated within it."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        """The words in the current language."""
        return format(translate(str(self)), spec)


def phrase(words: str, /) -> Phrase:
    """Words that stand within another sentence: ``message(..., wanted=phrase("a number"))``."""
    return Phrase(words)


def translate(template: str) -> str:
    """The template in the current language, or itself where there is no translation."""
    language = _language.get()
    if language == "en" or not template:  # gettext answers an empty text with its header
        return template
    return _catalogue(language).gettext(template)


def catalogue_folder() -> Path:
    """Where the compiled catalogues lie."""
    return Path(__file__).with_name("locale")


def _catalogue(language: str) -> gettext.NullTranslations:
    """The translations of a language, read once; an empty one where there is no catalogue."""
    if language not in _translations:
        folder = str(catalogue_folder())
        _translations[language] = gettext.translation(
            "tuneplan", localedir=folder, languages=[language.replace("-", "_")], fallback=True
        )
    return _translations[language]


def say(template: str, /, **params: Any) -> str:
    """A sentence, label or heading in the current language."""
    return _filled(translate(template), params) if params else translate(template)


def _filled(template: str, params: Mapping[str, Any]) -> str:
    """A template with its parameters; ``{count:~plan/plans}`` takes the word for the number."""
    if _WORD in template:
        return _Words().vformat(template, (), params)
    return template.format(**params)


class _Words(string.Formatter):
    """Knows, beside the usual formats, ``~one/several``."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if not format_spec.startswith("~"):
            return str(super().format_field(value, format_spec))
        one, several = format_spec[1:].split("/")
        return one if value == 1 else several


def nearest_language(tag: str) -> str | None:
    """Ours for a language tag or the name of a locale, such as ``zh-Hant-HK``, ``zh_TW.UTF-8``."""
    wanted = tag.partition(".")[0].partition("@")[0].replace("_", "-").strip().lower()
    while wanted:
        if wanted in _READERS:
            return _READERS[wanted]
        wanted = wanted.rpartition("-")[0]
    return None


def language_of_environment(environment: Mapping[str, str]) -> str:
    """The language of a process: ``TUNEPLAN_LANG``, else what the locale says, as gettext reads it.

    ``LC_ALL``, ``LC_MESSAGES`` and ``LANG`` in this order; ``LANGUAGE`` lists others that are
    preferred, unless the locale is ``C``.
    """
    own = nearest_language(environment.get("TUNEPLAN_LANG", ""))
    if own is not None:
        return own
    names = ("LC_ALL", "LC_MESSAGES", "LANG")
    locale = next((environment[name] for name in names if environment.get(name)), "C")
    if locale.partition(".")[0] in ("C", "POSIX"):
        return "en"
    preferred = [*environment.get("LANGUAGE", "").split(":"), locale]
    return next(filter(None, map(nearest_language, preferred)), "en")


def current_language() -> str:
    """The language that ``str(message)`` speaks now."""
    return _language.get()


@contextmanager
def speaking(language: str) -> Iterator[None]:
    """Within the block, messages read in ``language`` (one of ``LANGUAGES``)."""
    token = _language.set(language)
    try:
        yield
    finally:
        _language.reset(token)
