"""What a diagnosis of lacking memory leaves open, and where job and log disagree."""

from __future__ import annotations

from collections.abc import Iterator

from tuneplan.diagnosis.oom_matches import is_a_pool_block
from tuneplan.diagnosis.oom_text import Failure, Log, Source
from tuneplan.formats.foreign import Fate
from tuneplan.language import message
from tuneplan.planner.importing import DATA_STATED, Configuration
from tuneplan.planner.oom_situation import Situation
from tuneplan.spec.answer import Notice
from tuneplan.units import format_gib

_NAMED = 6  # keys that are named in the warning
_LARGE_OUTSIDE = 0.15  # contexts, NCCL and libraries hold less of a card than this
_SAME_CARD = 0.05  # how far a message's capacity may be from the catalogue's


def on_configuration(configuration: Configuration) -> Iterator[Notice]:
    """What of a configuration is not in the diagnosis."""
    imported = configuration.imported
    left_out = imported.with_fate(Fate.NOT_CARRIED, Fate.NOT_UNDERSTOOD) if imported else ()
    keys = [key for key in left_out if key.why != DATA_STATED]
    if keys:
        text = message(
            "keys_left_out",
            "of the configuration {count} {count:~key is/keys are} not in this diagnosis "
            "({names}): `tuneplan check` says why",
            count=len(keys),
            names=", ".join([key.path for key in keys[:_NAMED]] + ["..."] * (len(keys) > _NAMED)),
        )
        yield Notice(message=text)


def on_log(log: Log) -> Iterator[Notice]:
    """What the log lacks, and what of it was read."""
    if not log.failures:
        text = message(
            "nothing_in_log",
            "the log has no message about memory: nothing in it shows what ran out",
        )
        yield Notice(message=text)
    if log.first_line > 1:
        text = message(
            "end_of_log",
            "the log is long: its end was read, from line {line} on",
            line=log.first_line,
        )
        yield Notice(message=text)
    failure = log.failure
    if failure is None:
        return
    yield from _on_figures(failure)
    if len(log.failures) > 1:
        text = message(
            "several_failures",
            "the log has {count} messages about memory; the one of line {line} is told of",
            count=len(log.failures),
            line=failure.line,
        )
        yield Notice(message=text)
    if is_a_pool_block(failure):
        text = message(
            "pool_block",
            "{size} is the block that PyTorch asks for to put several small tensors in: it tells "
            "of none of them",
            size=format_gib(failure.requested.size_bytes if failure.requested else 0),
        )
        yield Notice(message=text)
    if failure.others_bytes:
        text = message(
            "others_on_card",
            "other processes hold {size} of the same card",
            size=format_gib(failure.others_bytes),
        )
        yield Notice(message=text)


def _on_figures(failure: Failure) -> Iterator[Notice]:
    """What the figures of a message leave open, or say against each other."""
    if failure.capacity is None or failure.reserved is None:
        return
    capacity, reserved = failure.capacity.size_bytes, failure.reserved.size_bytes
    if reserved > capacity * (1 + _SAME_CARD):
        text = message(
            "figures_disagree",
            "the message's own figures contradict each other: {reserved} reserved on a card of "
            "{capacity}; nothing that rests on them is sure",
            reserved=format_gib(reserved),
            capacity=format_gib(capacity),
        )
        yield Notice(message=text)
    if failure.free is None or failure.process_bytes is not None or failure.others_bytes:
        return
    outside = capacity - failure.free.size_bytes - reserved
    if outside > _LARGE_OUTSIDE * capacity:
        text = message(
            "outside_pytorch",
            "{size} of the card are neither free nor PyTorch's of this process: another process, "
            "NCCL or a library holds them (nvidia-smi tells), so the job may not be too large",
            size=format_gib(outside),
        )
        yield Notice(message=text)


def on_job(at: Situation) -> Iterator[Notice]:
    """Where job and log disagree."""
    card, capacity = at.resolved.accelerator, at.capacity_bytes
    if (
        card is not None
        and capacity is not None
        and (abs(capacity / card.capacity_bytes - 1) > _SAME_CARD)
    ):
        text = message(
            "other_card",
            "the log's card has {size}, {name} has {stated}: the log's is taken",
            size=format_gib(capacity),
            name=card.name,
            stated=format_gib(card.capacity_bytes),
        )
        yield Notice(message=text, path="hardware.accelerator")
    if at.failure is None and at.fits_by_estimate:
        text = message(
            "fits_by_estimate",
            "by the estimate the job fits ({need} of {capacity}); the log of the run would show "
            "what ran out (--log FILE)",
            need=format_gib(at.needed_bytes.likely),
            capacity=format_gib(capacity or 0),
        )
        yield Notice(message=text)
    seen, estimated = at.seen_bytes, at.estimated_now
    if at.failure is not None and not at.is_known:
        text = message(
            "fits_but_failed",
            "by the estimate the job fits ({need} of {capacity}), yet it ran out: something in it "
            "differs from what is stated here, so what is enough is not known",
            need=format_gib(estimated.likely),
            capacity=format_gib(capacity or 0),
        )
        yield Notice(message=text)
    elif (
        seen is not None
        and at.failure is not None
        and at.failure.source is Source.ALLOCATOR
        and seen > estimated.high
    ):
        text = message(
            "more_than_estimated",
            "the run asked for {seen}, the estimate says {likely} ({high} at most likely): "
            "something in the job differs from what is stated here",
            seen=format_gib(seen),
            likely=format_gib(estimated.likely),
            high=format_gib(estimated.high),
        )
        yield Notice(message=text)
