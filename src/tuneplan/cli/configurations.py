"""Options of the commands that read somebody's own configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from tuneplan.cli import completing
from tuneplan.cli.options import JobRequest, gpu_keys, plain, refuse_blank
from tuneplan.language import sentence

if TYPE_CHECKING:
    from tuneplan.planner.importing import Configuration

Command = TypeVar("Command", bound=Callable[..., Any])

_MODEL: Final = sentence("Model, where the configuration names none or another is meant.")
_DATA: Final = sentence("Files or folders of samples; data sets that are only named are not here.")


def framework_option(function: Command) -> Command:
    """``--framework NAME==VERSION``."""
    return click.option(
        "--framework",
        metavar="NAME[==VERSION]",
        shell_complete=completing.frameworks,
        help="Whose defaults count, and of which version; the newest known where none is given.",
    )(function)


def configuration_options(function: Command) -> Command:
    """The CONFIG argument and what goes before it; ``flags_of`` turns the options into keys."""
    wrapped: Any = click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        shell_complete=completing.settings,
        help="Any key of the job file: --set training.packing=true.",
    )(function)
    wrapped = framework_option(wrapped)
    wrapped = click.option("--data", multiple=True, shell_complete=completing.files, help=_DATA)(
        wrapped
    )
    wrapped = click.option("--model", shell_complete=completing.models, help=_MODEL)(wrapped)
    wrapped = click.option(
        "--gpu",
        "--accelerator",
        "gpu",
        metavar="NAME[:COUNT]",
        shell_complete=completing.accelerators,
        help="Accelerator and how many a machine has: H100:8; H100:8x2 is two machines of 8.",
    )(wrapped)
    return click.argument("config", metavar="CONFIG", shell_complete=completing.files)(wrapped)  # type: ignore[no-any-return]


def flags_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Key paths of the job file and values, as the flags give them."""
    for name in ("gpu", "model", "data", "framework"):
        refuse_blank(f"--{name}", options[name])
    flags: dict[str, Any] = {}
    if options["model"] is not None:
        flags["model"] = plain(options["model"])
    if options["data"]:
        flags["data.path"] = plain(options["data"])
    if options["gpu"] is not None:
        flags |= gpu_keys(options["gpu"].strip())
    return flags


def configuration_of(job: JobRequest) -> Configuration:
    """The job file or foreign configuration with the flags laid over it, or the flags alone."""
    from tuneplan.contract.reading import load_job
    from tuneplan.planner.importing import Configuration, read_configuration

    flags = dict(job.overrides)
    if job.source is None:
        stated = load_job(None, overrides=flags, set_=job.settings)
        return Configuration(job=stated, imported=None, files=())
    framework = flags.pop("framework", None)
    return read_configuration(job.source, framework=framework, overrides=flags, set_=job.settings)
