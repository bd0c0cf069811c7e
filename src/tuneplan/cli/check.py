"""``tuneplan check``: somebody's own configuration, straight to an estimate."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from tuneplan.cli.answering import (
    NOTHING_FITS,
    all_option,
    anything_fits,
    ignore_option,
    ignored,
    require_fit_option,
    show,
    today,
)
from tuneplan.cli.commands import SpokenCommand
from tuneplan.cli.configurations import configuration_options, flags_of
from tuneplan.cli.options import answer_options


@click.command("check", cls=SpokenCommand)
@configuration_options
@ignore_option
@require_fit_option
@all_option
@answer_options
@click.pass_context
def command(ctx: click.Context, /, config: str, **options: Any) -> None:
    """Whether a configuration fits, how long it runs, what it costs, what is wrong with it.

    CONFIG is the configuration of a framework (LLaMA-Factory, Axolotl, TRL, torchtune, LitGPT,
    ms-swift, DeepSpeed, Accelerate, ...), a launch script, or a job file; - is standard input.
    Files that it points to are read too. Flags win over the file.
    """
    from tuneplan.planner.check import check_configuration
    from tuneplan.planner.importing import read_configuration
    from tuneplan.planner.sources import sources_for
    from tuneplan.report.check import check_text
    from tuneplan.report.check_answer import check_answer

    configuration = read_configuration(
        config,
        framework=options["framework"],
        overrides=flags_of(options),
        set_=(*options["settings"], *ignored(options["ignore"])),
    )
    day = today()
    check = check_configuration(configuration, sources_for(configuration.job, today=day))
    answer = check_answer(check, as_of=day.isoformat())
    show(answer, partial(check_text, full=options["full"]), as_json=options["as_json"])
    if options["require_fit"] and not anything_fits(answer.estimate.fit):
        ctx.exit(NOTHING_FITS)
