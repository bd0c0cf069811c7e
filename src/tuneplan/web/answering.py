"""The answer to a form, or every mistake in it; never a traceback."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from tuneplan.access.guard import OutsideAllowed
from tuneplan.access.roots import refused
from tuneplan.errors import InputError, MissingExtra, Mistake, TuneplanError
from tuneplan.frozen import dataclass
from tuneplan.language import message
from tuneplan.web.safety import TooLarge
from tuneplan.web.working import NoAnswer

if TYPE_CHECKING:
    from tuneplan.report.view import PageSection, Section
    from tuneplan.web.form import Form
    from tuneplan.web.views.view import View
    from tuneplan.web.world import World

_LOG: Final = logging.getLogger("tuneplan.web")
ANSWERED: Final = 200
USER_INPUT: Final = 400
OUR_DEFECT: Final = 500
NOT_NOW: Final = 503


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What came of a request; ``status`` is that of HTTP."""

    answer: Any = None
    sections: tuple[Section | PageSection, ...] = ()
    mistakes: tuple[Mistake, ...] = ()
    status: int = ANSWERED


def answered(view: View, form: Form, world: World, *, to_read: bool) -> Answered:
    """Ask the view; ``to_read`` for its sections too.

    Before there is enough to answer, a page shows nothing and a program is told what is missing.
    """
    try:
        if to_read and not view.ready(form) and not form.mistakes:
            return Answered()
        answer = view.answer(form, world)
        sections = view.sections(answer, form) if to_read else ()
    except Exception as error:
        return failed(error)
    return Answered(answer=answer, sections=sections)


def failed(error: Exception) -> Answered:
    """An error as mistakes to show; what was too large to read is told further up."""
    if isinstance(error, TooLarge):
        raise error
    if isinstance(error, NoAnswer):
        return Answered(mistakes=error.mistakes, status=NOT_NOW)
    if isinstance(error, OutsideAllowed):
        mistake = refused(str(error.filename), ())
        return Answered(mistakes=(mistake,), status=USER_INPUT)
    if isinstance(error, InputError | MissingExtra):
        return Answered(mistakes=error.mistakes, status=USER_INPUT)
    _LOG.error("no answer", exc_info=error)
    if isinstance(error, TuneplanError):
        return Answered(mistakes=error.mistakes, status=OUR_DEFECT)
    text = message(
        "internal_error",
        "this is a defect of tuneplan, not of your input: {kind}: {text}",
        kind=type(error).__name__,
        text=str(error)[:500],
    )
    return Answered(mistakes=(Mistake(message=text),), status=OUR_DEFECT)
