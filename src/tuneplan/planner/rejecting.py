"""Why candidates were rejected: how many for each reason, an example, the nearest that would do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuneplan.frozen import dataclass
from tuneplan.language import Message, message
from tuneplan.planner.candidates import Table
from tuneplan.planner.offering import REASONS
from tuneplan.planner.pricing import Prices
from tuneplan.spec.stated import StatedJob
from tuneplan.units import format_duration

_NO_OFFER = message("no_offer_known", "no price of this accelerator is known")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """Candidates that one reason took away.

    Attributes:
        example: Settings of one of them.
        nearest_feasible: Settings of the feasible candidate that differs in the fewest keys.
    """

    code: str
    message: Message
    count: int
    example: Mapping[str, Any] | None
    nearest_feasible: Mapping[str, Any] | None


def rejections(
    job: StatedJob, table: Table, prices: Prices, feasible: NDArray[np.bool_]
) -> tuple[Rejection, ...]:
    """Every reason with its count, most frequent first; each candidate counts once."""
    left = ~feasible
    found: list[Rejection] = []
    for code, mask, text in _reasons(job, table, prices):
        rows = np.flatnonzero(left & mask)
        left &= ~mask
        if len(rows):
            found.append(
                Rejection(
                    code=code,
                    message=text,
                    count=len(rows),
                    example=table.settings(int(rows[len(rows) // 2])),
                    nearest_feasible=_nearest(table, int(rows[len(rows) // 2]), feasible),
                )
            )
    found += [
        Rejection(code=one.code, message=one.message, count=one.count, example=one.example,
                  nearest_feasible=None)
        for one in table.refusals
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda one: (-one.count, one.code)))


def _reasons(
    job: StatedJob, table: Table, prices: Prices
) -> list[tuple[str, NDArray[np.bool_], Message]]:
    limits = job.limits
    capacity = np.array([float(chip.capacity_bytes) for chip in table.space.accelerators])
    room = capacity[table.chip] if len(table) else np.empty(0)
    reasons: list[tuple[str, NDArray[np.bool_], Message]] = [
        (
            "does_not_fit",
            table.needed_bytes > room,
            message("does_not_fit", "needs more memory than the card has"),
        ),
        (
            "headroom",
            table.needed_bytes > room * (1 - limits.headroom_fraction),
            message(
                "headroom_rejected",
                "fits, but leaves less than {share:.0%} of the card free",
                share=limits.headroom_fraction,
            ),
        ),
    ]
    for code in sorted(set(prices.why_none.values())):
        mask = np.zeros(len(table), dtype=bool)
        for (chip, shape), reason in prices.why_none.items():
            if reason == code:
                mask |= (table.chip == chip) & (table.shape == shape)
        reasons.append((code, mask, REASONS.get(code, _NO_OFFER)))
    if limits.deadline_s is not None:
        text = message(
            "deadline_rejected", "takes longer than the deadline of {deadline}",
            deadline=format_duration(limits.deadline_s),
        )  # fmt: skip
        reasons.append(("deadline", ~(table.total_s <= limits.deadline_s), text))
    if limits.budget is not None:
        text = message(
            "budget_rejected", "costs more than the budget of {budget} {currency}",
            budget=str(limits.budget), currency=limits.budget_currency,
        )  # fmt: skip
        reasons.append(("budget", ~(prices.cost <= float(limits.budget)), text))
    return reasons


def _nearest(table: Table, row: int, feasible: NDArray[np.bool_]) -> Mapping[str, Any] | None:
    """The feasible candidate that differs in the fewest settings from a rejected one."""
    rows = np.flatnonzero(feasible)
    if not len(rows):
        return None
    columns = (table.variant, table.chip, table.shape, table.micro_batch)
    different = sum((column[rows] != column[row]).astype(int) for column in columns)
    close = np.abs(np.log2(table.micro_batch[rows] / table.micro_batch[row]))
    best = np.lexsort((table.total_s[rows], close, np.asarray(different)))[0]
    return table.settings(int(rows[best]))
