"""What a low-rank adapter reaches.

Follows PEFT 0.21.2 over transformers 5.24.0. A name in ``target_modules`` takes every module whose
path equals it or ends with ``.name`` (``tuners_utils.check_target_module_exists``); ``all-linear``
takes every linear but the output head (``_maybe_include_all_linear_layers``). Experts have names of
their own: ``peft_names.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tuneplan.errors import InvalidRequest
from tuneplan.estimation.model_modules import LinearModule, all_modules, linear_modules
from tuneplan.estimation.peft_names import (
    EXPERT_NAMES,
    default_target_modules,
    has_experts,
    names_of_experts,
)
from tuneplan.estimation.target_mistakes import (
    PLAIN_KINDS,
    check_fused_names,
    mistakes_of_targets,
    no_default,
    refused_targets,
    unknown_names,
)
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.recipe import Adapter
from tuneplan.spec.weights import WeightKind

ALL_LINEAR: Final = "all-linear"


def resolve_target_modules(
    architecture: ModelArchitecture,
    stated: str | Sequence[str] | None,
    *,
    vision: bool = False,
    passes_over_refused: bool = False,
) -> tuple[str, ...]:
    """The names an adapter targets: checked and without doubles.

    Args:
        architecture: The model.
        stated: ``all-linear``, names (or one name), or None for PEFT's default of this model type.
        vision: As in ``linear_modules``.
        passes_over_refused: Whether ``all-linear`` leaves out what PEFT refuses or fails on.

    Raises:
        InvalidRequest: names that the model lacks, each with near ones; names that PEFT refuses;
            or nothing is stated for a model type that PEFT has no default for.
    """
    if stated is None:
        default = default_target_modules(architecture.model_type)
        if default is None:
            raise InvalidRequest([no_default(architecture)])
        return default
    if isinstance(stated, str) and stated.lower() == ALL_LINEAR:
        names = _all_linear(architecture, vision=vision)
        if passes_over_refused:
            refused = refused_targets(architecture)
            names = tuple(name for name in names if name not in refused)
    else:
        names = (stated,) if isinstance(stated, str) else tuple(dict.fromkeys(stated))
    mistakes = [
        *unknown_names(architecture, names, vision=vision),
        *mistakes_of_targets(architecture, names),
    ]
    if mistakes or not names:
        raise InvalidRequest(mistakes or [no_default(architecture)])
    check_fused_names(architecture, names_of_experts(architecture, names))
    return names


def adapted_modules(
    architecture: ModelArchitecture, adapter: Adapter, *, vision: bool = False
) -> tuple[LinearModule, ...]:
    """What an adapter's (resolved) names reach.

    Linears, embeddings, a head that is named (also a tied one, which is a module of its own), and
    experts where PEFT reaches them.

    Raises:
        InvalidRequest: one of two names is missing whose matrices are fused.
    """
    plain, stacked = split_targets(architecture, adapter)
    reached = []
    for module in all_modules(architecture, vision=vision):
        kind = module.weight.kind
        if kind in PLAIN_KINDS and any(module.matches(name) for name in plain):
            reached.append(module)
        elif kind in (WeightKind.EXPERTS, WeightKind.ROUTER) and module.leaf in stacked:
            reached.append(replace(module, rank_factor=stacked[module.leaf]))
    head = architecture.head_weight
    if architecture.head is None and head.name in plain:
        reached.append(LinearModule(path=head.name, weight=head, count=1))
    return tuple(reached)


def split_targets(
    architecture: ModelArchitecture, adapter: Adapter
) -> tuple[tuple[str, ...], dict[str, int]]:
    """Names of modules, and the stacked parameters with the factor of their rank.

    Raises:
        InvalidRequest: one of two names is missing whose matrices are fused.
    """
    names = adapter.target_modules
    if adapter.expert_targets is not None:
        return names, dict(adapter.expert_targets)
    expert_names = names_of_experts(architecture, names)
    check_fused_names(architecture, expert_names)
    stacked: dict[str, int] = {}
    for parameter in expert_names.values():
        stacked[parameter] = stacked.get(parameter, 0) + 1
    return tuple(name for name in names if name not in expert_names), stacked


def _all_linear(architecture: ModelArchitecture, *, vision: bool) -> tuple[str, ...]:
    leaves = dict.fromkeys(module.leaf for module in linear_modules(architecture, vision=vision))
    names = EXPERT_NAMES.get(architecture.model_type, {}) if has_experts(architecture) else {}
    return tuple(leaves | dict.fromkeys(names))
