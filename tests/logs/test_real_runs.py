"""Logs that real training leaves behind: transformers' Trainer on this machine's CPU."""

import csv
import time
from pathlib import Path
from statistics import median

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

from tuneplan.logs.measuring import measure
from tuneplan.logs.registry import find_logs, read_log
from tuneplan.spec.run_log import Metric

STEPS = 12


class Clock(TrainerCallback):
    """When each entry was logged, by a clock of its own."""

    def __init__(self) -> None:
        self.at_s: list[float] = []

    def on_log(self, *_: object, logs: dict[str, float] | None = None, **__: object) -> None:
        if logs and "loss" in logs:
            self.at_s.append(time.perf_counter())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Clock]:
    """Twelve steps of a small Llama, logged to the state, to TensorBoard and to a CSV."""
    folder = tmp_path_factory.mktemp("run")
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=128,
    )
    texts = [[number % 256] * 64 for number in range(64)]
    rows = [{"input_ids": text, "labels": text} for text in texts]
    clock = Clock()
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=STEPS,
        per_device_train_batch_size=4,
        logging_steps=1,
        save_steps=6,
        report_to=["tensorboard"],
        use_cpu=True,
        include_num_input_tokens_seen=True,
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=LlamaForCausalLM(config), args=arguments, train_dataset=rows, callbacks=[clock]
    )
    trainer.train()
    trainer.save_state()
    history = [entry for entry in trainer.state.log_history if "loss" in entry]
    with (folder / "history.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["step", "loss", "grad_norm", "epoch"], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(history)
    return folder, clock


def test_every_log_of_the_run_is_found_and_agrees(run: tuple[Path, Clock]) -> None:
    folder, _ = run
    logs = {log.format: log for log in map(read_log, find_logs([folder]))}
    assert set(logs) == {"trainer_state", "tensorboard", "csv"}
    losses = {
        name: {point.step: loss for point, loss in log.series(Metric.LOSS)}
        for name, log in logs.items()
    }
    assert set(losses["csv"]) == set(range(1, STEPS + 1))
    assert losses["trainer_state"] == losses["csv"]
    assert losses["tensorboard"] == pytest.approx(losses["csv"], rel=1e-6)


def test_the_step_time_is_that_of_the_runs_own_clock(run: tuple[Path, Clock]) -> None:
    folder, clock = run
    measured, _ = measure([read_log(path) for path in find_logs([folder])], num_accelerators=1)
    gaps = [after - before for before, after in zip(clock.at_s, clock.at_s[1:], strict=False)]
    steady = gaps[2:]  # the first tenth of eleven gaps, rounded up, is warm-up
    assert measured.step_s == pytest.approx(median(steady), rel=0.1)
    assert measured.num_steps == STEPS
    assert measured.train_s is not None
    # 4 rows of 64 tokens a step.
    assert measured.tokens_per_s_per_accelerator == pytest.approx(256 / measured.step_s, rel=0.01)
    assert measured.measured_at is not None
