"""Real small trainings on this CPU, watched by the real command while they run.

``python bench/watch_live.py [--steps N]``: a healthy run (how far off its arrival was, over time),
a run that is stopped in its tracks, one whose loss diverges, one that is killed, and hours of a
healthy log on a clock of their own. Each alert has to come once, within the delay that
docs/how-to/watch.md promises. Takes about eight minutes; needs the extras pilot and logs.
"""

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
INTERVAL_S = 1.0
PAUSE_S = 300.0  # that a run without a plan may be silent, beside three usual gaps
TRAIN = """
import sys
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments
folder, steps, wild = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(1)
torch.manual_seed(7)

class Wild(TrainerCallback):
    def on_step_begin(self, args, state, control, optimizer=None, **_):
        if wild and state.global_step >= wild:
            for group in optimizer.param_groups:
                group["lr"] = 3.0

model = LlamaForCausalLM(LlamaConfig(
    vocab_size=4096, hidden_size=256, intermediate_size=512, num_hidden_layers=4,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512,
))
generator = torch.Generator().manual_seed(3)
rows = []
for _ in range(256):
    start = torch.randint(0, 64, (1,), generator=generator)
    ids = ((start + torch.arange(128) * 7) % 4096).tolist()
    rows.append({"input_ids": ids, "labels": ids})
Trainer(
    model=model,
    args=TrainingArguments(
        output_dir=folder, logging_dir=folder, max_steps=steps, per_device_train_batch_size=8,
        logging_steps=1, save_strategy="no", report_to=["tensorboard"], use_cpu=True,
        disable_tqdm=True, learning_rate=3e-4, lr_scheduler_type="constant",
    ) if "logging_dir" in TrainingArguments.__dataclass_fields__ else TrainingArguments(
        output_dir=folder, max_steps=steps, per_device_train_batch_size=8,
        logging_steps=1, save_strategy="no", report_to=["tensorboard"], use_cpu=True,
        disable_tqdm=True, learning_rate=3e-4, lr_scheduler_type="constant",
    ),
    train_dataset=rows,
    callbacks=[Wild()],
).train()
"""


@dataclass
class Watched:
    """A training, and the command that watches it."""

    folder: Path
    steps: int
    wild: int = 0
    looks: list[dict] = field(default_factory=list)

    def start(self) -> None:
        """Begin both."""
        self.folder.mkdir()
        self.told = self.folder.parent / f"{self.folder.name}-told.txt"
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "TENSORBOARD_LOGGING_DIR": str(self.folder),
        }
        with (self.folder.parent / f"{self.folder.name}.log").open("wb") as said:
            self.training = subprocess.Popen(
                [
                    *(sys.executable, "-c", TRAIN, str(self.folder)),
                    *(str(self.steps), str(self.wild)),
                ],
                stdout=said,
                stderr=said,
                env=environment,
                start_new_session=True,
            )
        alert = f"sh -c 'echo $TUNEPLAN_ALERT_CODE >> {self.told}'"
        self.watch = subprocess.Popen(
            [
                *(sys.executable, "-m", "tuneplan", "watch", str(self.folder), "--json"),
                *("--interval", str(INTERVAL_S), "--pid", str(self.training.pid)),
                *("--alert-command", alert),
            ],
            stdout=(self.folder.parent / f"{self.folder.name}.jsonl").open("wb"),
            env=environment,
            start_new_session=True,
        )

    def read(self) -> dict | None:
        """The newest look."""
        lines = (self.folder.parent / f"{self.folder.name}.jsonl").read_text().splitlines()
        self.looks = [json.loads(line) for line in lines if line.endswith("}")]
        return self.looks[-1] if self.looks else None

    def until_step(self, step: int) -> float:
        """Wait until a step is seen; when."""
        while True:
            look = self.read()
            if look and (look["step"] or 0) >= step:
                return time.time()
            assert self.training.poll() is None or step >= self.steps, self.said()
            time.sleep(0.2)

    def until_alert(self, code: str, *, limit_s: float) -> float:
        """Wait until an alert stands; when it was told."""
        began = time.time()
        while time.time() - began < limit_s:
            for look in (self.read() and self.looks) or []:
                if any(alert["code"] == code for alert in look["alerts"]):
                    return datetime.fromisoformat(look["time"]).timestamp()
            time.sleep(0.2)
        raise AssertionError(f"no alert {code} in {limit_s} s: {self.looks[-1:]}")

    def alerts(self) -> list[str]:
        """Codes that the alert command was run for."""
        return self.told.read_text().split() if self.told.exists() else []

    def said(self) -> str:
        """What the training printed."""
        return (self.folder.parent / f"{self.folder.name}.log").read_text()[-2000:]

    def end(self) -> None:
        """End both."""
        for process in (self.training, self.watch):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def healthy(folder: Path, steps: int) -> None:
    """How far off the arrival was, by tenths of the run."""
    run = Watched(folder, steps)
    run.start()
    try:
        done = run.until_step(steps)
        run.training.wait()
        run.watch.wait(timeout=60)
        run.read()
    finally:
        run.end()
    print(f"1. A healthy run of {steps} steps:")
    inside = total = 0
    for tenth in range(1, 10):
        for look in run.looks:
            if look["step"] and look["step"] >= steps * tenth / 10 and look["eta_s"]:
                left = done - datetime.fromisoformat(look["time"]).timestamp()
                eta = look["eta_s"]
                covered = eta["low"] <= left <= eta["high"]
                inside, total = inside + covered, total + 1
                print(
                    f"   {tenth * 10:3} %  left {left:6.1f} s   said {eta['likely']:6.1f} s "
                    f"({eta['low']:.1f} to {eta['high']:.1f})  off by "
                    f"{eta['likely'] / left - 1:+.1%}  {'inside' if covered else 'outside'}"
                )
                break
    finished = bool(run.looks and run.looks[-1]["finished"])
    print(f"   {inside} of {total} inside the range; alerts: {run.alerts()}; finished: {finished}")
    assert run.alerts() == []
    assert finished


