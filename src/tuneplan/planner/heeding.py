"""What the reader of an estimate should heed: limits not kept, data cut, memory given away."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from tuneplan.economics.billing import Cost
from tuneplan.economics.money import convert
from tuneplan.estimation.batches import sample_lengths
from tuneplan.estimation.persistent import held_weights
from tuneplan.estimation.roles import with_expert_targets
from tuneplan.language import message
from tuneplan.planner.evaluating import MemoryAnswer
from tuneplan.planner.resolving import Resolved
from tuneplan.planner.sources import Sources
from tuneplan.spec.answer import Estimate, Notice
from tuneplan.spec.blocks import Attention
from tuneplan.spec.recipe import DType
from tuneplan.spec.weights import WeightKind
from tuneplan.units import format_duration, format_gib

_FEW_BITS: Final = re.compile(
    r"[-_](gptq|awq|aqlm|hqq|fp8|int[48]|bnb[-_]4bit|[48]bits?)(?![a-z0-9])"
)
_WORTH_SAYING: Final = 0.01  # of the samples, or of the card


def what_to_heed(
    resolved: Resolved,
    sources: Sources,
    memory: MemoryAnswer,
    total_s: Estimate | None,
    cost: Cost | None,
) -> Iterator[Notice]:
    """Every notice that needs the finished answer."""
    yield from _cut(resolved)
    yield from _beyond_positions(resolved)
    yield from _unquantized_experts(resolved)
    yield from _wide_base(resolved)
    yield from _stored_in_few_bits(resolved)
    yield from _limits(resolved, sources, memory, total_s, cost)


def once(notices: Iterable[Notice]) -> tuple[Notice, ...]:
    """Without repetitions, the first of each kept."""
    seen: dict[str, Notice] = {}
    for notice in notices:
        seen.setdefault(str(notice.message), notice)
    return tuple(seen.values())


def _cut(resolved: Resolved) -> Iterator[Notice]:
    """Samples that ``max_length`` cuts, where they are single sequences; packed ones too.

    Source: trl 1.16 ``data_utils.py``: ``_pack_bfd`` truncates to a row, ``_pack_wrapped`` does
    not.
    """
    statistics, recipe = resolved.dataset.statistics, resolved.recipe
    if statistics is None or recipe.sequences_per_sample != 1:
        return
    lengths = sample_lengths(statistics)
    longer = float(np.mean(lengths > recipe.max_length))
    if longer < _WORTH_SAYING:
        return
    lost = float(np.maximum(lengths - recipe.max_length, 0).sum() / lengths.sum())
    figures = {"share": longer, "length": recipe.max_length, "lost": lost}
    if recipe.packing:
        text = message(
            "samples_cut_packed",
            "{share:.0%} of the samples are longer than a packed row of {length} tokens and are "
            "cut there: {lost:.0%} of all tokens are not trained on, unless the framework joins "
            "all samples first and then cuts the rows (TRL: packing_strategy: wrapped)",
            **figures,
        )
    else:
        text = message(
            "samples_cut",
            "{share:.0%} of the samples are longer than {length} tokens and are cut there: "
            "{lost:.0%} of all tokens are not trained on",
            **figures,
        )
    yield Notice(message=text, path="training.max_length")


def _beyond_positions(resolved: Resolved) -> Iterator[Notice]:
    """Sequences longer than the model was made for; without positions (ALiBi) there is no end."""
    model, longest = resolved.model, resolved.batch.worst_length
    positions = model.max_position_embeddings
    if longest <= positions:
        return
    mixers = [group.layer.mixer for group in model.groups]
    if any(weight.shape[0] in (positions, positions + 2) for weight in model.embeddings):
        text = message(
            "beyond_learned_positions",
            "sequences of {longest:,.0f} tokens: the model has embeddings for {positions:,} "
            "positions only, and training stops with an error at the first one beyond",
            longest=longest,
            positions=positions,
        )
    elif any(isinstance(mixer, Attention) and mixer.rotary for mixer in mixers):
        text = message(
            "beyond_positions",
            "sequences of {longest:,.0f} tokens: the model was made for {positions:,} positions; "
            "beyond them it needs its rotary embeddings stretched (rope_scaling), which changes "
            "neither memory nor time",
            longest=longest,
            positions=positions,
        )
    else:
        return
    yield Notice(message=text, path="training.max_length")


def _unquantized_experts(resolved: Resolved) -> Iterator[Notice]:
    recipe = with_expert_targets(resolved.model, resolved.recipe)
    if recipe.quantization is None:
        return
    size = sum(
        held.weight.num_parameters * held.count * held.role.dtype.num_bytes
        for held in held_weights(resolved.model, recipe)
        if held.weight.kind is WeightKind.EXPERTS and not held.role.quantized
    )
    if size:
        text = message(
            "experts_not_quantized",
            "the experts are single parameters of three dimensions, which are not quantised: they "
            "take {size}",
            size=format_gib(size),
        )
        yield Notice(message=text, path="method")


def _wide_base(resolved: Resolved) -> Iterator[Notice]:
    """A frozen base in 32 bits that nobody asked for."""
    recipe = resolved.recipe
    stated = resolved.job.recipe.training.dtype is not None
    if stated or recipe.adapter is None or recipe.quantization is not None:
        return
    if recipe.frozen_dtype is DType.FLOAT32:
        size = resolved.model.total_parameters * DType.FLOAT32.num_bytes
        text = message(
            "base_in_float32",
            "the frozen base is loaded in float32, as the framework does where nothing is said: "
            "{size}, half of it with training.dtype: bfloat16",
            size=format_gib(size),
        )
        yield Notice(message=text, path="training.dtype")


def _stored_in_few_bits(resolved: Resolved) -> Iterator[Notice]:
    """A base whose name says that it is quantised, under a method that counts it in full."""
    match = _FEW_BITS.search(resolved.job.model.lower())
    if match is None or resolved.recipe.quantization is not None:
        return
    text = message(
        "stored_in_few_bits",
        "the name says that the weights are stored with {how}, but method {method} counts them in "
        "{dtype}; an adapter on such a base is method: gptq-lora or qlora",
        how=match[1],
        method=resolved.recipe.method.value,
        dtype=resolved.recipe.frozen_dtype.value,
    )
    yield Notice(message=text, path="model")


def _limits(
    resolved: Resolved,
    sources: Sources,
    memory: MemoryAnswer,
    total_s: Estimate | None,
    cost: Cost | None,
) -> Iterator[Notice]:
    limits = resolved.job.limits
    if limits.deadline_s is not None and total_s is not None and total_s.likely > limits.deadline_s:
        text = message(
            "deadline_missed",
            "the likely {duration} is longer than the deadline of {deadline}",
            duration=format_duration(total_s.likely),
            deadline=format_duration(limits.deadline_s),
        )
        yield Notice(message=text, path="limits.deadline")
    if limits.budget is not None and cost is not None:
        rates = sources.offers.rates
        likely = convert(cost.total.likely, limits.budget_currency, rates)
        if likely is not None and likely.amount > limits.budget:
            text = message(
                "budget_missed",
                "the likely cost of {cost:.2f} {currency} is more than the budget of {budget} "
                "{currency}",
                cost=float(likely.amount),
                budget=str(limits.budget),
                currency=limits.budget_currency,
            )
            yield Notice(message=text, path="limits.budget")
    fit = memory.fit
    if limits.headroom_stated and fit is not None:
        free = 1 - fit.needed_bytes.likely / fit.capacity_bytes
        if 0 <= free < limits.headroom_fraction:
            text = message(
                "headroom_missed",
                "fits with {free:.0%} of the card free, less than the head-room of {share:.0%}",
                free=free,
                share=limits.headroom_fraction,
            )
            yield Notice(message=text, path="limits.headroom")
