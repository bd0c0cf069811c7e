"""Trees of messages, as Open Assistant exports them: every thread that is trained on.

A row is ``{message_tree_id, tree_state, prompt: {role, text, replies: [...]}}``. Each way from the
prompt down to a last answer is one conversation.
Source: Open-Assistant (2024-01) ``model/model_training/custom_datasets/oasst_dataset.py``
``load_oasst_export`` with ``mode="sft"`` and without ``top_k``: threads with a deleted or synthetic
message are left out, a question at the end is cut off and counts once for all its siblings, trees
that are not ready for export give nothing. Its filter by language is not applied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Message = Mapping[str, Any]


def threads_of(row: Mapping[str, Any]) -> list[list[dict[str, Any]]]:
    """The conversations of a tree, depth first, as messages with ``role`` and ``content``."""
    prompt = row["prompt"]
    if row.get("tree_state", "ready_for_export") != "ready_for_export":
        return []
    if prompt.get("review_result") is False:
        return []
    return [
        [{"role": turn.get("role"), "content": turn.get("text")} for turn in thread]
        for thread in _threads([prompt])
    ]


def _threads(path: list[Message]) -> Iterator[list[Message]]:
    last = path[-1]
    if last.get("deleted") or last.get("synthetic"):
        return
    replies = [one for one in last.get("replies") or () if isinstance(one, dict)]
    for reply in replies:
        yield from _threads([*path, reply])
    if replies or len(path) < 2:
        return
    if last.get("role") == "assistant":
        yield path
    elif path[-2]["replies"][0] is last:
        yield path[:-1]
