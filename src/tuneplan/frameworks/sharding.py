"""Strategy and buckets: who holds what, as the launcher and its engine really set it."""

from __future__ import annotations

import difflib
from dataclasses import replace

from tuneplan.errors import NotSupported
from tuneplan.estimation.splitting import obstacle
from tuneplan.frameworks.context import Context, Head
from tuneplan.frameworks.degrees import refuse_expert_ranks, split_parallelism
from tuneplan.frameworks.ledger import Default, Ledger, by_rule
from tuneplan.frameworks.settings import Settings
from tuneplan.frameworks.stack import Stack
from tuneplan.language import message
from tuneplan.spec.parallelism import Offload, Parallelism, Strategy
from tuneplan.spec.recipe import Checkpointing, Method

# Megatron-LM core/distributed/distributed_data_parallel.py: max(40M, 1M x data ranks) parameters.
_MEGATRON_BUCKET_ELEMENTS = 40_000_000
_HF_AUTO = "transformers integrations/deepspeed.py: hidden^2, 10 x hidden"


def resolve_strategy(
    context: Context, default: Default[Strategy], on_one_card: Strategy, ledger: Ledger
) -> Strategy:
    """The strategy: stated, or of a measured row, or what the framework launches."""
    stated = context.stated.parallelism.strategy
    if stated is not None and stated != "auto":
        return _named(stated, context, ledger)
    measured = context.measured.strategy
    if measured is not None:
        if context.measured.shard_grad_op:
            ledger.notice(
                message(
                    "shard_grad_op",
                    "FSDP with SHARD_GRAD_OP is counted as ZeRO-2: weights stay whole on each rank",
                ),
                "parallelism.strategy",
            )
        return measured
    if context.world_size == 1:
        return on_one_card
    return ledger.assume("parallelism.strategy", default)


def _named(stated: str, context: Context, ledger: Ledger) -> Strategy:
    names = [strategy.value for strategy in Strategy]
    key = stated.strip().lower().replace("-", "").replace("_", "")
    by_key = {name.replace("_", ""): name for name in names}
    if key not in by_key:
        ledger.mistake(
            message("unknown_strategy", "{name!r} is not a strategy", name=stated),
            "parallelism.strategy",
            stated,
            near=difflib.get_close_matches(key, names, n=3, cutoff=0.3) or names[:4],
        )
        return Strategy.SINGLE
    strategy = Strategy(by_key[key])
    if strategy is Strategy.SINGLE and context.world_size > 1:
        ledger.mistake(
            message("single_on_many", "`single` cannot use {n} accelerators", n=context.world_size),
            "parallelism.strategy",
            stated,
            near=("ddp", "zero3", "fsdp"),
        )
    return strategy


def resolve_offload(context: Context, strategy: Strategy, ledger: Ledger) -> Offload:
    """What lives in host memory; only sharding engines can put it there."""
    stated = context.stated.parallelism.offload
    offloading = Offload.NONE
    if stated is not None:
        if stated not in [offload.value for offload in Offload]:
            ledger.mistake(
                message("unknown_offload", "{name!r} cannot be offloaded", name=stated),
                "parallelism.offload",
                stated,
                near=tuple(offload.value for offload in Offload),
            )
            return Offload.NONE
        offloading = Offload(stated)
    if offloading is not Offload.NONE and strategy in (
        Strategy.SINGLE,
        Strategy.DDP,
        Strategy.DEVICE_MAP,
    ):
        ledger.mistake(
            message("offload_needs_sharding", "{s} cannot offload to the host", s=strategy),
            "parallelism.offload",
            stated,
            near=("zero2", "zero3", "fsdp"),
            how_to_fix=message("offload_fix", "choose a sharding strategy as well"),
        )
    if stated is None and context.world_size > 1:
        reason = message("no_offload", "nothing is offloaded unless asked")
        ledger.assume("parallelism.offload", by_rule(offloading, reason, "deepspeed, accelerate"))
    return offloading


