"""A watched run on a clock of its own: arrival, alerts once and in time, no false alarm."""

import math
import random
from collections.abc import Iterator

import pytest

from tuneplan.devices import DeviceSample
from tuneplan.spec.answer import Estimate
from tuneplan.spec.run_log import LogPoint, Metric
from tuneplan.watching.alerts import STOPPED_AFTER_GAPS
from tuneplan.watching.following import News
from tuneplan.watching.watcher import UNKNOWN_PAUSE_S, Expected, Look, Watcher

START_S = 1_800_000_000.0
LOOK_S = 10.0


def entry(step: int, total: int | None = None, **values: float) -> News:
    held = {Metric(name): value for name, value in values.items()}
    if total:
        held[Metric.TOTAL_STEPS] = float(total)
    return News(format="trainer", point=LogPoint(step=step, values=held), absolute_time=False)


def card(utilization: float, temperature: float = 60.0) -> DeviceSample:
    return DeviceSample(
        index=0,
        name="card",
        used_bytes=1,
        total_bytes=2,
        utilization_fraction=utilization,
        temperature_c=temperature,
        power_w=None,
    )


class Run:
    """A log that is written while it is watched, a look every ten seconds."""

    def __init__(self, expected: Expected | None = None) -> None:
        self.watcher = Watcher(expected or Expected(), began_s=START_S)
        self.now_s = START_S
        self.waiting: list[News] = []
        self.told: list[tuple[str, float]] = []
        self.facts: dict[str, object] = {}
        self.last: Look | None = None

    def look(self) -> Look:
        news, self.waiting = self.waiting, []
        look = self.watcher.look(news, now_s=self.now_s, **self.facts)
        self.told += [(alert.code, self.now_s) for alert in look.new_alerts]
        self.last = look
        return look

    def pass_time(self, seconds: float) -> None:
        until = self.now_s + seconds
        while (math.floor(self.now_s / LOOK_S) + 1) * LOOK_S <= until:
            self.now_s = (math.floor(self.now_s / LOOK_S) + 1) * LOOK_S
            self.look()
        self.now_s = until

    def log(self, step: int, total: int | None = None, **values: float) -> None:
        self.waiting.append(entry(step, total, **values))


def healthy(run: Run, *, seed: int, steps: int = 360, step_s: float = 10.0) -> Iterator[int]:
    """An hour: noisy steps, a falling noisy loss, an evaluation of two minutes every 60 steps."""
    random_ = random.Random(seed)  # noqa: S311 - noise
    for step in range(1, steps + 1):
        run.pass_time(step_s * random_.lognormvariate(0, 0.15))
        loss = 1.2 + 1.5 * math.exp(-step / 60) + random_.gauss(0, 0.08)
        run.log(step, steps, loss=loss)
        if step % 60 == 0:
            run.pass_time(120)
            run.log(step, steps, eval_loss=1.3 + 1.4 * math.exp(-step / 60))
        yield step


def planned(low: float, likely: float, high: float, **facts: object) -> Expected:
    return Expected(step_s=Estimate(low=low, likely=likely, high=high), **facts)


@pytest.mark.parametrize("seed", range(20))
def test_an_hour_of_a_healthy_run_raises_no_alarm(seed: int) -> None:
    run = Run(planned(7, 9, 12, pause_s=130.0) if seed % 2 else None)
    run.facts = {"devices": (card(0.97),), "free_bytes": 10**12}
    for _ in healthy(run, seed=seed):
        pass
    run.pass_time(600)
    assert run.told == []
    assert run.last is not None
    assert run.last.finished


