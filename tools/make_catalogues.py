"""Write the message catalogues: what is to be translated, and the translations compiled.

``python tools/make_catalogues.py`` reads every sentence of the source tree and writes
``tuneplan.pot`` and the ``.po`` file of each language, then the ``.mo`` files that the product
reads. With ``--check`` it only says what is out of date, with exit status 1 where anything is.

Traditional Chinese (zh_TW) is translated by people. Simplified Chinese (zh_CN) is made of it
(``simplified_chinese.py``); what somebody corrected there stays as it is: the compiled file is what
the last run wrote, so a text that differs from it is marked ``by hand`` and never made again.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from babel.messages.catalog import Catalog
from babel.messages.mofile import read_mo, write_mo
from babel.messages.pofile import read_po, write_po

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGE: Final = ROOT / "src" / "tuneplan"
LOCALE: Final = PACKAGE / "locale"
BY_HAND: Final = "by hand"
TRANSLATED: Final = "zh_TW"
CONVERTED: Final = "zh_CN"
sys.path[:0] = [str(ROOT / "src"), str(Path(__file__).parent)]

from catalogue_extraction import Sentence, sentences  # noqa: E402 - beside this file
from simplified_chinese import simplified  # noqa: E402

from tuneplan.cli.click_texts import CLICK_PLURALS  # noqa: E402 - the source tree comes first

# Not the day of the run: a file differs only where a text does.
_MADE: Final = datetime(2026, 12, 1, tzinfo=UTC)
_HEAD: Final = "# Messages of tuneplan. Made by tools/make_catalogues.py; translations are kept.\n#"
# Lines of the head that name Babel's version, or an address that we do not have.
_NOT_OURS: Final = (b'"Generated-By:', b'"Report-Msgid-Bugs-To:')


def template_path() -> Path:
    """The file of what is to be translated."""
    return LOCALE / "tuneplan.pot"


def catalogue_path(locale: str, ending: str = "po") -> Path:
    """The file of one language: ``po`` to be read and written, ``mo`` compiled."""
    return LOCALE / locale / "LC_MESSAGES" / f"tuneplan.{ending}"


def translations(locale: str) -> dict[str, str]:
    """What the ``.po`` file of a language says now; a text without a translation is empty."""
    path = catalogue_path(locale)
    if not path.exists():
        return {}
    with path.open("rb") as file:
        return {str(one.id): str(one.string) for one in read_po(file, locale=locale) if one.id}


def compiled(locale: str) -> dict[str, str]:
    """What the ``.mo`` file says: the texts that the last run wrote."""
    path = catalogue_path(locale, "mo")
    if not path.exists():
        return {}
    with path.open("rb") as file:
        return {one.id: str(one.string) for one in read_mo(file) if isinstance(one.id, str)}


def by_hand() -> set[str]:
    """Texts whose simplified Chinese somebody wrote or corrected."""
    path = catalogue_path(CONVERTED)
    if not path.exists():
        return set()
    with path.open("rb") as file:
        marked = {str(one.id) for one in read_po(file) if BY_HAND in one.user_comments}
    made, now = compiled(CONVERTED), translations(CONVERTED)
    return marked | {text for text, told in now.items() if told and told != made.get(text, told)}


def catalogue(
    found: Iterable[Sentence],
    told: Mapping[str, str],
    *,
    locale: str | None = None,
    marked: Iterable[str] = (),
) -> Catalog:
    """A catalogue of the sentences with what is told of them."""
    made = Catalog(
        locale=locale,
        header_comment=_HEAD,
        project="tuneplan",
        version="messages",
        creation_date=_MADE,
        revision_date=_MADE,
        last_translator="tuneplan",
        language_team="tuneplan",
        charset="utf-8",
        fuzzy=False,
    )
    kept = set(marked)
    for sentence in found:
        made.add(
            sentence.text,
            told.get(sentence.text, ""),
            locations=[(module, 0) for module in sentence.modules],
            auto_comments=list(sentence.codes),
            user_comments=[BY_HAND] if sentence.text in kept else [],
        )
        entry = made[sentence.text]
        entry.flags.clear()
        if "{" in sentence.text:
            entry.flags.add("python-brace-format")
    return made


def catalogues() -> Iterator[tuple[str | None, Catalog]]:
    """What each file should say: the template under None, then each language."""
    found = sentences(str(PACKAGE))
    yield None, catalogue(found, {})
    translated = translations(TRANSLATED)
    yield TRANSLATED, catalogue(found, translated, locale=TRANSLATED)
    corrected = by_hand()
    now = translations(CONVERTED)
    told = {
        text: now[text] if text in corrected else simplified(chinese)
        for text, chinese in translated.items()
        if chinese
    }
    yield CONVERTED, catalogue(found, told, locale=CONVERTED, marked=corrected)


def files() -> Iterator[tuple[Path, bytes]]:
    """Every file with what should stand in it."""
    for locale, made in catalogues():
        text = io.BytesIO()
        write_po(text, made, width=100, include_lineno=False, omit_header=False)
        yield (
            template_path() if locale is None else catalogue_path(locale),
            b"".join(
                line
                for line in text.getvalue().splitlines(keepends=True)
                if not line.startswith(_NOT_OURS)
            ),
        )
        if locale is not None:
            yield catalogue_path(locale, "mo"), binary(made)


def binary(made: Catalog) -> bytes:
    """The compiled form. click asks for some sentences by a form for one and one for several."""
    for one, several in CLICK_PLURALS.items():
        if several in made and made[several].string:
            made.add((one, several), (made[several].string,))
    content = io.BytesIO()
    write_mo(content, made)
    return content.getvalue()


def main() -> int:
    """Write the files, or say which are out of date."""
    reading = argparse.ArgumentParser(description=__doc__)
    reading.add_argument("--check", action="store_true", help="write nothing")
    checks = reading.parse_args().check
    status = 0
    for path, content in list(files()):
        if path.exists() and path.read_bytes() == content:
            continue
        name = path.relative_to(ROOT)
        print(f"{name} is out of date" if checks else f"wrote {name}")
        status = int(checks)
        if not checks:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    for locale in (TRANSLATED, CONVERTED):
        told = translations(locale)
        open_ = sum(not text for text in told.values())
        print(f"{locale}: {len(told)} texts, {open_} of them not translated")
    return status


if __name__ == "__main__":
    raise SystemExit(main())
