"""Which linears an adapter sits on: names and shorthands to leaf names of the model at hand."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from tuneplan.errors import InvalidRequest, Mistake, NotSupported
from tuneplan.estimation.adapters import ALL_LINEAR, resolve_target_modules
from tuneplan.estimation.peft_names import expert_module_names
from tuneplan.estimation.target_mistakes import refused_targets
from tuneplan.frameworks.ledger import Ledger
from tuneplan.language import message
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.blocks import Attention, Recurrence
from tuneplan.spec.weights import WeightKind, leaf_of

_SHORTHANDS: Final = {
    "all": ALL_LINEAR,
    "all-linear": ALL_LINEAR,
    "all linear": ALL_LINEAR,
    "all_linear": ALL_LINEAR,
    "default": "attention",
    "default (qkv)": "attention",
}
_HEAD: Final = "lm_head"
_EMBEDDINGS: Final = ("embed_tokens", "wte", "tok_embeddings", "word_embeddings", "embed_in")
_FUSED_INPUTS: Final = (
    *("qkv_proj", "query_key_value", "c_attn", "Wqkv", "wqkv", "W_pack", "in_proj_qkv"),
)
# Names that configurations list for every family at once: PEFT passes over those that match
# nothing, as long as one does (``tuners_utils.py inject_adapter``).
_USUAL: Final = frozenset(
    (
        *("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "in_proj"),
        *("out_proj", "gate_up_proj", "qkv_proj", "query_key_value", "dense", "c_attn", "c_proj"),
        *("dense_h_to_4h", "dense_4h_to_h", "fc1", "fc2", "w1", "w2", "w3", "x_proj", "dt_proj"),
    )
)
# Leaf names that mean the same linear in other code bases, tried in order; a comma joins parts.
_SYNONYMS: Final[dict[str, tuple[str, ...]]] = {
    "q": ("q_proj",),
    "k": ("k_proj",),
    "v": ("v_proj",),
    "o": ("o_proj",),
    "query": ("q_proj", "q_b_proj", *_FUSED_INPUTS),
    "key": ("k_proj", "kv_b_proj", *_FUSED_INPUTS),
    "value": ("v_proj", "kv_b_proj", *_FUSED_INPUTS),
    "q_proj": ("q_b_proj", *_FUSED_INPUTS),
    "k_proj": ("kv_b_proj", *_FUSED_INPUTS),
    "v_proj": ("kv_b_proj", *_FUSED_INPUTS),
    "projection": ("o_proj", "dense", "c_proj", "out_proj"),
    "output_proj": ("o_proj", "dense", "c_proj", "out_proj"),
    "gate": ("gate_proj", "gate_up_proj"),
    "up": ("up_proj", "gate_up_proj"),
    "down": ("down_proj",),
    "head": ("lm_head", "embed_out", "output"),
    "linear_qkv": ("q_proj,k_proj,v_proj", *_FUSED_INPUTS),
    "linear_proj": ("o_proj",),
    "linear_fc1": ("gate_proj,up_proj", "gate_up_proj", "fc1"),
    "linear_fc2": ("down_proj", "fc2"),
}


def resolve_targets(
    targets: str | tuple[str, ...],
    architecture: ModelArchitecture,
    ledger: Ledger,
    *,
    experts_are_linear: bool,
    by_framework: bool,
    as_it_ran: bool = False,
) -> tuple[str, ...]:
    """Leaf names of the adapted linears, in the order they run.

    Accepts ``all-linear``, leaf or dotted names, and the words of other code bases (``query,value``
    of LitGPT, ``q,k,v,o``, ``linear_qkv`` of NeMo, ``DEFAULT`` of ms-swift, ``mlp`` of torchtune).
    What the model lacks is a mistake with near matches.

    Args:
        targets: As stated or as the framework's default has them.
        architecture: The model.
        ledger: Where mistakes and notices go.
        experts_are_linear: Whether routed experts are linears of their own (transformers before 5).
        by_framework: Whether the framework chose them: then a word may stand for the model's own
            name of the same linear (``q_proj`` for a fused ``c_attn``).
        as_it_ran: Whether this is a run that happened: PEFT passes over names that match nothing
            as long as one matches (``tuners_utils.py inject_adapter``).

    Raises:
        NotSupported: For adapters on routed experts, which have no formula yet.
    """
    names: list[str] = []
    for word in _words(targets):
        names.extend(_names(word, architecture, by_framework=by_framework))
    if as_it_ran or by_framework:
        names = _matching(names, architecture) or names
    else:
        names = _without_usual(names, architecture, ledger)
    chosen = _without_experts(_unique(names), architecture, ledger, linear=experts_are_linear)
    if experts_are_linear and _expert_leaves(architecture):
        _refuse_linear_experts(chosen, architecture)
        if ALL_LINEAR in chosen or set(chosen) & set(expert_module_names(architecture)):
            _say_experts_left_out(ledger)
    tied_head = architecture.head is None and _HEAD in chosen  # a module, though its weight is tied
    found: list[str] = []
    if ALL_LINEAR in chosen:
        found.extend(_every_linear(architecture, ledger, lenient=by_framework or as_it_ran))
    named = tuple(n for n in chosen if n != ALL_LINEAR and not (tied_head and n == _HEAD))
    if named or not (found or tied_head):
        found.extend(_resolved(named or targets, architecture, ledger))
    leaves = [leaf_of(name) for name in found]
    if experts_are_linear:
        leaves = [leaf for leaf in leaves if leaf not in _only_experts(architecture)]
    return _unique([*leaves, *((_HEAD,) if tied_head else ())])


def resolve_saved(
    modules: tuple[str, ...], architecture: ModelArchitecture, ledger: Ledger
) -> tuple[str, ...]:
    """Leaf names of the modules that are trained whole beside the adapter."""
    known = _unique(weight.leaf for _, weight, _ in architecture.weights())
    leaves = _unique(leaf_of(module) for module in modules)
    embedding = architecture.token_embedding.leaf
    head = architecture.head.leaf if architecture.head is not None else _HEAD
    leaves = _unique(
        embedding if leaf in _EMBEDDINGS and leaf not in known else head if leaf == _HEAD else leaf
        for leaf in leaves
    )
    for leaf in leaves:
        if leaf not in known and leaf != head:
            ledger.mistake(
                message(
                    "unknown_saved_module", "the model has no module named {name!r}", name=leaf
                ),
                "adapter.modules_to_save",
                leaf,
                near=("embed_tokens", "lm_head"),
            )
    return leaves


def resolve_parameters(
    parameters: tuple[str, ...] | None,
    architecture: ModelArchitecture,
    ledger: Ledger,
    *,
    experts_are_linear: bool,
) -> tuple[tuple[str, int], ...] | None:
    """Stacked parameters that are adapted as they are, each with its own rank; None = not stated.

    Source: peft tuners/lora/layer.py ``ParamWrapper``: r for each expert.

    Raises:
        NotSupported: Where experts are linears of their own (transformers before 5).
    """
    if parameters is None:
        return None
    leaves = _unique(name.rsplit(".", 1)[-1] for name in parameters)
    if experts_are_linear and leaves:
        raise _no_formula(list(leaves))
    known = _expert_leaves(architecture)
    for leaf in leaves:
        if leaf not in known:
            ledger.mistake(
                message("unknown_parameter", "no routed experts hold {name!r}", name=leaf),
                "adapter.target_parameters",
                leaf,
                near=tuple(sorted(known))[:3],
            )
    return tuple((leaf, 1) for leaf in leaves if leaf in known)


def attention_inputs(architecture: ModelArchitecture) -> tuple[str, ...]:
    """Leaf names of the query, key and value projections (separate or fused)."""
    names: list[str] = []
    for group in architecture.groups:
        mixer = group.layer.mixer
        if isinstance(mixer, Attention | Recurrence):
            linears = [w.leaf for w in mixer.weights if w.kind is WeightKind.LINEAR]
            names.extend(linears[:-1] or linears)
    return _unique(names)


def _words(targets: str | tuple[str, ...]) -> tuple[str, ...]:
    if not isinstance(targets, str):
        return targets
    whole = targets.strip().lower()
    if whole in _SHORTHANDS:
        return (whole,)
    if whole.startswith("all linear"):
        return (ALL_LINEAR, "head") if "output" in whole else (ALL_LINEAR,)
    return tuple(word for word in re.split(r"[,\s+]+", targets) if word)


def _names(word: str, architecture: ModelArchitecture, *, by_framework: bool) -> tuple[str, ...]:
    shorthand = _SHORTHANDS.get(word.lower())
    if shorthand is not None:
        return attention_inputs(architecture) if shorthand == "attention" else (ALL_LINEAR,)
    known = {weight.leaf for _, weight, _ in architecture.weights()} | {_HEAD}
    leaf = leaf_of(word)
    if leaf in known:
        return (word,)
    if leaf.lower() == "mlp":
        return _feed_forward_linears(architecture)
    if by_framework or leaf not in ("q_proj", "k_proj", "v_proj"):
        for synonym in _SYNONYMS.get(leaf, ()):
            parts = tuple(synonym.split(","))
            if all(part in known for part in parts):
                return parts
    return (word,)


def _without_usual(names: list[str], architecture: ModelArchitecture, ledger: Ledger) -> list[str]:
    """The names less the usual ones that this model lacks, as long as one is left."""
    found = _matching(names, architecture)
    lacking = [n for n in names if n not in found and n.rsplit(".", 1)[-1] in _USUAL]
    if not found or not lacking:
        return names
    ledger.notice(
        message(
            "usual_targets_lacking",
            "the model has no {names}; PEFT passes over names that match nothing",
            names=", ".join(lacking),
        ),
        "adapter.target_modules",
    )
    return [name for name in names if name not in lacking]


def _matching(names: list[str], architecture: ModelArchitecture) -> list[str]:
    known = {weight.leaf for _, weight, _ in architecture.weights()} | {_HEAD, ALL_LINEAR}
    return [name for name in names if leaf_of(name) in known]


def _every_linear(
    architecture: ModelArchitecture, ledger: Ledger, *, lenient: bool
) -> tuple[str, ...]:
    """All linears; of a framework's own choice less those that PEFT refuses, which is said."""
    refused = refused_targets(architecture)
    if not (lenient and refused):
        return _resolved(ALL_LINEAR, architecture, ledger)
    ledger.notice(
        message(
            "targets_left_out",
            "{names}: PEFT cannot adapt these, so all-linear is taken to mean all others",
            names=", ".join(refused),
        ),
        "adapter.target_modules",
    )
    return resolve_target_modules(architecture, ALL_LINEAR, passes_over_refused=True)


