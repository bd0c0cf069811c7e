"""A model, a job, a tokenizer and data that are too small to matter, for pilots."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
JOB = {
    "model": "config.json",
    "framework": "transformers",
    "method": "full",
    "data": {"num_samples": 100, "mean_tokens": 20, "quantiles": {"p50": 16, "max": 64}},
    "training": {
        "max_length": 64,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "precision": "fp32",
        "dtype": "float32",
        "max_steps": 50,
        "gradient_checkpointing": False,
    },
}
WORDS = [f"w{number}" for number in range(120)]


def write_data(folder: Path, *, rows: int = 60) -> dict[str, Any]:
    """Write questions with answers and a tokenizer of whole words; the job's ``data`` section."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    ids = {"<unk>": 0, **{word: number + 1 for number, word in enumerate(WORDS)}}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))  # noqa: S106
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    generator = random.Random(7)  # noqa: S311 - text
    with (folder / "data.jsonl").open("w") as file:
        for _ in range(rows):
            words = [generator.choice(WORDS) for _ in range(generator.randint(6, 60))]
            row = {"prompt": " ".join(words[:4]), "completion": " ".join(words[4:])}
            file.write(json.dumps(row) + "\n")
    return {"path": "data.jsonl", "tokenizer": "tokenizer.json"}
