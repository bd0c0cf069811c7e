"""Which frameworks a job can be written for, and by which kinds of launch file it is started."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final, Protocol, cast

from tuneplan.errors import UnknownName
from tuneplan.formats.data_writing import Rows
from tuneplan.formats.foreign import ExportedFile
from tuneplan.formats.launching import Launch, Program
from tuneplan.language import message
from tuneplan.spec.stated import StatedJob

# Name to module; each is imported when it is needed.
WRITERS: Final[dict[str, str]] = {
    "trl": "tuneplan.formats.trl_writing",
    "llamafactory": "tuneplan.formats.llamafactory_writing",
    "axolotl": "tuneplan.formats.axolotl_writing",
    "torchtune": "tuneplan.formats.torchtune_writing",
    "ms-swift": "tuneplan.formats.ms_swift_writing",
}
ENGINES: Final[
    dict[str, str]
] = {  # the part of a job that an engine runs, for a program of one's own
    "deepspeed": "tuneplan.formats.deepspeed_writing",
    "accelerate": "tuneplan.formats.accelerate_writing",
}
LAUNCHERS: Final[dict[str, tuple[str, str]]] = {
    "torchrun": ("tuneplan.formats.launch_local", "torchrun_files"),
    "accelerate": ("tuneplan.formats.launch_local", "accelerate_files"),
    "deepspeed": ("tuneplan.formats.launch_local", "deepspeed_files"),
    "slurm": ("tuneplan.formats.launch_slurm", "slurm_files"),
    "skypilot": ("tuneplan.formats.launch_cloud", "skypilot_files"),
    "dstack": ("tuneplan.formats.launch_cloud", "dstack_files"),
    "kubernetes": ("tuneplan.formats.launch_kubernetes", "job_files"),
    "pytorchjob": ("tuneplan.formats.launch_kubernetes", "pytorchjob_files"),
}


class Writer(Protocol):
    """A framework that a job can be written for."""

    NAME: str

    def dump(self, job: StatedJob, *, rows: Rows = ...) -> tuple[ExportedFile, ...]:
        """The files of the job.

        Raises:
            CannotExport: With every setting that the framework cannot say.
        """

    def program(self, job: StatedJob) -> Program:
        """What is started."""


def writer_named(name: str) -> Writer:
    """A writer by name.

    Raises:
        UnknownName: There is none; with those there are.
    """
    if name not in WRITERS:
        raise UnknownName(
            message("cannot_write_for", "no files are written for {name!r}", name=name),
            name=name,
            near=(*WRITERS, *ENGINES),
        )
    return cast("Writer", import_module(WRITERS[name]))


def engine_files(name: str, job: StatedJob) -> tuple[ExportedFile, ...]:
    """The file of an engine, ``deepspeed`` or ``accelerate``.

    Raises:
        CannotExport: With every setting that the engine cannot say.
    """
    module: Any = import_module(ENGINES[name])
    return cast("tuple[ExportedFile, ...]", module.dump(job))


def launch_files(kind: str, launch: Launch) -> tuple[ExportedFile, ...]:
    """Launch files of a kind.

    Raises:
        UnknownName: There is no such kind.
        CannotExport: The kind has no way to say what the job runs on.
    """
    if kind not in LAUNCHERS:
        raise UnknownName(
            message("unknown_launcher", "{kind!r} is no kind of launch file", kind=kind),
            name=kind,
            near=tuple(LAUNCHERS),
        )
    module, function = LAUNCHERS[kind]
    return cast("tuple[ExportedFile, ...]", getattr(import_module(module), function)(launch))