def _resolved(
    names: str | tuple[str, ...], architecture: ModelArchitecture, ledger: Ledger
) -> tuple[str, ...]:
    try:
        return resolve_target_modules(architecture, names)
    except InvalidRequest as error:
        ledger.mistakes.extend(_located(mistake) for mistake in error.mistakes)
        return ()


def _located(mistake: Mistake) -> Mistake:
    if mistake.path is not None:
        return mistake
    return Mistake(
        message=mistake.message,
        path="adapter.target_modules",
        value=mistake.value,
        near=mistake.near,
        how_to_fix=mistake.how_to_fix,
    )


def _without_experts(
    names: tuple[str, ...], architecture: ModelArchitecture, ledger: Ledger, *, linear: bool
) -> tuple[str, ...]:
    """The names less those that only routed experts bear.

    Stacked experts (transformers 5) are no modules, so ``target_modules`` passes over them.

    Raises:
        NotSupported: Where experts are linears of their own: their adapters have no formula.
    """
    experts = _expert_leaves(architecture)
    others = {w.leaf for _, w, _ in architecture.weights() if w.kind is not WeightKind.EXPERTS}
    only = [name for name in names if leaf_of(name) in experts - others]
    if not only:
        return names
    if linear:
        raise _no_formula(only)
    ledger.notice(
        message(
            "stacked_experts",
            "{names}: routed experts are stacked parameters in transformers 5, which "
            "target_modules does not reach; they stay frozen",
            names=", ".join(only),
        ),
        "adapter.target_modules",
    )
    return tuple(name for name in names if name not in only)


