"""Whatever is in a document: a format reads it or says what is wrong, and forgets no key."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreign_documents import nothing_beside
from tuneplan.errors import InputError
from tuneplan.formats.carrying import leaves
from tuneplan.formats.foreign import ForeignDocument
from tuneplan.formats.registry import FORMATS, format_named

_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(
        (
            *("auto", "true", "no", "lora", "qlora", "full", "bf16", "fp16", "adamw_torch", "dpo"),
            *("zero3", "all-linear", "q_proj,v_proj", "(a+)+$", "Qwen/Qwen2.5-7B", "a.b.c", "512"),
            *("${seed}", "${a.b}", "full_shard auto_wrap", "torchtune.models.qwen2.lora_qwen2_7b"),
        )
    )
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


def _planted(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A tree from key paths; a path inside a plain value is left out."""
    tree: dict[str, Any] = {}
    for path, value in pairs:
        holder: Any = tree
        *sections, leaf = path.split(".")
        for name in sections:
            holder = holder.setdefault(name, {})
            if not isinstance(holder, dict):
                break
        else:
            holder[leaf] = value
    return tree


def _sections(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts))]


@st.composite
def _documents(draw: st.DrawFn, name: str) -> ForeignDocument:
    known = tuple(getattr(format_named(name), "KEYS", ())) or ("model",)
    keys = st.sampled_from(known) | st.text(max_size=10)
    pairs = draw(st.lists(st.tuples(keys, _VALUES), max_size=25))
    form = draw(st.sampled_from(("yaml", "shell")))
    return ForeignDocument(tree=_planted(pairs), file="any.yaml", form=form)


@pytest.mark.parametrize("name", sorted(FORMATS))
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_document_is_read_or_refused_with_words(name: str, data: st.DataObject) -> None:
    document = data.draw(_documents(name))
    module = format_named(name)
    assert 0 <= module.recognise(document) <= 1
    try:
        found = module.load(document, companion=nothing_beside, version=None)
    except InputError as error:
        _ = [str(mistake.message) for mistake in error.mistakes]  # every sentence can be made
        return
    told = {key.path for key in found.keys}
    for path, _ in leaves(document.tree):
        assert told & {path, *_sections(path)}
    for key in found.keys:
        assert key.job_keys or key.why is not None or key.fate.value == "carried"
