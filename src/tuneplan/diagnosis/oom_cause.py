"""What ran out: the card, its memory in pieces, the host, or the room that paging had."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

from tuneplan.diagnosis.oom_stage import Confidence
from tuneplan.diagnosis.oom_text import Failure, Source
from tuneplan.frozen import dataclass
from tuneplan.language import Message, message, sentence
from tuneplan.units import format_gib

# Fragmentation is the cause where the pieces that no request can use make up this share of the
# card: below it a batch that is a little longer fails whether or not they are joined.
TELLING_FRACTION: Final = 0.1
# Words that tell of a kill and not of who asked for it; those with "memory" or "oom" tell.
_KILLED: Final = re.compile(r"^(?!.*(?i:memory|oom)).*(?:-9\b|\b137\b|SIGKILL|Killed)", re.DOTALL)


class Cause(StrEnum):
    """Why memory ran out."""

    SHORTAGE = "shortage"
    FRAGMENTATION = "fragmentation"
    HOST = "host"
    PAGED_SPILL = "paged_spill"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCause:
    """A cause, how sure it is, and the sums that show it."""

    cause: Cause | None
    confidence: Confidence = Confidence.NONE
    evidence: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobNeeds:
    """What the estimate of the job says.

    Attributes:
        needed_bytes: On the card, likely, without fragmentation; ``needed_low_bytes`` at P10.
        capacity_bytes: Of the card.
        host_low_bytes: Main memory that the processes of one machine need at least.
        host_capacity_bytes: Main memory of one machine; None where unknown.
        paged_bytes: Optimizer states that are paged.
    """

    needed_bytes: float
    needed_low_bytes: float
    capacity_bytes: int | None
    host_low_bytes: float = 0.0
    host_capacity_bytes: int | None = None
    paged_bytes: float = 0.0


def unusable_bytes(failure: Failure) -> int | None:
    """Reserved and not allocated when the request failed.

    The allocator gives whole free segments back before it fails, so what is left lies in pieces of
    segments that are partly in use.
    """
    if failure.reserved is None or failure.allocated is None:
        return None
    return max(failure.reserved.size_bytes - failure.allocated.size_bytes, 0)


def cause_of(failure: Failure | None, needs: JobNeeds | None) -> FoundCause:
    """The cause, from the figures of the message first, else from the estimate."""
    if failure is None:
        return _of_job(needs)
    if failure.source is Source.HOST and _KILLED.search(failure.text):
        return FoundCause(
            cause=Cause.HOST,
            confidence=Confidence.MEDIUM,
            evidence=(
                message(
                    "killed_words",
                    "a process was killed (signal 9): the kernel does so when main memory runs "
                    "out, but a time limit or a person may have done it too; dmesg tells: {text}",
                    text=failure.text,
                ),
            ),
        )
    if failure.source is Source.HOST:
        return FoundCause(
            cause=Cause.HOST,
            confidence=Confidence.HIGH,
            evidence=(
                message("host_words", "the log names main memory: {text}", text=failure.text),
            ),
        )
    if failure.source is Source.PAGED:
        return FoundCause(
            cause=Cause.PAGED_SPILL,
            confidence=Confidence.HIGH,
            evidence=(
                message(
                    "paged_words",
                    "bitsandbytes asked for managed memory and got none: paged states fill the "
                    "card and the host",
                ),
            ),
        )
    return _of_figures(failure, needs)


def _of_figures(failure: Failure, needs: JobNeeds | None) -> FoundCause:
    pieces = unusable_bytes(failure)
    if pieces is None or failure.requested is None or failure.capacity is None:
        return FoundCause(
            cause=Cause.SHORTAGE,
            confidence=Confidence.MEDIUM,
            evidence=(
                message("no_figures", "the message gives no figures that tell of fragmentation"),
            ),
        )
    free = failure.free.size_bytes if failure.free else 0
    request, capacity = failure.requested.size_bytes, failure.capacity.size_bytes
    figures = {
        "request": format_gib(request),
        "pieces": format_gib(pieces),
        "free": format_gib(free),
    }
    if pieces + free < request:
        evidence = message(
            "less_than_asked",
            "{pieces} reserved and unused plus {free} free are less than the {request} asked for",
            **figures,
        )
        return FoundCause(cause=Cause.SHORTAGE, confidence=Confidence.HIGH, evidence=(evidence,))
    if pieces < TELLING_FRACTION * capacity:
        evidence = message(
            "small_pieces",
            "{pieces} were reserved and unused, enough for the {request} asked for but only "
            "{share:.0%} of the card: the next larger batch would fail all the same",
            share=pieces / capacity,
            **figures,
        )
        return FoundCause(cause=Cause.SHORTAGE, confidence=Confidence.MEDIUM, evidence=(evidence,))
    evidence = message(
        "unused_pieces",
        "{pieces} were reserved and unused ({share:.0%} of the card), and none of it held "
        "{request} in one piece",
        share=pieces / capacity,
        **figures,
    )
    if needs is not None and needs.needed_low_bytes > capacity:
        return _short_all_the_same(needs, capacity, evidence)
    return FoundCause(cause=Cause.FRAGMENTATION, confidence=Confidence.HIGH, evidence=(evidence,))


def _short_all_the_same(needs: JobNeeds, capacity: int, evidence: Message) -> FoundCause:
    more = message(
        "short_all_the_same",
        "yet the job needs {need} at least without any fragments, and the card has {capacity}",
        need=format_gib(needs.needed_low_bytes),
        capacity=format_gib(capacity),
    )
    return FoundCause(cause=Cause.SHORTAGE, confidence=Confidence.MEDIUM, evidence=(evidence, more))


def _of_job(needs: JobNeeds | None) -> FoundCause:
    """Without a message: what the estimate says does not fit."""
    if needs is None:
        return FoundCause(cause=None)
    capacity, host = needs.capacity_bytes, needs.host_capacity_bytes
    if capacity is not None and needs.needed_bytes > capacity:
        return _by_estimate(Cause.SHORTAGE, needs.needed_bytes, capacity)
    if host is not None and needs.host_low_bytes > host:
        return _by_estimate(Cause.HOST, needs.host_low_bytes, host)
    if (
        capacity is not None
        and needs.paged_bytes
        and (needs.needed_bytes + needs.paged_bytes > capacity)
    ):
        return _by_estimate(Cause.PAGED_SPILL, needs.needed_bytes + needs.paged_bytes, capacity)
    return FoundCause(cause=None)


def _by_estimate(cause: Cause, need: float, capacity: float) -> FoundCause:
    texts = {
        Cause.SHORTAGE: sentence("the estimate: the job needs {need} of the {capacity} of a card"),
        Cause.HOST: sentence(
            "the estimate: the processes of a machine need {need} of main memory at least, "
            "it has {capacity}"
        ),
        Cause.PAGED_SPILL: sentence(
            "the estimate: with its paged optimizer states the job needs {need} of "
            "the {capacity} of a card; what is over moves over the bus in every step"
        ),
    }
    evidence = message(
        f"estimate_{cause.value}",
        texts[cause],
        need=format_gib(need),
        capacity=format_gib(capacity),
    )
    return FoundCause(cause=cause, confidence=Confidence.LOW, evidence=(evidence,))
