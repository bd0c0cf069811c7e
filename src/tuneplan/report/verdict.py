"""What an estimate comes to, in sentences: does it fit, how long, how much."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from typing import Final

from tuneplan.contract.answers import Cost, EstimateBody, Fit, FitOn
from tuneplan.contract.traced import TraceAnswer
from tuneplan.language import say
from tuneplan.report.dates import date_text
from tuneplan.report.labels import cards_text, method_label
from tuneplan.report.tables import UNKNOWN, money_range_text, time_range_text, value_text
from tuneplan.units import format_count, format_gib

VERDICT_STYLES: Final = {"fits": "green", "tight": "yellow", "does_not_fit": "red"}


def verdict_text(verdict: str) -> str:
    """The verdict as a word for people."""
    words = {"fits": say("fits"), "tight": say("tight"), "does_not_fit": say("does not fit")}
    return words.get(verdict, verdict)


def title(answer: EstimateBody | TraceAnswer) -> str:
    """Model, method and hardware on one line."""
    parts = [value_text(answer.job.get("model"))]
    method = answer.job.get("method")
    if isinstance(method, str):
        parts.append(method_label(method))
    if answer.hardware is not None:
        parts.append(
            say(
                "on {cards}",
                cards=cards_text(
                    answer.hardware.accelerator, answer.hardware.count, answer.hardware.nodes
                ),
            )
        )
    return ", ".join(parts)


def fit_sentence(fit: Fit) -> str:
    """Verdict, need and head-room of one card."""
    need = fit.capacity_bytes - fit.headroom_bytes
    figures = {
        "need": format_gib(need),
        "capacity": format_gib(fit.capacity_bytes),
        "room": format_gib(abs(fit.headroom_bytes)),
        "share": f"{abs(fit.headroom_bytes) / max(fit.capacity_bytes, 1):.0%}",
        "chance": percent_text(fit.probability_fits),
        "parts": say("allocated peak + unusable fragments + CUDA context"),
    }
    if fit.verdict == "fits":
        return say(
            "FITS. It needs {need} of the {capacity} of each card ({parts}): {room} ({share}) stay "
            "free.",
            **figures,
        )
    if fit.verdict != "tight":
        return say(
            "DOES NOT FIT. It needs {need} ({parts}), each card has {capacity}: {room} too much.",
            **figures,
        )
    if fit.probability_fits is not None and fit.probability_fits < 0.5:
        return say(
            "TIGHT, more likely not: it fits with {chance} probability. It needs {need} of the "
            "{capacity} of each card, give or take ({parts}).",
            **figures,
        )
    return say(
        "TIGHT. It needs {need} of the {capacity} of each card, give or take ({parts}): it fits "
        "with {chance} probability.",
        **figures,
    )


def needed_text(answer: EstimateBody) -> str | None:
    """What decides the fit, as the sum of its parts; None without a card or without the parts."""
    fit, memory = answer.fit, answer.memory
    reserved, device = memory.peak_reserved_bytes, memory.peak_device_bytes
    if fit is None or isinstance(fit, list) or reserved is None or device is None:
        return None
    need = fit.capacity_bytes - fit.headroom_bytes
    context = device.likely - reserved.likely
    return say(
        "{need} = {peak} allocated peak + {lost} unusable fragments + {context} CUDA context",
        need=format_gib(need),
        peak=format_gib(memory.peak_bytes.likely),
        lost=format_gib(max(0, need - memory.peak_bytes.likely - context)),
        context=format_gib(context),
    )


def smallest_sentence(rows: Sequence[FitOn], count: int = 1) -> str:
    """The smallest card of the table that holds the job, spread over ``count`` of them."""
    fitting = [row for row in rows if row.verdict == "fits"]
    if not fitting and count > 1:
        return say("NO {count} CARDS of one kind in the catalogue surely hold it.", count=count)
    if not fitting:
        return say("NO SINGLE CARD of the catalogue surely holds it.")
    smallest = min(fitting, key=lambda row: (row.capacity_bytes, row.accelerator))
    return say(
        "FITS on {count} of {all} cards; the smallest is {name} with {capacity}.",
        count=len(fitting),
        all=len(rows),
        name=smallest.accelerator,
        capacity=format_gib(smallest.capacity_bytes),
    )


def percent_text(fraction: float | None) -> str:
    """A probability as people say it: never a certainty."""
    if fraction is None:
        return UNKNOWN
    if fraction > 0.99:
        return say("over {share}", share="99%")
    if fraction < 0.01:
        return say("under {share}", share="1%")
    return f"{fraction:.0%}"


def run_sentences(answer: EstimateBody, as_of: str | None) -> Iterator[str]:
    """How long and how much, where that is known."""
    time = answer.time
    if time is not None and time.total_s is not None and time.steps is not None:
        yield say(
            "Takes {duration} for {steps} optimizer steps{samples}.",
            duration=time_range_text(time.total_s),
            steps=format_count(time.steps),
            samples=_samples(answer),
        )
    if answer.cost is not None:
        yield say(
            "Costs {cost} at {provider}{age}.",
            cost=money_range_text(answer.cost.total),
            provider=answer.cost.offer.provider,
            age=_age(answer.cost, as_of),
        )


def _samples(answer: EstimateBody) -> str:
    if answer.data is None or answer.data.num_samples is None:
        return ""
    epochs = (answer.job.get("training") or {}).get("num_train_epochs")
    count = format_count(answer.data.num_samples)
    if (answer.job.get("training") or {}).get("max_steps") or epochs is None:
        return say(" over {count} samples", count=count)
    if epochs == 1:
        return say(" (1 epoch of {count} samples)", count=count)
    return say(" ({epochs} epochs of {count} samples)", epochs=f"{epochs:g}", count=count)


def _age(cost: Cost, as_of: str | None) -> str:
    days = age_days(cost.offer.as_of, as_of)
    if days is None:
        return say(" (price of {date})", date=date_text(cost.offer.as_of))
    return say(" (price of {date}, {days} days old)", date=date_text(cost.offer.as_of), days=days)


def age_days(written: str, as_of: str | None) -> int | None:
    """Days from one day to another; None where one of them is no day."""
    try:
        return max(0, (date.fromisoformat(as_of or "") - date.fromisoformat(written)).days)
    except ValueError:
        return None


def ranges_sentence() -> str:
    """How a range is to be read."""
    return say(
        "Ranges read low – likely – high: P10 – P50 – P90 as far as known runs tell; "
        "docs/accuracy.md (tuneplan validate) says how often they held."
    )