def test_the_arrival_is_known_early_and_its_range_holds() -> None:
    """The plan is 30 % off in both; from a tenth of the run on, the pauses in it.

    Looks of one run are alike, so the range is judged over ten runs.
    """
    held: list[bool] = []
    for seed in range(10):
        run = Run(planned(5, 7, 10, pause_per_step_s=1.4))
        looks: list[tuple[int, float, Estimate]] = []
        for step in healthy(run, seed=seed):
            look = run.look()
            if look.eta_s is not None and 36 <= step < 340 and step % 12 == 0:
                looks.append((step, run.now_s, look.eta_s))
        left = [(run.now_s - at_s, eta) for _, at_s, eta in looks]
        errors = [abs(eta.likely / seconds - 1) for seconds, eta in left]
        assert max(errors) < 0.25
        assert sum(errors[len(errors) // 2 :]) / (len(errors) / 2) < 0.12
        held += [eta.low <= seconds <= eta.high for seconds, eta in left]
    assert 0.7 <= sum(held) / len(held) <= 0.97


def test_a_log_that_stops_growing_is_told_once_within_the_promised_delay() -> None:
    run = Run()
    for step in range(1, 31):
        run.pass_time(10)
        run.log(step, 100, loss=1.0)
    stopped_s = run.now_s
    run.pass_time(3600)
    assert [code for code, _ in run.told] == ["stopped"]
    promised_s = STOPPED_AFTER_GAPS * 10 + UNKNOWN_PAUSE_S + 2 * LOOK_S
    assert run.told[0][1] - stopped_s <= promised_s


def test_a_run_that_stops_twice_is_told_twice() -> None:
    run = Run()
    for step in range(1, 21):
        run.pass_time(10)
        run.log(step, 100, loss=1.0)
    run.pass_time(1800)
    for step in range(21, 41):
        run.log(step, 100, loss=1.0)
        run.pass_time(10)
    run.pass_time(7200)
    assert [code for code, _ in run.told] == ["stopped", "stopped"]


def test_a_killed_process_is_told_at_the_next_look() -> None:
    run = Run()
    run.facts = {"alive": True}
    for step in range(1, 11):
        run.pass_time(10)
        run.log(step, 100, loss=1.0)
    run.facts = {"alive": False}
    killed_s = run.now_s
    run.pass_time(600)
    assert [code for code, _ in run.told] == ["stopped"]
    assert run.told[0][1] - killed_s <= LOOK_S


def test_cards_that_idle_in_a_long_gap_are_a_stall() -> None:
    """Entries come every five minutes; the cards fall idle soon after one."""
    run = Run()
    run.facts = {"devices": (card(0.95),)}
    for step in range(10, 60, 10):
        run.pass_time(300)
        run.log(step, 1000, loss=1.0)
    run.pass_time(20)
    run.facts = {"devices": (card(0.0),)}
    idle_s = run.now_s
    run.pass_time(3600)
    codes = dict(reversed(run.told))
    assert [code for code, _ in run.told].count("stalled") == 1
    assert codes["stalled"] - idle_s <= 300 + 120 + 2 * LOOK_S


def test_a_loss_that_is_no_number_is_told_at_the_next_look() -> None:
    run = Run()
    for step in range(1, 11):
        run.pass_time(10)
        run.log(step, 100, loss=1.0)
    run.log(11, 100, loss=math.nan)
    at_s = run.now_s
    run.pass_time(300)
    assert run.told[0][0] == "diverging"
    assert run.told[0][1] - at_s <= LOOK_S
    assert [code for code, _ in run.told].count("diverging") == 1


def test_a_loss_that_leaves_its_band_is_told_once_after_five_entries() -> None:
    run = Run()
    random_ = random.Random(3)  # noqa: S311 - noise
    for step in range(1, 101):
        run.pass_time(10)
        run.log(step, 400, loss=1.0 + random_.gauss(0, 0.05))
    left = 100
    for step in range(101, 160):
        run.pass_time(10)
        run.log(step, 400, loss=1.0 + 0.1 * (step - left) + random_.gauss(0, 0.05))
    diverging = [at_s for code, at_s in run.told if code == "diverging"]
    assert len(diverging) == 1
    # Out of the band (0.1 and four deviations of 0.05) after three steps, five entries later told.
    assert diverging[0] - (START_S + 1000) <= (3 + 5 + 2) * 10 + LOOK_S


def test_a_slow_run_is_told_once_and_a_run_at_the_edge_is_not_told_again_and_again() -> None:
    run = Run(planned(8, 10, 12))
    random_ = random.Random(5)  # noqa: S311 - noise
    for step in range(1, 200):
        run.pass_time(12.2 * random_.lognormvariate(0, 0.02))
        run.log(step, 1000, loss=1.0)
    assert [code for code, _ in run.told] == ["slow"]


def test_an_evaluation_that_gets_worse_twice_says_what_stopping_saves() -> None:
    run = Run(planned(9, 10, 11))
    for step, loss in ((100, 1.5), (200, 1.2), (300, 1.3), (400, 1.4)):
        run.pass_time(1000)
        run.log(step, 1000, loss=1.0)
        run.log(step, 1000, eval_loss=loss)
        look = run.look()
    (alert,) = look.alerts
    assert alert.code == "overfitting"
    # 600 steps of 10 s are left: 100 min.
    assert "100 min" in str(alert.message)


def test_a_disk_that_fills_before_the_end_is_told() -> None:
    run = Run(planned(9, 10, 11, checkpoint_bytes=20 * 10**9))
    free = 400 * 10**9
    for step in range(1, 200):
        run.pass_time(10)
        free -= 10**9
        run.facts = {"free_bytes": free}
        run.log(step, 10_000, loss=1.0)
    assert [code for code, _ in run.told] == ["disk"]


def test_a_disk_without_room_for_a_checkpoint_is_told_at_once() -> None:
    run = Run(planned(9, 10, 11, checkpoint_bytes=20 * 10**9))
    run.facts = {"free_bytes": 5 * 10**9}
    run.pass_time(10)
    assert [code for code, _ in run.told] == ["disk"]


def test_a_hot_card_is_told() -> None:
    run = Run()
    run.facts = {"devices": (card(1.0, 93.0),)}
    run.pass_time(200)
    assert [code for code, _ in run.told] == ["hot"]


def test_a_run_that_begins_again_keeps_its_pace_from_there() -> None:
    run = Run()
    for step in range(1, 51):
        run.pass_time(10)
        run.log(step, 100, loss=1.0)
    run.pass_time(30)
    for step in range(20, 60):
        run.pass_time(5)
        run.log(step, 100, loss=1.0)
    look = run.look()
    assert look.step == 59
    assert look.eta_s is not None
    assert look.eta_s.likely == pytest.approx(41 * 5, rel=0.1)


def test_the_cost_of_the_whole_run_moves_with_its_arrival() -> None:
    """Half of 100 steps of 10 s at 0.01 USD a second: 5 spent, 5 to come."""
    run = Run(planned(9, 10, 11, cost_per_s=0.01, currency="USD"))
    for step in range(1, 51):
        run.pass_time(10)
        run.log(step, 100, loss=1.0)
    look = run.look()
    assert look.cost == pytest.approx(5.0)
    assert look.final_cost is not None
    assert look.final_cost.likely == pytest.approx(10.0, rel=0.02)
    assert look.final_cost.low < look.final_cost.likely < look.final_cost.high
