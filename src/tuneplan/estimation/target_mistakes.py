"""What is wrong with the names that an adapter is to reach: unknown, refused, or half of a pair."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Final

from tuneplan.errors import InvalidRequest, Mistake
from tuneplan.estimation.model_modules import LinearModule, all_modules, linear_modules
from tuneplan.estimation.peft_names import EXPERT_NAMES, NOT_ON_MAMBA, has_experts, names_of_experts
from tuneplan.language import Message, message, sentence
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.weights import WeightKind, leaf_of

PLAIN_KINDS: Final = (WeightKind.LINEAR, WeightKind.EMBEDDING)


def check_fused_names(architecture: ModelArchitecture, expert_names: Mapping[str, str]) -> None:
    """Gate and up share one matrix: PEFT refuses one without the other."""
    fused = [name for name, new in expert_names.items() if new == "gate_up_proj"]
    if len(fused) != 1:
        return
    known = EXPERT_NAMES[architecture.model_type]
    missing = [n for n, new in known.items() if new == "gate_up_proj" and n not in fused]
    raise InvalidRequest(
        [
            Mistake(
                message=message(
                    "fused_expert_targets",
                    "{model} holds {present} and {missing} of its experts in one matrix: target "
                    "both or neither",
                    model=architecture.name,
                    present=fused[0],
                    missing=", ".join(missing),
                ),
                path="adapter.target_modules",
                value=fused[0],
                near=tuple(missing),
            )
        ]
    )


def _adaptable(architecture: ModelArchitecture, *, vision: bool) -> tuple[LinearModule, ...]:
    return tuple(
        module
        for module in all_modules(architecture, vision=vision)
        if module.weight.kind in PLAIN_KINDS
    )


def unknown_names(
    architecture: ModelArchitecture, names: Sequence[str], *, vision: bool
) -> list[Mistake]:
    """One mistake for each name that no module of the model bears."""
    modules = _adaptable(architecture, vision=vision)
    experts = names_of_experts(architecture, names)
    return [
        _unknown_target(architecture, name, modules)
        for name in names
        if name not in experts and not any(module.matches(name) for module in modules)
    ]


def refused_targets(architecture: ModelArchitecture) -> tuple[str, ...]:
    """Leaves of linears that PEFT refuses, or on which its LoRA fails."""
    failing = {weight.leaf for _, weight, _ in architecture.weights() if not weight.takes_lora}
    return (*NOT_ON_MAMBA.get(architecture.model_type, ()), *sorted(failing))


def mistakes_of_targets(architecture: ModelArchitecture, names: Sequence[str]) -> list[Mistake]:
    """One mistake for each name that PEFT refuses on this model, or on which its LoRA fails."""
    refused = refused_targets(architecture)
    near = tuple(leaf for leaf in _leaves(linear_modules(architecture)) if leaf not in refused)
    return [
        Mistake(
            message=_why_refused(architecture, name),
            path="adapter.target_modules",
            value=name,
            near=near,
            how_to_fix=message(
                "name_the_others", "name the other modules: {leaves}", leaves=", ".join(near)
            ),
        )
        for name in names
        if leaf_of(name) in refused
    ]


def _why_refused(architecture: ModelArchitecture, name: str) -> Message:
    if leaf_of(name) in NOT_ON_MAMBA.get(architecture.model_type, ()):
        return message(
            "target_refused_on_mamba",
            "PEFT does not adapt {name!r} of a Mamba model such as {model}: name the other "
            "modules instead",
            name=name,
            model=architecture.name,
        )
    return message(
        "target_breaks_lora",
        "PEFT's LoRA fails on {name!r} of {model}, which does not map one tensor to one like a "
        "plain linear",
        name=name,
        model=architecture.name,
    )


def _leaves(modules: Sequence[LinearModule]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(module.leaf for module in modules))


def _offered(architecture: ModelArchitecture, modules: Sequence[LinearModule]) -> tuple[str, ...]:
    """Names that would be accepted, experts' included."""
    known = EXPERT_NAMES.get(architecture.model_type, {}) if has_experts(architecture) else {}
    return tuple(dict.fromkeys((*_leaves(modules), *known)))


def _unknown_target(
    architecture: ModelArchitecture, name: str, modules: Sequence[LinearModule]
) -> Mistake:
    leaves = _offered(architecture, modules)
    template = sentence("{model} has no module {name!r} for an adapter; it offers {leaves}")
    code = "unknown_target_module"
    if _is_expert(architecture, name):
        code = "target_is_expert"
        template = sentence(
            "{name!r} names routed experts or their router, which transformers 5 holds as stacked "
            "parameters that PEFT does not reach by this name; {model} offers {leaves}"
        )
    return Mistake(
        message=message(
            code, template, name=name, model=architecture.name, leaves=", ".join(leaves)
        ),
        path="adapter.target_modules",
        value=name,
        near=tuple(difflib.get_close_matches(name, leaves, n=3)),
        how_to_fix=_how_to_fix(leaves),
    )


def _is_expert(architecture: ModelArchitecture, name: str) -> bool:
    kinds = (WeightKind.EXPERTS, WeightKind.ROUTER)
    return any(
        module.weight.kind in kinds and (module.matches(name) or f".{name}." in module.path)
        for module in all_modules(architecture, vision=False)
    )


def no_default(architecture: ModelArchitecture) -> Mistake:
    """The mistake of naming nothing where PEFT has no default."""
    leaves = _offered(architecture, linear_modules(architecture))
    return Mistake(
        message=message(
            "target_modules_needed",
            "PEFT has no default target_modules for model type {model_type!r}: state them",
            model_type=architecture.model_type,
        ),
        path="adapter.target_modules",
        near=leaves[:3],
        how_to_fix=_how_to_fix(leaves),
    )


def _how_to_fix(leaves: Sequence[str]) -> Message:
    return message(
        "use_known_target",
        "write all-linear, or one or more of: {leaves}",
        leaves=", ".join(leaves),
    )
