"""The glossary in three languages is what the catalogues say."""

from __future__ import annotations

import re

import pytest

from languages.reading import told, tool

# Terms that mean one thing wherever the English word stands.
CHECKED = (
    "gradient checkpointing",
    "optimizer states",
    "optimizer",
    "gradient accumulation",
    "micro-batch",
    "fine-tuning",
    "tokenizer",
    "vocabulary",
    "bandwidth",
    "queue",
    "fragments",
    "assumption",
    "break-even",
    "cluster",
)


@pytest.mark.parametrize("column", [1, 2])
def test_a_term_has_one_translation(column: int) -> None:
    rows = {row[0]: row for row in tool("simplified_chinese").glossary()}
    catalogue = told("zh_TW" if column == 1 else "zh_CN")
    wrong = [
        (term, text, chinese)
        for term in CHECKED
        for text, chinese in catalogue.items()
        if re.search(rf"(?<![\w./`-]){re.escape(term)}s?(?![\w./=`-])", _prose(text), re.IGNORECASE)
        and not any(word in chinese for word in rows[term][column])
    ]
    assert wrong == []


def test_the_glossary_gives_each_word_once_and_in_the_characters_of_its_readers() -> None:
    rows = tool("simplified_chinese").glossary()
    english = [row[0] for row in rows]
    assert len(rows) > 100
    assert len(set(english)) == len(english)
    for _, traditional, simplified in rows:
        assert len(traditional) == len(simplified)
        for one, other in zip(traditional, simplified, strict=True):
            assert tool("simplified_chinese").simplified(one) == other


def _prose(text: str) -> str:
    """A text without its fields and what one types."""
    return re.sub(r"\{[^}]*\}|`[^`]*`|--[a-z-]+", " ", text)
