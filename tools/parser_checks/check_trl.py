"""TRL's files against ``TrlParser`` with the configuration class of each trainer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from answering import answer, as_one_of_many, as_with_a_card

as_one_of_many()
from trl import (  # noqa: E402 - the environment comes first
    DatasetMixtureConfig,
    DPOConfig,
    KTOConfig,
    ModelConfig,
    RewardConfig,
    ScriptArguments,
    SFTConfig,
    TrlParser,
)

as_with_a_card()
TRAINERS = {
    "train.yaml": SFTConfig,
    "dpo.yaml": DPOConfig,
    "kto.yaml": KTOConfig,
    "reward.yaml": RewardConfig,
}


def accept(name: str) -> None:
    """Parse as ``trl sft --config`` does; a key that no class has is an error."""
    parser = TrlParser((ScriptArguments, TRAINERS[name], ModelConfig, DatasetMixtureConfig))
    parser.parse_args_and_config(["--config", name])


def files(folder: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """The configuration of a folder."""
    for name in TRAINERS:
        if (folder / name).exists():
            yield name, partial(accept, name)


answer(("trl", "transformers", "peft", "accelerate", "torch"), files)
