"""A configuration of PEFT's own, whose method is traced in place of a job's adapter."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tuneplan.catalog.documents import read_text
from tuneplan.errors import InvalidRequest, Mistake, UnreadableFile
from tuneplan.language import message
from tuneplan.planner.resolving import Resolved
from tuneplan.spec.parallelism import Strategy
from tuneplan.spec.recipe import Objective
from tuneplan.tracing.peft_methods import peft_settings

_WHOLE = (Strategy.SINGLE, Strategy.DDP)


def settings_of(given: str | Path | Mapping[str, Any]) -> str:
    """A file's settings, or those of its content.

    Raises:
        InputError: It is no configuration of PEFT, or its method is not traced.
    """
    return peft_settings(given if isinstance(given, Mapping) else _read(Path(given)))


def check_fits_job(resolved: Resolved) -> None:
    """Refuse jobs in which PEFT's other methods are not traced.

    Raises:
        InvalidRequest: With all of it.
    """
    mistakes = list(_mistakes(resolved))
    if mistakes:
        raise InvalidRequest(mistakes)


def _mistakes(resolved: Resolved) -> Iterator[Mistake]:
    recipe, layout = resolved.recipe, resolved.parallelism
    if recipe.adapter is None:
        yield Mistake(
            message=message(
                "peft_without_adapter",
                "method {method} has no adapter that --peft could stand for",
                method=str(recipe.method),
            ),
            path="method",
            how_to_fix=message("peft_needs_lora", "write method: lora, or qlora for a 4-bit base"),
        )
    if recipe.kernels.model_code == "litgpt":
        yield _untraced("framework", recipe.framework)
    if layout.strategy not in _WHOLE:
        yield _untraced("parallelism.strategy", str(layout.strategy))
    if recipe.objective is Objective.RM:
        yield _untraced("objective", str(recipe.objective))


def _untraced(path: str, what: str) -> Mistake:
    return Mistake(
        message=message(
            "peft_not_with",
            "--peft is not traced with {what}: no real step was compared",
            what=what,
        ),
        path=path,
        value=what,
    )


def _read(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        text = message(
            "not_json", "{path} is no JSON: {problem}", path=str(path), problem=error.msg
        )
        raise UnreadableFile(text, path=str(path), line=error.lineno) from None
    if not isinstance(found, Mapping):
        text = message("no_json_object", "{path} holds no JSON object", path=str(path))
        raise UnreadableFile(text, path=str(path))
    return found
