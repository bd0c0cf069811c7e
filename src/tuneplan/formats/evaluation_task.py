"""Tasks of the lm-evaluation-harness: they lie beside configurations, and train nothing.

Source: lm-evaluation-harness 0.4.9 ``lm_eval/api/task.py TaskConfig``.
"""

from __future__ import annotations

from typing import Final

from tuneplan.formats.carrying import Carrier
from tuneplan.formats.foreign import Companion, ForeignDocument, Imported
from tuneplan.formats.reading_only import read_only
from tuneplan.language import message

NAME: Final = "lm-evaluation-harness"
_SIGNS: Final = (
    *("output_type", "doc_to_text", "doc_to_target", "doc_to_choice", "num_fewshot", "test_split"),
    *("metric_list", "generation_kwargs", "filter_list", "process_docs", "fewshot_split"),
    *("should_decontaminate", "fewshot_config", "repeats"),
)


def recognise(document: ForeignDocument) -> float:
    """A task, or a group of tasks, with the keys that describe one."""
    tree = document.tree
    if document.form == "shell" or not ("task" in tree or "group" in tree):
        return 0.0
    return min(1.0, 0.3 * sum(name in tree for name in _SIGNS))


def load(document: ForeignDocument, *, companion: Companion, version: str | None) -> Imported:
    """A job that says nothing, refused by name: a task of an evaluation trains nothing."""
    del companion
    carrier = Carrier(document)
    text = message(
        "evaluation_task",
        "a task of the lm-evaluation-harness: it says how a model is examined, it trains nothing",
    )
    name = "task" if carrier.holds("task") else "group"
    carrier.refuse(name, text)
    describes = message("task_key", "it describes an evaluation")
    carrier.irrelevant(document.tree, describes)
    return carrier.finish(name=NAME, version=version)


dump = read_only(NAME)