def report(name: str, run: Watched, code: str, delay_s: float, promised_s: float) -> None:
    """One line; each alert once, in time."""
    told = run.alerts()
    print(f"{name}: told after {delay_s:.1f} s (promised {promised_s:.1f} s); alerts: {told}")
    assert told == [code]
    assert delay_s <= promised_s


def gap_s(run: Watched) -> float:
    """The usual time of a step, as the watch sees it."""
    return next(look["step_s"] for look in reversed(run.looks) if look["step_s"])


def killed(folder: Path) -> None:
    """A process that is killed is told at the next look."""
    run = Watched(folder, 1000)
    run.start()
    try:
        run.until_step(15)
        run.training.send_signal(signal.SIGKILL)
        at = time.time()
        run.training.wait()
        told = run.until_alert("stopped", limit_s=30)
        time.sleep(10)
        report("4. A killed run", run, "stopped", told - at, 3 * INTERVAL_S + 2)
    finally:
        run.end()


def diverging(folder: Path) -> None:
    """A loss that leaves its band is told after five entries."""
    wild = 40
    run = Watched(folder, 1000, wild=wild)
    run.start()
    try:
        told = run.until_alert("diverging", limit_s=600)
        at = next(
            datetime.fromisoformat(look["time"]).timestamp()
            for look in run.looks
            if (look["step"] or 0) > wild
        )
        step = next(look["step"] for look in run.looks if look["alerts"])
        time.sleep(15)
        run.read()
        print(f"3. The rate of learning is 3 from step {wild} on; told at step {step}")
        # One entry to leave the band, five to be sure, each a step, and what two looks take.
        report("   A diverging loss", run, "diverging", told - at, 7 * gap_s(run) + 4 * INTERVAL_S)
    finally:
        run.end()


def hours(count: int) -> None:
    """Healthy logs of an hour each, on a clock of their own, as the tests have them."""
    path = ROOT / "tests" / "watching" / "test_watcher.py"
    spec = importlib.util.spec_from_file_location("simulated", path)
    simulated = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(simulated)
    told = []
    for seed in range(100, 100 + count):
        run = simulated.Run()
        run.facts = {"devices": (simulated.card(0.97),), "free_bytes": 10**12}
        for _ in simulated.healthy(run, seed=seed):
            pass
        told += run.told
    print(f"5. {count} healthy logs of an hour: {len(told)} alarms")
    assert told == []


def main() -> int:
    """All of it; the stopped run waits beside the others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=150)
    steps = parser.parse_args().steps
    with tempfile.TemporaryDirectory(prefix="tuneplan-watch-") as name:
        folder = Path(name)
        stalled = Watched(folder / "stalled", 1000)
        stalled.start()
        try:
            stalled.until_step(30)
            gap = gap_s(stalled)
            stalled.training.send_signal(signal.SIGSTOP)
            at = time.time()
            healthy(folder / "healthy", steps)
            diverging(folder / "diverging")
            killed(folder / "killed")
            limit = 3 * gap + PAUSE_S + 2 * INTERVAL_S + 5
            told = stalled.until_alert("stopped", limit_s=limit)
            time.sleep(20)
            report("2. A run that stands still", stalled, "stopped", told - at, limit)
        finally:
            stalled.training.send_signal(signal.SIGCONT)
            stalled.end()
    hours(50)
    return 0


if __name__ == "__main__":
    sys.exit(main())