def resolve_parallelism(
    context: Context, settings: Settings, stack: Stack, ledger: Ledger
) -> Parallelism:
    """Degrees, buckets and thresholds of the engine that runs."""
    head = settings.head
    if head.strategy is Strategy.DEVICE_MAP and context.world_size > 1:
        return _spread_layers(context, settings, ledger)
    base = Parallelism(
        strategy=head.strategy,
        data=1 if head.strategy is Strategy.DEVICE_MAP else context.world_size,
        shard_group=_shard_group(context, head),
        offload=head.offload,
        keeps_gathered=head.fsdp and context.measured.shard_grad_op,
        activation_gather=head.fsdp
        and stack.gathers_for_checkpointing
        and settings.gradient_checkpointing is not Checkpointing.NONE,
    )
    if stack.gradient_buffer:
        bucket = _MEGATRON_BUCKET_ELEMENTS
        base = replace(
            base, reduces_in_place=True, reduce_bucket_elements=bucket,
            allgather_bucket_elements=bucket, overlap_communication=False,
        )  # fmt: skip
    elif head.deepspeed:
        base = _deepspeed(context, base, stack, ledger)
    if stack.splitting is None or not context.degrees:
        return base
    layout = context.stated.facts.get("parallelism", "")
    split = split_parallelism(base, context.degrees, stack.splitting, layout, ledger)
    refuse_expert_ranks(split, ledger)
    return split


def _spread_layers(context: Context, settings: Settings, ledger: Ledger) -> Parallelism:
    """Layers over the cards of one process: an equal number on each.

    Raises:
        NotSupported: For models and methods that have no formula so, and for several nodes.
    """
    layout = Parallelism(strategy=Strategy.DEVICE_MAP, pipeline=context.world_size)
    problem = obstacle(context.architecture, layout)
    if context.num_nodes > 1:
        problem = message("device_map_nodes", "device_map spreads layers inside one node only")
    elif settings.method is Method.FREEZE:
        problem = message("device_map_freeze", "freeze has no formula under device_map yet")
    if problem is not None:
        raise NotSupported(problem, path="parallelism.strategy", value="device_map")
    reason = message("device_map_even", "accelerate balances the layers over the cards")
    source = "accelerate utils/modeling.py get_balanced_memory, infer_auto_device_map"
    ledger.assume("behaviour.device_map", by_rule("even", reason, source))
    return layout


def _shard_group(context: Context, head: Head) -> int | None:
    if head.strategy is not Strategy.HSDP or context.num_nodes < 1:
        return None
    return max(1, context.world_size // context.num_nodes)


def _deepspeed(context: Context, base: Parallelism, stack: Stack, ledger: Ledger) -> Parallelism:
    """DeepSpeed's buckets: as stated, else HF's "auto" for ZeRO-3, DeepSpeed's own below it."""
    fact = context.software.fact
    hidden = context.architecture.hidden_size
    stated = context.stated.parallelism
    zero3 = base.strategy is Strategy.ZERO3
    bucket = fact("deepspeed", "bucket_elements")
    if stack.reduce_bucket_elements is not None:
        reduce_default, source = stack.reduce_bucket_elements, "the framework's own JSON"
    elif zero3:
        reduce_default, source = hidden * hidden, _HF_AUTO
    else:
        reduce_default, source = int(bucket.value), bucket.citation
    reason = message("bucket", "no JSON is stated, so the usual one is taken")
    reduce_bucket = ledger.take(
        "parallelism.reduce_bucket_elements",
        stated.reduce_bucket_elements,
        by_rule(reduce_default, reason, source),
    )
    overlap_row = fact("deepspeed", "overlap_zero3" if zero3 else "overlap")
    overlap_default = stack.overlap_communication
    if overlap_default is None:
        overlap_default = overlap_row.value == "true"
    overlap = ledger.take(
        "parallelism.overlap_communication",
        stated.overlap_communication,
        by_rule(overlap_default, reason, overlap_row.citation),
    )
    gather_default = (
        reduce_default if stack.reduce_bucket_elements is not None else int(bucket.value)
    )
    persistent = 10 * hidden if zero3 else int(fact("deepspeed", "persistence_threshold").value)
    return Parallelism(
        strategy=base.strategy,
        data=base.data,
        offload=base.offload,
        reduce_bucket_elements=reduce_bucket,
        allgather_bucket_elements=_stated_or(stated.allgather_bucket_elements, gather_default),
        overlap_communication=overlap,
        max_live_parameters=_stated_or(
            stated.max_live_parameters, int(fact("deepspeed", "max_live_parameters").value)
        ),
        persistence_threshold=_stated_or(stated.persistence_threshold, persistent),
        activation_gather=zero3 and base.activation_gather,
    )


def _stated_or(stated: int | None, default: int) -> int:
    return default if stated is None else stated
