"""What the commands share once there is an answer: the day, the output, the exit status."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tuneplan.cli.output import page, print_json, print_text

if TYPE_CHECKING:
    from tuneplan.contract.answers import Fit, FitOn
    from tuneplan.contract.parts import Header
    from tuneplan.report.page import Page

Answer = TypeVar("Answer", bound="Header")
NOTHING_FITS = 3
_LONGEST_EPOCH = 11  # digits: the year 5138


def today() -> date:
    """The day in UTC: answers state it, and the age of prices is counted to it.

    ``SOURCE_DATE_EPOCH`` (seconds since 1970) stands for the clock, so that an answer can be made
    again: reproducible-builds.org/specs/source-date-epoch.
    """
    written = os.environ.get("SOURCE_DATE_EPOCH", "")
    if written.isascii() and written.isdigit() and len(written) <= _LONGEST_EPOCH:
        return datetime.fromtimestamp(int(written), tz=UTC).date()
    return datetime.now(tz=UTC).date()


def show(answer: Answer, text: Callable[[Answer, Page], str], *, as_json: bool) -> None:
    """Print an answer."""
    if as_json:
        print_json(answer.model_dump(mode="json"))
    else:
        print_text(text(answer, page()))


def require_fit_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--require-fit``."""
    return click.option(
        "--require-fit", is_flag=True, help="Leave with exit status 3 where nothing fits."
    )(function)


def all_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--all``; the function gets ``full``."""
    return click.option(
        "--all", "full", is_flag=True, help="Show every card, term and assumption."
    )(function)


def ignore_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--ignore``; the function gets ``ignore``."""
    return click.option(
        "--ignore",
        multiple=True,
        metavar="RULE",
        help="A rule of the lint that is to be silent; may be given several times.",
    )(function)


def ignored(rules: tuple[str, ...]) -> tuple[str, ...]:
    """``--ignore`` as a setting of the job."""
    names = [name.strip() for text in rules for name in text.split(",") if name.strip()]
    return (f"lint.ignore=[{', '.join(names)}]",) if names else ()


def anything_fits(fit: Fit | list[FitOn] | None) -> bool:
    """Whether a verdict, or one row of the table over the cards, is no refusal."""
    rows = fit if isinstance(fit, list) else [fit] if fit is not None else []
    return not rows or any(row.verdict != "does_not_fit" for row in rows)
