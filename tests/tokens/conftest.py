"""Small files and a tokenizer whose counts can be done in the head."""

import json

import pytest

from tuneplan.tokens.encoders import TokenCount
from tuneplan.tokens.tokenizers import Tokenizer


class CharacterEncoder:
    """One token a character."""

    vocab_size = 256

    def has_token(self, text):
        return text == "<|im_start|>"

    def count(self, sequences):
        return [
            TokenCount(len(one.text), sum(end - start for start, end in one.spans))
            for one in sequences
        ]


@pytest.fixture
def characters():
    """A tokenizer of characters without special tokens."""
    return Tokenizer(name="characters", source="here", encoder=CharacterEncoder())


@pytest.fixture
def write_rows(tmp_path):
    """Writes rows as JSON Lines; text goes in as it is."""

    def write(name, *rows):
        path = tmp_path / name
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        return path

    return write
