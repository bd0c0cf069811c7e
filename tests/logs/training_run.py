"""Twelve steps of a small Llama, logged to the state, to TensorBoard and to a CSV in a folder.

``python training_run.py FOLDER``; the times of a clock of its own go to ``clock.json``. In a
process of its own, since tracing changes PyTorch for the whole process.
"""

import csv
import json
import sys
import time
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

STEPS = 12


class Clock(TrainerCallback):
    """When each entry was logged."""

    def __init__(self) -> None:
        self.at_s: list[float] = []

    def on_log(self, *_: object, logs: dict[str, float] | None = None, **__: object) -> None:
        if logs and "loss" in logs:
            self.at_s.append(time.perf_counter())


def train(folder: Path) -> None:
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
    (folder / "clock.json").write_text(json.dumps(clock.at_s))


if __name__ == "__main__":
    train(Path(sys.argv[1]))
