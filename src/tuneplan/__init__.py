"""tuneplan: whether a fine-tuning job fits, how long it takes, what it costs, what to run it on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tuneplan._version import __version__

if TYPE_CHECKING:
    from tuneplan._api import budget, check, estimate, export, pilot_callback, plan, trace, validate
    from tuneplan.contract.reading import load_job
    from tuneplan.errors import InputError, InvalidRequest, MissingExtra, Mistake, TuneplanError
    from tuneplan.planner.budget import Budget
    from tuneplan.planner.check import JobCheck
    from tuneplan.planner.estimate import JobEstimate
    from tuneplan.planner.export import JobExport
    from tuneplan.planner.plan import Entry, Plan
    from tuneplan.planner.profile_data import profile_data
    from tuneplan.planner.trace import JobTrace
    from tuneplan.planner.validate import Validation
    from tuneplan.spec.answer import Assumption, Basis, Estimate, Notice, Term
    from tuneplan.spec.stated import StatedJob
    from tuneplan.tokens.profile import DataProfile

__all__ = [
    "Assumption",
    "Basis",
    "Budget",
    "DataProfile",
    "Entry",
    "Estimate",
    "InputError",
    "InvalidRequest",
    "JobCheck",
    "JobEstimate",
    "JobExport",
    "JobTrace",
    "MissingExtra",
    "Mistake",
    "Notice",
    "Plan",
    "StatedJob",
    "Term",
    "TuneplanError",
    "Validation",
    "__version__",
    "budget",
    "check",
    "estimate",
    "export",
    "load_job",
    "pilot_callback",
    "plan",
    "profile_data",
    "trace",
    "validate",
]

_HOMES = {
    "tuneplan._api": (
        *("budget", "check", "estimate", "export", "pilot_callback", "plan", "trace", "validate"),
    ),
    "tuneplan.contract.reading": ("load_job",),
    "tuneplan.errors": (
        *("InputError", "InvalidRequest", "MissingExtra", "Mistake", "TuneplanError"),
    ),
    "tuneplan.planner.budget": ("Budget",),
    "tuneplan.planner.check": ("JobCheck",),
    "tuneplan.planner.estimate": ("JobEstimate",),
    "tuneplan.planner.export": ("JobExport",),
    "tuneplan.planner.plan": ("Entry", "Plan"),
    "tuneplan.planner.profile_data": ("profile_data",),
    "tuneplan.planner.trace": ("JobTrace",),
    "tuneplan.planner.validate": ("Validation",),
    "tuneplan.spec.answer": ("Assumption", "Basis", "Estimate", "Notice", "Term"),
    "tuneplan.spec.stated": ("StatedJob",),
    "tuneplan.tokens.profile": ("DataProfile",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that ``import tuneplan`` stays light."""
    if name not in _HOME_OF:
        msg = f"module 'tuneplan' has no attribute {name!r}"
        raise AttributeError(msg)
    from importlib import import_module

    found = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
