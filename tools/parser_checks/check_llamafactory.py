"""LLaMA-Factory's files against its own ``get_train_args``, and their data sets."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path

from answering import answer, as_one_of_many, as_with_a_card

as_one_of_many()
as_with_a_card()
sys.modules.setdefault("torchaudio", types.ModuleType("torchaudio"))  # reads sound, which none has
import llamafactory.hparams.parser as parser  # noqa: E402 - the environment comes first
from llamafactory.data.parser import get_dataset_list  # noqa: E402

parser.is_torch_bf16_gpu_available = lambda: True
parser.check_version = lambda *_args, **_options: None  # packages for a GPU are not here


def accept() -> None:
    """Read as ``llamafactory-cli train train.yaml`` does; then the entries of the data."""
    sys.argv = ["llamafactory-cli", "train.yaml"]
    _model, data, *_others = parser.get_train_args()
    get_dataset_list(data.dataset, data.dataset_dir)


def files(folder: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """The configuration of a folder."""
    if (folder / "train.yaml").exists():
        yield "train.yaml", accept


answer(("llamafactory", "transformers", "peft", "accelerate", "torch"), files)
