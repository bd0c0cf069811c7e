"""What every check prints: the versions of the packages, and one result a file."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

Check = Callable[[Path], Iterator[tuple[str, Callable[[], object]]]]


def answer(packages: tuple[str, ...], check: Check) -> None:
    """Run a check over the folders on standard input; print its results as the last line.

    A check gives the files of a folder, each with what raises where the file is not accepted.
    """
    results: list[dict[str, Any]] = []
    for folder in json.load(sys.stdin):
        os.chdir(folder)
        for name, accept in check(Path(folder)):
            error = None
            try:
                accept()
            except (Exception, SystemExit) as problem:  # whatever the parser raises is its answer
                error = f"{type(problem).__name__}: {problem}"[:600]
            results.append({"folder": folder, "file": name, "error": error})
    versions = {name: version(name) for name in packages}
    print("\n" + json.dumps({"versions": versions, "results": results}))


def as_one_of_many() -> None:
    """Say to libraries what torchrun says: this is one process of a distributed job."""
    os.environ |= {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29587",
    }


def as_with_a_card() -> None:
    """Let transformers believe that there is a GPU with bf16; nothing is computed."""
    import torch
    import transformers.training_args as arguments

    for name in ("is_torch_bf16_gpu_available", "is_torch_tf32_available"):
        if hasattr(arguments, name):
            setattr(arguments, name, lambda: True)
    torch.backends.cuda.matmul.allow_tf32 = False
    if importlib.util.find_spec("deepspeed"):
        # A kernel for CPUs, compiled when first asked for. The package has PyTorch under this name.
        communication: Any = importlib.import_module("deepspeed.comm.torch")
        communication.build_shm_op = lambda: None


__all__ = ["answer", "as_one_of_many", "as_with_a_card"]
