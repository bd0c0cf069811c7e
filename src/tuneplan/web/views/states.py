"""A state of the page as text, and changes of it: what links of several views are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import parse_qsl

from tuneplan.web.form import Form, read_form

AGAINST: Final = "against"  # of Compare: other states, each as the query of its address
MOST_AGAINST: Final = 3
_SHOWN_ONLY: Final = ("sort", "order", "figure", AGAINST)  # say how an answer is shown, not of what


def job_alone(form: Form) -> Form:
    """The request without what says only how an answer is shown."""
    values = {name: texts for name, texts in form.values.items() if name not in _SHOWN_ONLY}
    return replace(form, values=MappingProxyType(values))


def query_of(form: Form) -> str:
    """The job of a request as the query of an address."""
    return job_alone(form).address("").partition("?")[2]


def state_of(query: str, form: Form) -> Form:
    """The request that ``query_of`` wrote, held to the same folders as ``form``."""
    return read_form(parse_qsl(query, keep_blank_values=False), roots=form.roots)


def with_settings(form: Form, settings: Mapping[str, Any]) -> Form:
    """The request with keys of the job file said anew, and without those that these replace."""
    from tuneplan.planner.changing import with_blanks

    said = {
        key: None if isinstance(value, list | tuple) and not value else value
        for key, value in with_blanks(settings).items()
    }
    return form.with_keys(said)


def compared(first: Form, others: Sequence[Form]) -> str:
    """The page of several requests side by side."""
    against = [query_of(one) for one in others[:MOST_AGAINST]]
    return job_alone(first).address("compare", **{AGAINST: against})
