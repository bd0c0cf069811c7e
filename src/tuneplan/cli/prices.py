"""``tuneplan prices``: today's prices, and two offers side by side."""

from __future__ import annotations

from pathlib import Path

import click

from tuneplan.cli.answering import show, today
from tuneplan.cli.commands import SpokenCommand
from tuneplan.cli.options import answer_options, language_option


class _PricesGroup(SpokenCommand, click.Group):
    """The group, with its help in the user's language."""


@click.group("prices", cls=_PricesGroup)
@language_option
def command() -> None:
    """Today's prices, and two offers side by side. What is known lists: tuneplan catalog prices."""


@command.command("refresh", cls=SpokenCommand)
@click.option(
    "--timeout",
    type=click.FloatRange(1, 600),
    default=20.0,
    show_default=True,
    help="Seconds that each connection may take.",
)
@answer_options
def refresh(*, timeout: float, as_json: bool) -> None:
    """Ask public price services, by the library gpuhunt (extra prices).

    What comes is checked before it takes the place of the last refresh. Without a network nothing
    changes: the bundled prices go on to count, with their age.
    """  # fmt: skip
    from tuneplan.catalog.offers import refreshed_file
    from tuneplan.planner.prices import refresh_prices
    from tuneplan.planner.sources import Sources
    from tuneplan.report.prices import refresh_answer, refresh_text

    day = today()
    found = refresh_prices(Sources(today=day), refreshed_file(), timeout_s=timeout)
    show(refresh_answer(found, as_of=day.isoformat()), refresh_text, as_json=as_json)


@command.command("break-even", cls=SpokenCommand)
@click.argument("first")
@click.argument("second")
@click.option("--file", "files", multiple=True, help="Your own price sheets.")
@click.option(
    "--accelerators",
    "count",
    type=click.IntRange(1, 100_000),
    default=1,
    show_default=True,
    help="Cards that are needed.",
)
@click.option("--hours", type=click.IntRange(1, 200_000), help="The most hours of use.")
@answer_options
def break_even(
    first: str, second: str, *, files: tuple[str, ...], count: int, hours: int | None, as_json: bool
) -> None:
    """From how many hours of use on one offer is cheaper than another.

    FIRST and SECOND are offers as tuneplan catalog prices lists them, PROVIDER: NAME, or a name
    alone.
    """  # fmt: skip
    from tuneplan.catalog.offers import refreshed_file
    from tuneplan.planner.prices import compare_offers
    from tuneplan.planner.sources import Sources
    from tuneplan.report.prices import break_even_answer, break_even_text

    day = today()
    sources = Sources(
        price_files=tuple(Path(file) for file in files),
        today=day,
        refreshed_prices=refreshed_file(),
    )
    found = compare_offers(sources, first, second, num_accelerators=count, horizon_hours=hours)
    answer = break_even_answer(found, num_accelerators=count, day=day)
    show(answer, break_even_text, as_json=as_json)
