"""Objective, method and strategy: decided first, because every other default hangs on them."""

from __future__ import annotations

import difflib
from typing import Final

from tuneplan.errors import NotSupported
from tuneplan.frameworks.context import Context, Head
from tuneplan.frameworks.framework import Framework
from tuneplan.frameworks.ledger import Ledger, by_rule
from tuneplan.frameworks.sharding import resolve_offload, resolve_strategy
from tuneplan.language import message
from tuneplan.spec.recipe import Method, Objective

_LATER_OBJECTIVES: Final = ("grpo", "ppo", "rloo", "online-dpo", "gkd")
_METHOD_WORDS: Final = {
    "full-finetuning": "full",
    "full_parameter": "full",
    "sft": "full",
    "q-lora": "qlora",
    "gptq_lora": "gptq-lora",
    "gptq": "gptq-lora",
}
_LATER_METHODS: Final = (
    "adapter",
    "ia3",
    "prefix",
    "prompt",
    "vera",
    "loha",
    "lokr",
    "boft",
    "oft",
    "adalora",
    "galore",
    "lisa",
    "longlora",
    "other",
)


def resolve_head(context: Context, framework: Framework, ledger: Ledger) -> Head:
    """The four decisions, with what cannot be had refused by name.

    Raises:
        NotSupported: For objectives and methods without formulas.
    """
    objective = _objective(context, ledger)
    method = _method(context, framework, ledger)
    strategy = resolve_strategy(
        context, framework.strategy(context, method), framework.on_one_card, ledger
    )
    return Head(
        objective=objective,
        method=method,
        strategy=strategy,
        offload=resolve_offload(context, strategy, ledger),
    )


def _objective(context: Context, ledger: Ledger) -> Objective:
    stated = context.stated.objective
    if stated is None:
        reason = message("objective_sft", "supervised fine-tuning is what most jobs are")
        return ledger.assume("objective", by_rule(Objective.SFT, reason, "docs/reference/job.md"))
    key = stated.strip().lower()
    names = [objective.value for objective in Objective]
    if key in names:
        return Objective(key)
    if key in _LATER_OBJECTIVES:
        raise NotSupported(
            message(
                "objective_not_supported",
                "objective {name!r} is part of a later release; supported now: {known}",
                name=stated,
                known=", ".join(names),
            ),
            path="objective",
            value=stated,
        )
    ledger.mistake(
        message("unknown_objective", "{name!r} is not an objective", name=stated),
        "objective",
        stated,
        near=difflib.get_close_matches(key, names, n=3, cutoff=0.3) or names[:3],
    )
    return Objective.SFT


def _method(context: Context, framework: Framework, ledger: Ledger) -> Method:
    stated = context.stated.method
    dora = context.stated.adapter.use_dora
    if stated is None:
        method = ledger.assume("method", framework.method(context))
    else:
        method = _named_method(stated, ledger)
    if method is Method.QLORA and context.stated.quantization.type == "gptq":
        method = Method.GPTQ_LORA
    return Method.DORA if method is Method.LORA and dora else method


def _named_method(stated: str, ledger: Ledger) -> Method:
    key = stated.strip().lower()
    key = _METHOD_WORDS.get(key, key)
    names = [method.value for method in Method]
    if key in names:
        return Method(key)
    if key in _LATER_METHODS:
        raise NotSupported(
            message(
                "method_not_supported",
                "method {name!r} has no formula yet; supported now: {known}",
                name=stated,
                known=", ".join(names),
            ),
            path="method",
            value=stated,
        )
    ledger.mistake(
        message("unknown_method", "{name!r} is not a method", name=stated),
        "method",
        stated,
        near=difflib.get_close_matches(key, names, n=3, cutoff=0.3) or names[:3],
    )
    return Method.LORA
