"""DeepSpeed's JSON against its own configuration classes, accelerate's YAML against its reader."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from accelerate.commands.config.config_args import load_config_from_file
from answering import answer
from deepspeed.runtime.zero.config import DeepSpeedZeroConfig, get_zero_config
from transformers.integrations.deepspeed import HfDeepSpeedConfig

SECTIONS = {  # deepspeed runtime/constants.py and config.py
    *("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"),
    *("gradient_clipping", "zero_allow_untested_optimizer", "bf16", "fp16", "zero_optimization"),
}


def accept_deepspeed() -> None:
    """Every key known; ZeRO's section valid once ``auto`` is filled as Trainer fills it."""
    tree = json.loads(Path("ds_config.json").read_text(encoding="utf-8"))
    unknown = set(tree) - SECTIONS
    if unknown:
        raise ValueError(f"sections that DeepSpeed does not know: {sorted(unknown)}")
    HfDeepSpeedConfig(tree)
    zero: dict[str, Any] = {k: v for k, v in tree["zero_optimization"].items() if v != "auto"}
    found = get_zero_config({"zero_optimization": zero})
    strange = set(zero) - {
        name
        for field, info in DeepSpeedZeroConfig.model_fields.items()
        for name in (field, info.alias or field)
    }
    if strange or int(found.stage) != zero["stage"]:
        raise ValueError(f"keys of zero_optimization that DeepSpeed does not know: {strange}")


def accept_accelerate() -> None:
    """Read as ``accelerate launch --config_file`` does; unknown keys are an error there."""
    load_config_from_file("accelerate.yaml")


def files(folder: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """The engines' files of a folder."""
    for name, accept in (
        ("ds_config.json", accept_deepspeed),
        ("accelerate.yaml", accept_accelerate),
    ):
        if (folder / name).exists():
            yield name, accept


answer(("deepspeed", "accelerate", "transformers"), files)
