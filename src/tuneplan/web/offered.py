"""What a job is offered as, by the names of ``tuneplan export``."""

from __future__ import annotations

from typing import Final

FRAMEWORKS: Final = (
    ("trl", "TRL"),
    ("llamafactory", "LLaMA-Factory"),
    ("axolotl", "Axolotl"),
    ("torchtune", "torchtune"),
    ("ms-swift", "ms-swift"),
    ("deepspeed", "DeepSpeed"),
    ("accelerate", "Accelerate"),
)
LAUNCHERS: Final = (
    *("torchrun", "accelerate", "deepspeed", "slurm", "skypilot", "dstack", "kubernetes"),
    "pytorchjob",
)
