"""A look at a run: as the line that ``watch --json`` writes, and for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from tuneplan.contract.answers import header
from tuneplan.contract.parts import MoneyRange, money_model, range_model
from tuneplan.contract.watched import WatchAlert, WatchAnswer, WatchDevice
from tuneplan.language import say
from tuneplan.report.page import Page
from tuneplan.report.tables import facts, heading, points, render
from tuneplan.spec.answer import Estimate
from tuneplan.spec.offer import Money
from tuneplan.units import format_duration, format_gib
from tuneplan.watching.watcher import Look

if TYPE_CHECKING:
    from rich.console import RenderableType


def watch_answer(look: Look, *, currency: str | None) -> WatchAnswer:
    """One look as the contract describes it."""
    new = {alert.code for alert in look.new_alerts}
    now = datetime.fromtimestamp(look.time_s, tz=UTC)
    return WatchAnswer(
        **header("watch", as_of=now.date().isoformat()),
        time=now.isoformat(timespec="seconds"),
        step=look.step,
        total_steps=look.total_steps,
        epoch=look.epoch,
        loss=look.loss,
        eval_loss=look.eval_loss,
        step_s=look.step_s,
        tokens_per_s=look.tokens_per_s,
        memory_bytes=look.memory_bytes,
        quiet_s=look.quiet_s,
        elapsed_s=look.elapsed_s,
        eta_s=range_model(look.eta_s) if look.eta_s else None,
        cost=_money(look.final_cost, currency) if look.final_cost and currency else None,
        finished=look.finished,
        missing=look.missing,
        devices=[
            WatchDevice(
                index=one.index,
                name=one.name,
                used_bytes=one.used_bytes,
                total_bytes=one.total_bytes,
                utilization_fraction=one.utilization_fraction,
                temperature_c=one.temperature_c,
                power_w=one.power_w,
            )
            for one in look.devices
        ],
        alerts=[
            WatchAlert(
                code=alert.code,
                since=datetime.fromtimestamp(alert.since_s, tz=UTC).isoformat(timespec="seconds"),
                message=str(alert.message),
                new=alert.code in new,
            )
            for alert in look.alerts
        ],
    )


def _money(amount: Estimate, currency: str) -> MoneyRange:
    def money(value: float) -> Money:
        return Money(amount=Decimal(repr(value)), currency=currency)

    low, likely, high = (money_model(money(v)) for v in (amount.low, amount.likely, amount.high))
    return MoneyRange(low=low, likely=likely, high=high)


def watch_text(answer: WatchAnswer, page: Page, *, name: str) -> str:
    """One look on a terminal."""
    return render(list(watch_blocks(answer, name=name)), page)


def watch_blocks(answer: WatchAnswer, *, name: str) -> Iterator[RenderableType]:
    """What a live view shows."""
    yield heading(say("Watching {name}", name=name))
    yield facts(list(_facts(answer)))
    if answer.alerts:
        yield heading(say("Alerts"))
        yield points([f"{alert.since[11:16]} {alert.message}" for alert in answer.alerts], mark="!")


def _facts(answer: WatchAnswer) -> Iterator[tuple[str, str]]:
    if answer.missing:
        yield say("Run"), say("not there now; waiting for it")
    yield say("Step"), _step(answer)
    if answer.loss is not None:
        yield say("Loss"), f"{answer.loss:.4g}"
    if answer.eval_loss is not None:
        yield say("Evaluation loss"), f"{answer.eval_loss:.4g}"
    if answer.step_s is not None:
        yield say("Time of a step"), say("{seconds} s", seconds=f"{answer.step_s:.3g}")
    if answer.tokens_per_s is not None:
        yield say("Tokens a second"), f"{answer.tokens_per_s:,.0f}"
    if answer.memory_bytes is not None:
        yield say("Memory"), format_gib(answer.memory_bytes)
    for one in answer.devices:
        yield f"{one.name} {one.index}", _device(one)
    yield say("Done in"), _eta(answer)
    if answer.cost is not None:
        low, likely, high = answer.cost.low, answer.cost.likely, answer.cost.high
        yield (
            say("Cost in all"),
            f"{likely.amount} {likely.currency} ({low.amount} - {high.amount})",
        )


def _step(answer: WatchAnswer) -> str:
    if answer.step is None:
        return say("none yet")
    if not answer.total_steps:
        return str(answer.step)
    share = f"{answer.step / answer.total_steps:.0%}"
    return say(
        "{step} of {total} ({share})", step=answer.step, total=answer.total_steps, share=share
    )


def _eta(answer: WatchAnswer) -> str:
    if answer.finished:
        return say("finished")
    if answer.eta_s is None:
        return say("not known yet")
    eta = answer.eta_s
    return say(
        "{likely} ({low} to {high})",
        likely=format_duration(eta.likely),
        low=format_duration(eta.low),
        high=format_duration(eta.high),
    )


def _device(one: WatchDevice) -> str:
    parts = [f"{format_gib(one.used_bytes)} / {format_gib(one.total_bytes)}"]
    if one.utilization_fraction is not None:
        parts.append(f"{one.utilization_fraction:.0%}")
    if one.temperature_c is not None:
        parts.append(f"{one.temperature_c:.0f} °C")
    if one.power_w is not None:
        parts.append(f"{one.power_w:.0f} W")
    return ", ".join(parts)