def _no_formula(names: list[str]) -> NotSupported:
    return NotSupported(
        message(
            "adapters_on_experts",
            "adapters on routed experts ({names}) have no formula yet; "
            "all-linear adapts everything else",
            names=", ".join(names),
        ),
        path="adapter.target_modules",
    )


def _only_experts(architecture: ModelArchitecture) -> set[str]:
    """Names that only routed experts and their router had as modules."""
    others = {
        weight.leaf
        for _, weight, _ in architecture.weights()
        if weight.kind not in (WeightKind.EXPERTS, WeightKind.ROUTER)
    }
    return set(expert_module_names(architecture)) - others


def _refuse_linear_experts(names: tuple[str, ...], architecture: ModelArchitecture) -> None:
    only = [n for n in names if leaf_of(n) in _only_experts(architecture)]
    if only:
        raise _no_formula(only)


def say_no_dropout(
    architecture: ModelArchitecture, names: tuple[str, ...], dropout: float, ledger: Ledger
) -> None:
    """PEFT refuses dropout where it adapts a parameter (``tuners/lora/layer.py ParamWrapper``)."""
    if dropout and set(names) & set(expert_module_names(architecture)):
        ledger.notice(
            message(
                "no_dropout_on_experts",
                "PEFT refuses lora_dropout {dropout} on stacked experts: set adapter.lora_dropout "
                "to 0",
                dropout=dropout,
            ),
            "adapter.lora_dropout",
        )


def _say_experts_left_out(ledger: Ledger) -> None:
    ledger.notice(
        message(
            "experts_not_adapted",
            "in this transformers version all-linear also adapts the routed experts; "
            "their adapters are not counted",
        ),
        "adapter.target_modules",
    )


def _expert_leaves(architecture: ModelArchitecture) -> set[str]:
    return {w.leaf for _, w, _ in architecture.weights() if w.kind is WeightKind.EXPERTS}


def _feed_forward_linears(architecture: ModelArchitecture) -> tuple[str, ...]:
    names: list[str] = []
    for group in architecture.groups:
        block = group.layer.feed_forward
        if block is not None:
            names.extend(w.leaf for w in block.weights if w.kind is WeightKind.LINEAR)
    return _unique(names)


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
