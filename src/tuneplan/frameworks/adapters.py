"""Which linears an adapter sits on: names and shorthands to leaf names of the model at hand."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from typing import Final

from tuneplan.frameworks.ledger import Ledger
from tuneplan.language import message
from tuneplan.spec.architecture import ModelArchitecture, Weight, WeightKind

ALL_LINEAR: Final = "all-linear"
_SHORTHANDS: Final = {
    "all": ALL_LINEAR,
    "all-linear": ALL_LINEAR,
    "all linear": ALL_LINEAR,
    "all_linear": ALL_LINEAR,
    "linear": ALL_LINEAR,
    "default": "attention",
    "default (qkv)": "attention",
}
# Leaf names that mean the same linear in other code bases, tried in order.
_SYNONYMS: Final[dict[str, tuple[str, ...]]] = {
    "q": ("q_proj",),
    "k": ("k_proj",),
    "v": ("v_proj",),
    "o": ("o_proj",),
    "query": ("q_proj", "qkv_proj", "query_key_value", "c_attn"),
    "key": ("k_proj", "qkv_proj", "query_key_value", "c_attn"),
    "value": ("v_proj", "qkv_proj", "query_key_value", "c_attn"),
    "q_proj": ("qkv_proj", "query_key_value", "c_attn", "Wqkv", "q_b_proj"),
    "k_proj": ("qkv_proj", "query_key_value", "c_attn", "Wqkv"),
    "v_proj": ("qkv_proj", "query_key_value", "c_attn", "Wqkv"),
    "projection": ("o_proj", "dense", "c_proj", "out_proj"),
    "output_proj": ("o_proj", "dense", "c_proj", "out_proj"),
    "o_proj": ("dense", "c_proj", "out_proj"),
    "gate": ("gate_proj", "gate_up_proj"),
    "up": ("up_proj", "gate_up_proj"),
    "down": ("down_proj",),
    "gate_proj": ("gate_up_proj", "w2"),
    "up_proj": ("gate_up_proj", "fc1", "dense_h_to_4h", "c_fc", "w1"),
    "down_proj": ("fc2", "dense_4h_to_h"),
    "head": ("lm_head", "embed_out", "output"),
    "linear_qkv": ("q_proj,k_proj,v_proj", "qkv_proj", "query_key_value", "c_attn"),
    "linear_proj": ("o_proj",),
    "linear_fc1": ("gate_proj,up_proj", "gate_up_proj", "fc1"),
    "linear_fc2": ("down_proj", "fc2"),
}
_LINEAR_KINDS: Final = (WeightKind.LINEAR, WeightKind.EXPERTS)


def layer_linears(architecture: ModelArchitecture, *, experts: bool) -> tuple[str, ...]:
    """Leaf names of the linears in the layers, in the order they run.

    Args:
        architecture: The model.
        experts: Whether the routed experts are linears of their own (transformers before 5).
    """
    kinds = _LINEAR_KINDS if experts else (WeightKind.LINEAR,)
    return _unique(w.leaf for w in _layer_weights(architecture) if w.kind in kinds)


def resolve_targets(
    targets: str | tuple[str, ...],
    architecture: ModelArchitecture,
    ledger: Ledger,
    *,
    experts: bool,
    path: str = "adapter.target_modules",
) -> tuple[str, ...]:
    """Leaf names of the adapted linears.

    Accepts ``all-linear``, leaf names, dotted names, and the words of other code bases
    (``query,value`` of LitGPT, ``q,k,v,o``, ``linear_qkv`` of NeMo). What the model lacks is a
    mistake with near matches.
    """
    words = _words(targets)
    known = _unique(
        [weight.leaf for weight in _all_weights(architecture) if weight.kind in _LINEAR_KINDS]
        + [architecture.token_embedding.leaf]
        + ([architecture.head.leaf] if architecture.head is not None else [])
    )
    found: list[str] = []
    for word in words:
        leaves = _leaves(word, architecture, known, experts=experts)
        if not leaves:
            _refuse(word, known, ledger, path)
        found.extend(leaves)
    return _unique(found)


def _words(targets: str | tuple[str, ...]) -> tuple[str, ...]:
    if not isinstance(targets, str):
        return targets
    whole = targets.strip().lower()
    if whole in _SHORTHANDS:
        return (whole,)
    if whole.startswith("all linear"):
        return ("all-linear", "head") if "output" in whole else ("all-linear",)
    return tuple(word for word in re.split(r"[,\s+]+", targets) if word)


def _leaves(
    word: str, architecture: ModelArchitecture, known: tuple[str, ...], *, experts: bool
) -> tuple[str, ...]:
    shorthand = _SHORTHANDS.get(word.lower())
    if shorthand == ALL_LINEAR:
        return layer_linears(architecture, experts=experts)
    if shorthand == "attention":
        return attention_inputs(architecture)
    if word.lower() == "mlp":
        return _feed_forward_linears(architecture)
    leaf = word.rsplit(".", 1)[-1]
    if leaf in known:
        return (leaf,)
    for synonym in _SYNONYMS.get(leaf, ()):
        parts = tuple(synonym.split(","))
        if all(part in known for part in parts):
            return parts
    return ()


def attention_inputs(architecture: ModelArchitecture) -> tuple[str, ...]:
    """Leaf names of the query, key and value projections (separate or fused)."""
    names: list[str] = []
    for group in architecture.groups:
        if group.layer.mixer is not None:
            linears = [w.leaf for w in group.layer.mixer.weights if w.kind is WeightKind.LINEAR]
            names.extend(linears[:-1] or linears)
    return _unique(names)


def _feed_forward_linears(architecture: ModelArchitecture) -> tuple[str, ...]:
    names: list[str] = []
    for group in architecture.groups:
        if group.layer.feed_forward is not None:
            names.extend(
                w.leaf for w in group.layer.feed_forward.weights if w.kind in _LINEAR_KINDS
            )
    return _unique(names)


def _refuse(word: str, known: tuple[str, ...], ledger: Ledger, path: str) -> None:
    near = difflib.get_close_matches(word, known, n=3, cutoff=0.3) or list(known[:3])
    ledger.mistake(
        message("unknown_target_module", "the model has no linear named {name!r}", name=word),
        path,
        word,
        near=near,
        how_to_fix=message(
            "use_target_modules", "use all-linear or some of: {known}", known=", ".join(known)
        ),
    )


def _layer_weights(architecture: ModelArchitecture) -> Iterator[Weight]:
    for group in architecture.groups:
        yield from group.layer.weights()


def _all_weights(architecture: ModelArchitecture) -> Iterator[Weight]:
    for _, weight, _ in architecture.weights():
        yield weight


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
