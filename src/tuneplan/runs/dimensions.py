"""Models that a row describes by their dimensions instead of a name.

Only ``hidden=N layers=N`` and ``heads=N`` among a row's notes are read, as the figures they are;
nothing else of a note is.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Final

from tuneplan.runs.rows import MeasuredRun

_SHAPE: Final = re.compile(r"\bhidden=(\d+) layers=(\d+)(?: heads=(\d+))?")
_VOCABULARY: Final = re.compile(r"\bvocab (\d+)k\b")
# "all NHEADS=64 (above too)", bigscience train/tr11-176B-ml/chronicles-prequel.md, final round; the
# 200B model of its first tables has 96 (line 410).
_HEADS: Final = MappingProxyType({"bigscience-workshop/bigscience": 64})
_HEADS_BY_WIDTH: Final = MappingProxyType({14400: 96})


def model_of(run: MeasuredRun) -> str:
    """What the catalogue can look up: the row's name, or the dimensions of its GPT."""
    notes = run.extra.get("notes", "")
    shape = _SHAPE.search(notes)
    if shape is None or "GPT" not in run.model:
        return run.model
    hidden = int(shape[1])
    heads = shape[3] or _HEADS_BY_WIDTH.get(hidden) or _HEADS.get(run.repository)
    if heads is None:
        return run.model
    parts = [f"num_layers={shape[2]}", f"hidden_size={hidden}", f"num_attention_heads={heads}"]
    vocabulary = _VOCABULARY.search(notes)
    if vocabulary is not None:
        parts.append(f"vocab_size={int(vocabulary[1]) * 1000}")
    if run.max_length:
        parts.append(f"max_position_embeddings={run.max_length}")
    return f"gpt:{','.join(parts)}"
