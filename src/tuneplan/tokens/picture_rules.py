"""Which model makes how many tokens of a picture: the table ``data/visual.toml``.

A model folder's ``preprocessor_config.json`` wins over the numbers of the table.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tuneplan.estimation import visual_tokens
from tuneplan.frozen import dataclass

_DESCRIBING = frozenset(
    {"id", "names", "model_types", "way", "marks", "written", "needs", "written_tokens", "source"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureRule:
    """How one family of models prepares pictures.

    Attributes:
        way: A function of ``estimation.visual_tokens``, or ``fixed``.
        numbers: Its arguments.
        marks: Tokens around the picture's own.
        written: What stands for a picture in the text.
        needs: The special token in it, without which a tokenizer is not the model's own.
        written_tokens: How many tokens ``written`` is.
    """

    id: str
    names: tuple[str, ...]
    model_types: tuple[str, ...]
    way: str
    numbers: Mapping[str, Any]
    marks: int
    written: str
    needs: str
    written_tokens: int
    source: str

    def tokens(self, height: int, width: int) -> int:
        """Tokens of a picture with its marks.

        Raises:
            ValueError: The model's processor refuses a picture of this shape.
        """
        if self.way == "fixed":
            return int(self.numbers["tokens"]) + self.marks
        way = getattr(visual_tokens, self.way)
        return int(way(height, width, **self.numbers)) + self.marks


@cache
def picture_rules() -> tuple[PictureRule, ...]:
    """The bundled table."""
    text = (Path(__file__).with_name("data") / "visual.toml").read_text("utf-8")
    return tuple(_rule(entry) for entry in tomllib.loads(text)["model"])


def _rule(entry: Mapping[str, Any]) -> PictureRule:
    numbers = {name: value for name, value in entry.items() if name not in _DESCRIBING}
    return PictureRule(
        id=entry["id"],
        names=tuple(entry["names"]),
        model_types=tuple(entry.get("model_types", ())),
        way=entry["way"],
        numbers=MappingProxyType(numbers),
        marks=entry["marks"],
        written=entry["written"],
        needs=entry["needs"],
        written_tokens=entry["written_tokens"],
        source=entry["source"],
    )


def rule_of_model(model: str) -> PictureRule | None:
    """The rule of a model by its name, its folder or its ``config.json``; None if not known."""
    path = Path(model)
    if path.name == "config.json":
        path = path.parent
    if (path / "config.json").is_file():
        return _of_folder(path)
    name = model.rstrip("/").rsplit("/", 1)[-1].lower()
    return next(
        (rule for rule in picture_rules() if any(re.search(one, name) for one in rule.names)), None
    )


def _of_folder(folder: Path) -> PictureRule | None:
    config = _read(folder / "config.json")
    kind = config.get("model_type")
    vision = config.get("vision_config")
    if kind == "llava" and isinstance(vision, dict) and vision.get("model_type") == "pixtral":
        kind = "pixtral"
    found = next((rule for rule in picture_rules() if kind in rule.model_types), None)
    if found is None:
        # Sizes of one family differ in numbers that the configuration does not hold: by name.
        name = folder.resolve().name.lower()
        return next(
            (rule for rule in picture_rules() if any(re.search(one, name) for one in rule.names)),
            None,
        )
    return _adjusted(found, _read(folder / "preprocessor_config.json"))


def _adjusted(rule: PictureRule, prepared: Mapping[str, Any]) -> PictureRule:
    """With the numbers of the model's own preprocessor_config.json."""
    size = prepared.get("size")
    size = size if isinstance(size, dict) else {}
    changed: dict[str, Any] = {}
    if rule.way == "merged_grid":
        low = prepared.get("min_pixels") or size.get("shortest_edge")
        high = prepared.get("max_pixels") or size.get("longest_edge")
        changed = {"min_pixels": low, "max_pixels": high}
        if prepared.get("patch_size") and prepared.get("merge_size"):
            changed["unit"] = prepared["patch_size"] * prepared["merge_size"]
    elif rule.way in ("split_picture", "rows_with_breaks"):
        changed = {"longest_edge": size.get("longest_edge")}
    numbers = {name: value for name, value in changed.items() if isinstance(value, int)}
    if not numbers:
        return rule
    return replace(
        rule,
        numbers=MappingProxyType({**rule.numbers, **numbers}),
        source=f"{rule.source}; preprocessor_config.json of the model",
    )


def _read(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
