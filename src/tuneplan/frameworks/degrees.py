"""Tensor, pipeline, context and expert degrees: what was stated, and who can run them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from tuneplan.errors import NotSupported
from tuneplan.estimation.splitting import obstacle
from tuneplan.frameworks.framework import Framework
from tuneplan.frameworks.ledger import Ledger, by_rule
from tuneplan.frameworks.measured import MeasuredFacts
from tuneplan.frameworks.stack import Splitting
from tuneplan.language import message
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.parallelism import Parallelism, Strategy
from tuneplan.spec.recipe import Method
from tuneplan.spec.stated import StatedRecipe

NAMES = ("tensor", "pipeline", "context", "expert")


def stated_degrees(
    stated: StatedRecipe, measured: MeasuredFacts, framework: Framework
) -> Mapping[str, int]:
    """The degrees above 1.

    Raises:
        NotSupported: Naming the first degree that the framework cannot run.
    """
    layout = stated.parallelism
    degrees = {
        "tensor": layout.tensor,
        "pipeline": layout.pipeline,
        "context": layout.context,
        "expert": layout.expert,
        **(measured.degrees or {}),
    }
    for name, degree in degrees.items():
        if degree > 1 and name not in framework.degrees:
            raise NotSupported(
                message(
                    "parallelism_not_supported",
                    "{framework} runs no {name} parallelism of {degree} that has a formula; use "
                    "data parallelism (ddp, zero1, zero2, zero3, fsdp, fsdp2), or a framework of "
                    "Megatron's kind: megatron, nemo",
                    framework=framework.name,
                    name=name,
                    degree=degree,
                ),
                path=f"parallelism.{name}",
                value=degree,
            )
    return {name: degree for name, degree in degrees.items() if degree > 1}


def data_ranks(degrees: Mapping[str, int], world_size: int, ledger: Ledger) -> int:
    """Ranks that see different samples; a mistake where the degrees do not divide the ranks."""
    each = 1
    for name in ("tensor", "pipeline", "context"):
        each *= degrees.get(name, 1)
    if world_size % each or world_size < each:
        ledger.mistake(
            message(
                "degrees_need_ranks",
                "tensor x pipeline x context = {each} does not divide {ranks} accelerators",
                each=each,
                ranks=world_size,
            ),
            "parallelism",
            each,
            how_to_fix=message(
                "degrees_need_ranks_fix",
                "choose degrees whose product divides the accelerators, or more of these",
            ),
        )
        return 1
    return world_size // each


def check_degrees(
    degrees: Mapping[str, int],
    architecture: ModelArchitecture,
    method: Method,
    ledger: Ledger,
) -> None:
    """Write down what keeps this model from being split so."""
    if not degrees:
        return
    problem = obstacle(architecture, _with_degrees(Parallelism(), degrees))
    if problem is None and (method.quantized or method in (Method.FREEZE, Method.DORA)):
        problem = message(
            "method_not_split",
            "method {method} has no formula under tensor, pipeline, context or expert parallelism",
            method=method,
        )
    if problem is not None:
        ledger.mistake(problem, f"parallelism.{next(iter(degrees))}", next(iter(degrees.values())))


def split_parallelism(
    base: Parallelism,
    degrees: Mapping[str, int],
    splitting: Splitting,
    layout: str,
    ledger: Ledger,
) -> Parallelism:
    """The layout with its degrees, and an assumption for each behaviour nobody stated.

    ``layout`` is the text of a measured row, which may name virtual stages and shared positions.
    """
    tensor, pipeline = degrees.get("tensor", 1), degrees.get("pipeline", 1)
    virtual = _virtual_stages(layout, pipeline, ledger)
    sequence = False
    if tensor > 1:
        stated = bool(re.search(r"\bsp\b", layout))
        sequence = stated or ledger.assume("behaviour.sequence_parallel", splitting.sequence)
    overlap_tensor = bool(
        tensor > 1 and ledger.assume("behaviour.overlap_tensor", splitting.overlap_tensor)
    )
    overlap_transfers = virtual > 1 and ledger.assume(
        "behaviour.overlap_transfers", splitting.overlap_transfers
    )
    gradients = splitting.overlap_gradients.value  # the same where a search has more data ranks
    if base.data * degrees.get("context", 1) > 1:
        gradients = ledger.assume("behaviour.overlap_gradients", splitting.overlap_gradients)
    return replace(
        _with_degrees(base, degrees),
        sequence=sequence,
        virtual_stages=virtual,
        overlap_tensor=overlap_tensor,
        overlap_transfers=overlap_transfers,
        overlap_communication=gradients,
        pads_vocabulary_to=splitting.pads_vocabulary_to,
    )


def _with_degrees(base: Parallelism, degrees: Mapping[str, int]) -> Parallelism:
    return replace(
        base,
        tensor=degrees.get("tensor", 1),
        pipeline=degrees.get("pipeline", 1),
        context=degrees.get("context", 1),
        expert=degrees.get("expert", 1),
    )


def _virtual_stages(layout: str, pipeline: int, ledger: Ledger) -> int:
    found = re.search(r"\bvp\s*=\s*(\d+)", layout)
    if found is not None:
        return int(found[1])
    if pipeline == 1:
        return 1
    reason = message("one_piece", "each stage holds one piece of the stack unless told otherwise")
    source = "Megatron-LM training/arguments.py num_layers_per_virtual_pipeline_stage None"
    return ledger.assume("behaviour.virtual_stages", by_rule(1, reason, source))


def refuse_expert_ranks(parallelism: Parallelism, ledger: Ledger) -> None:
    """Expert ranks are data (and context) ranks of their own."""
    ranks = parallelism.data * parallelism.context
    if ranks % parallelism.expert:
        ledger.mistake(
            message(
                "expert_ranks",
                "{expert} expert ranks do not divide {ranks} data and context ranks",
                expert=parallelism.expert,
                ranks=ranks,
            ),
            "parallelism.expert",
            parallelism.expert,
        )


def own_strategy(strategy: Strategy) -> bool:
    """Whether Megatron itself runs it: replicas, or optimizer states shared (``zero1``)."""
    return strategy in (Strategy.SINGLE, Strategy.DDP, Strategy.ZERO1)
