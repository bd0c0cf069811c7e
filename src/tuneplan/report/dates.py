"""Days as the reader's language writes them.

Numbers and amounts of money need nothing of the kind: English and both Chinese write them alike
(``1,234.50``), and a currency is its ISO 4217 code, since one sign means several currencies.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Final

from tuneplan.language import current_language

_LOCALES: Final = {"zh-TW": "zh_Hant_TW", "zh-CN": "zh_Hans_CN"}


def date_text(written: str) -> str:
    """A day or a month of ISO 8601: ``2026年11月30日``; in English as it is."""
    locale = _LOCALES.get(current_language())
    if locale is None:
        return written
    from babel.dates import format_date, format_skeleton

    try:
        if len(written) == len("2026-11"):
            return format_skeleton("yMMM", date.fromisoformat(f"{written}-01"), locale=locale)
        return format_date(date.fromisoformat(written), "long", locale=locale)
    except ValueError:
        return written


def moment_text(written: str) -> str:
    """A day and a time of day: ``2026-11-30 14:05``, ``2026年11月30日 14:05``."""
    moment = datetime.fromisoformat(written)
    return f"{date_text(moment.date().isoformat())} {moment:%H:%M}"
