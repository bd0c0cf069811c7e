"""What the page shows: one module a view, each with its ``VIEW``.

A view turns the form into an answer (the pydantic model of ``--json``) and the answer into sections
of ``report/view.py``. A new view is one module here and one entry in ``views()``. Read ``fit.py``
first.
"""

from __future__ import annotations

from functools import cache

from tuneplan.web.views import (
    accuracy,
    check,
    compare,
    data,
    fit,
    levers,
    oom,
    plan,
    project,
    runs,
    why,
)
from tuneplan.web.views.view import View


@cache
def views() -> tuple[View, ...]:
    """Every view, in the order of the navigation."""
    return (
        fit.VIEW,
        plan.VIEW,
        data.VIEW,
        levers.VIEW,
        compare.VIEW,
        project.VIEW,
        oom.VIEW,
        check.VIEW,
        runs.VIEW,
        why.VIEW,
        accuracy.VIEW,
    )


@cache
def by_name() -> dict[str, View]:
    """The views by their names."""
    return {view.name: view for view in views()}
