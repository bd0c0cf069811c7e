"""How a training program is started: the values every kind of launch file is written from."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

from tuneplan.frozen import dataclass
from tuneplan.spec.stated import StatedJob

PORT: Final = 29500


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A training program, without a launcher.

    Attributes:
        module: Python module that trains (``python -m``); None where ``starter`` knows it by name.
        arguments: Behind it.
        starter: Takes torchrun's options; ``tune run`` does, too.
        alone: One process without torchrun's options (single-device recipes of torchtune).
    """

    module: str | None
    arguments: tuple[str, ...]
    starter: tuple[str, ...] = ("torchrun",)
    alone: bool = False

    @property
    def tail(self) -> tuple[str, ...]:
        """What stands behind torchrun's options."""
        return ("-m", self.module, *self.arguments) if self.module else self.arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What a launch file starts, and on what.

    Attributes:
        accelerator: Catalogue name; None where the job names none.
        vendor: ``NVIDIA``, ``AMD``, ...
        files: Names and texts of the configuration.
        deadline_s: Longest duration, where the job has a limit.
    """

    program: Program
    job: StatedJob
    num_nodes: int = 1
    accelerators_per_node: int = 1
    accelerator: str | None = None
    vendor: str = "NVIDIA"
    files: tuple[tuple[str, str], ...] = ()
    deadline_s: float | None = None

    @property
    def name(self) -> str:
        """A name for the job that every scheduler takes: small letters, digits, hyphens."""
        plain = "".join(c if c.isalnum() else "-" for c in self.job.model.rsplit("/", 1)[-1])
        words = [word for word in plain.lower().split("-") if word]
        return "-".join(("tune", *words))[:40].strip("-")


def torchrun(launch: Launch, options: Sequence[str] = ()) -> str:
    """The line that starts the processes of one machine; ``options`` are shell words."""
    program = launch.program
    if program.alone:
        return folded([*program.starter, *options_of(program.tail)])
    words = [
        *program.starter,
        *options,
        f"--nproc_per_node {launch.accelerators_per_node}",
    ]
    return folded([*words, *options_of(program.tail)])


def options_of(words: Sequence[str]) -> list[str]:
    """Words quoted for a shell, each option with its values as one; all as one where short."""
    whole = " ".join(map(shlex.quote, words))
    if len(whole) <= 80:
        return [whole]
    found: list[str] = []
    for word in words:
        if found and not word.startswith("--"):
            found[-1] += " " + shlex.quote(word)
        else:
            found.append(shlex.quote(word))
    return found


def across_nodes(launch: Launch, *, rank: str, address: str) -> list[str]:
    """Torchrun's options for a machine of several; empty for one."""
    if launch.num_nodes == 1:
        return []
    return [
        f"--nnodes {launch.num_nodes}",
        f"--node_rank {rank}",
        f"--master_addr {address}",
        f"--master_port {PORT}",
    ]


def folded(words: Sequence[str]) -> str:
    """A command over several lines, one option each, where it is long."""
    line = " ".join(words)
    return line if len(line) <= 88 else " \\\n  ".join(words)


def script(*lines: str) -> str:
    """A bash script that stops at the first failure and runs beside its files."""
    return "\n".join(
        ("#!/usr/bin/env bash", "set -euo pipefail", 'cd "$(dirname "$0")"', "", *lines, "")
    )
