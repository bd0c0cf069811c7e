"""What ranges come from: options that ``estimate`` and ``plan`` share."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tuneplan.cli import completing
from tuneplan.cli.options import refuse_blank
from tuneplan.language import say

if TYPE_CHECKING:
    from tuneplan.planner.sources import Sources
    from tuneplan.spec.stated import StatedJob

Command = TypeVar("Command", bound=Callable[..., Any])


def calibration_options(function: Command) -> Command:
    """``--calibration`` and ``--store``."""
    with_store = click.option(
        "--store", metavar="FILE", shell_complete=completing.files, help="Of your own measurements."
    )(function)
    return click.option(
        "--calibration",
        type=click.Choice(["none", "shipped", "own"]),
        default="shipped",
        show_default=True,
        help="Ranges from physics and stated priors alone, from published runs, or from these and "
        "your own measurements (tuneplan store list).",
    )(with_store)


def calibrated_sources(
    stated: StatedJob, calibration: str, store: str | None, *, today: date
) -> Sources:
    """The catalogues of a job, with what its ranges come from.

    Measurements of the store that cannot be used are told on standard error.
    """
    from tuneplan.planner.sources import sources_for

    refuse_blank("--store", store)
    if calibration != "own" and store is not None:
        raise click.UsageError(say("--store is read with --calibration own"))
    sources = sources_for(stated, today=today, calibrated=calibration != "none")
    if calibration != "own":
        return sources
    from tuneplan.planner.recalibrating import with_own

    sources, unused = with_own(sources, store)
    for notice in unused:
        click.echo(str(notice.message), err=True)
    return sources
