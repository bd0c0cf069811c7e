"""tuneplan: whether a fine-tuning job fits, how long it takes, what it costs, what to run it on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuneplan.contract.reading import load_job

__version__ = "0.1.0"
__all__ = ["__version__", "load_job"]

_HOMES = {"load_job": "tuneplan.contract.reading"}


def __getattr__(name: str) -> Any:
    """Import a public function when it is first used, so that ``import tuneplan`` stays light."""
    if name not in _HOMES:
        msg = f"module 'tuneplan' has no attribute {name!r}"
        raise AttributeError(msg)
    from importlib import import_module

    found = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
