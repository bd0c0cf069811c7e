"""Somebody's own Trainer script with two lines more: a tiny real training."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from small_pilots import CONFIG, JOB
from tuneplan import pilot_callback
from tuneplan.spec.measurement import Measurement, Origin
from tuneplan.store.store import Store

pytestmark = pytest.mark.filterwarnings("ignore")  # libraries warn of their own


def collate(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    longest = max(len(row["input_ids"]) for row in rows)
    ids = torch.zeros((len(rows), longest), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for number, row in enumerate(rows):
        ids[number, : len(row["input_ids"])] = torch.tensor(row["input_ids"])
        mask[number, : len(row["input_ids"])] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


def trainer(folder: Path, *, steps: int) -> Trainer:
    """Rows of 30 and 10 tokens in turn, two a micro-batch, two micro-batches a step."""
    rows = [{"input_ids": [7] * (30 if number % 2 else 10)} for number in range(64)]
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    facts = {name: value for name, value in CONFIG.items() if name != "architectures"}
    model = LlamaForCausalLM(LlamaConfig(**facts))
    found = Trainer(model=model, args=arguments, train_dataset=rows, data_collator=collate)
    found._get_train_sampler = lambda *_, **__: torch.utils.data.SequentialSampler(rows)
    return found


def test_two_lines_measure_a_training_and_keep_it(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    job = {**JOB, "model": str(tmp_path / "config.json")}
    told: list[Measurement] = []
    training = trainer(tmp_path, steps=6)
    store = tmp_path / "store.sqlite3"
    training.add_callback(pilot_callback(job, store=store, told=told.append))
    training.train()
    with Store(store) as kept:
        (one,) = kept.find()
    assert told == [one.measurement]
    assert one.measurement.origin is Origin.PILOT
    assert one.measurement.job["model"] == str(tmp_path / "config.json")
    # Four rows a step, padded to 30 in pairs: 80 tokens of 120 positions.
    assert [(step.tokens, step.padded_tokens) for step in one.measurement.steps] == [(80, 120)] * 6
    assert one.measurement.step_s is not None
    assert one.measurement.peak.host_bytes is not None
    assert one.measurement.environment.software["transformers"]


def test_an_interrupted_training_keeps_nothing_and_one_may_end_when_it_is_steady(
    tmp_path: Path,
) -> None:
    told: list[Measurement] = []

    class Interrupting(Trainer):
        def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            if self.state.global_step == 2:
                raise KeyboardInterrupt
            return super().compute_loss(*args, **kwargs)

    training = trainer(tmp_path, steps=6)
    training.__class__ = Interrupting
    store = tmp_path / "store.sqlite3"
    training.add_callback(pilot_callback(store=store, told=told.append))
    with pytest.raises(KeyboardInterrupt):
        training.train()
    assert told == []
    assert not store.exists()

    training = trainer(tmp_path, steps=40)
    training.add_callback(pilot_callback(keep=False, stops=True, told=told.append))
    training.train()
    (one,) = told
    assert one.num_steps is not None
    assert 7 <= one.num_steps <= 40  # a busy machine may not be steady before the end
    assert not store.exists()
