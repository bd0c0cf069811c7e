"""ms-swift's arguments against its own argument classes, without loading a model."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

from answering import answer
from swift.arguments import PretrainArguments, RLHFArguments, SftArguments
from transformers import HfArgumentParser

CLASSES = {"sft": SftArguments, "pt": PretrainArguments, "rlhf": RLHFArguments}


def accept() -> None:
    """Parse the line of ``swift``; arguments that are left over are an error."""
    text = Path("train.sh").read_text(encoding="utf-8").replace("\\\n", " ")
    line = next(one for one in text.splitlines() if one.startswith("swift "))
    _, command, *arguments = shlex.split(line)
    parser = HfArgumentParser(CLASSES[command])
    _, left = parser.parse_known_args(arguments)
    if left:
        raise ValueError(f"arguments that swift {command} does not know: {left}")


def files(folder: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """The script of a folder."""
    if (folder / "train.sh").exists():
        yield "train.sh", accept


answer(("ms-swift", "transformers", "torch"), files)
