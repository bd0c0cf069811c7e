"""A job as a document again: every key of the job file, blanks as None.

The document reads back as a job file, so an answer's ``job`` can be saved and run once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any, Final

from tuneplan.contract.job import keys
from tuneplan.contract.plain_json import json_value
from tuneplan.spec.answer import Assumption
from tuneplan.spec.stated import StatedJob, StatedProject

_SAME_NAME: Final = ("model", "prices", "accelerators", "models", "goal")
# How a resolved setting is said in a job file, where the word differs.
_SAID: Final[Mapping[tuple[str, Any], Any]] = {
    ("training.gradient_checkpointing", "full"): True,
    ("training.gradient_checkpointing", "none"): False,
}
_ZERO_MEANS_BLANK: Final = ("training.eval_steps", "training.save_steps")
# Blank where an ordinary length is assumed: a mean alone is no data, and a stated ``max_length``
# would fill every row up to the model's own limit.
_LEFT_TO_DATA: Final = ("data.mean_tokens", "training.max_length")


def job_document(job: StatedJob, assumptions: Iterable[Assumption] = ()) -> dict[str, Any]:
    """The job in the shape of the job file; blanks take the value of the assumption of their name.

    Args:
        job: As stated.
        assumptions: Those that stand for keys of the job file (``training.max_length``) fill
            blanks; the others are passed over, and so is an ordinary length of rows.
    """
    values = dict(_stated(job))
    known = tuple(assumptions)
    ordinary = any(one.reason.code == "ordinary_length" for one in known)
    for assumption in known:
        if not (ordinary and assumption.name in _LEFT_TO_DATA):
            _fill(values, assumption)
    document: dict[str, Any] = {}
    for path in keys():
        *sections, name = path.split(".")
        holder = document
        for section in sections:
            if not isinstance(holder.get(section), dict):
                holder[section] = {}
            holder = holder[section]
        holder[name] = json_value(values.get(path))
    return document


def _stated(job: StatedJob) -> Iterator[tuple[str, Any]]:
    """Key path and value of what is stated."""
    recipe = job.recipe
    yield from ((name, getattr(job, name) or None) for name in _SAME_NAME)
    version = f"=={recipe.framework_version}" if recipe.framework_version else ""
    yield "framework", f"{recipe.framework}{version}" if recipe.framework else None
    yield "software", dict(recipe.software) or None
    yield "date", recipe.date
    yield "objective", recipe.objective
    yield "method", recipe.method
    for section in ("adapter", "quantization", "training", "parallelism"):
        yield from _fields(section, getattr(recipe, section))
    yield from _fields("data", job.data)
    yield from _project(job.project)
    if job.lint.ignore:
        yield "lint.ignore", list(job.lint.ignore)
    yield "data.quantiles", _quantiles(job.data.quantiles)
    yield from _hardware(job)
    yield from _limits(job)
    yield from job.choices.items()


def _fields(path: str, section: Any) -> Iterator[tuple[str, Any]]:
    for field in fields(section):
        value = getattr(section, field.name)
        yield f"{path}.{field.name}", None if value == () and path == "data" else value


def _quantiles(quantiles: Mapping[float, float]) -> dict[str, float] | None:
    ends = {0.0: "min", 1.0: "max"}
    named = {ends.get(share, f"p{share * 100:g}"): length for share, length in quantiles.items()}
    return named or None


def _project(project: StatedProject) -> Iterator[tuple[str, Any]]:
    times = ("duration", "proof_of_concept_time", "main_time", "hand_over_time")
    units = {**dict.fromkeys(times, "s"), "network": "B/s", "storage": "B"}
    for path, value in _fields("project", project):
        name = path.rpartition(".")[2]
        if name in units:
            yield path, _with_unit(value, units[name])
        elif value is not None and name == "start":
            yield path, value.isoformat()
        elif value is None or not name.endswith(("_time", "_price")):
            yield path, value
        elif name.endswith("_price"):
            yield path, _with_unit(value[0], value[1])
        else:
            yield path, [_with_unit(float(end), "s") for end in value]


def _hardware(job: StatedJob) -> Iterator[tuple[str, Any]]:
    hardware = job.hardware
    for name in ("accelerator", "accelerators_per_node"):
        values = getattr(hardware, name)
        yield f"hardware.{name}", (values[0] if len(values) == 1 else values) or None
    for name in ("num_nodes", "interconnect", "inter_node"):
        yield f"hardware.{name}", getattr(hardware, name)
    yield "hardware.host_memory", _with_unit(hardware.host_memory_bytes, "B")
    yield "hardware.disk.bandwidth", _with_unit(hardware.disk_bytes_per_s, "B/s")
    yield "hardware.disk.size", _with_unit(hardware.disk_bytes, "B")


def _limits(job: StatedJob) -> Iterator[tuple[str, Any]]:
    limits = job.limits
    yield "limits.deadline", _with_unit(limits.deadline_s, "s")
    yield "limits.budget", _with_unit(limits.budget, limits.budget_currency)
    yield "limits.headroom", limits.headroom_fraction
    for name in ("regions", "providers", "certifications"):
        yield f"limits.{name}", getattr(limits, name)
    for name in ("residency", "single_tenant", "max_nodes", "allow_interruptible"):
        yield f"limits.{name}", getattr(limits, name)


def _with_unit(value: Any, unit: str) -> str | None:
    if value is None:
        return None
    return f"{value:f} {unit}" if isinstance(value, float) else f"{value} {unit}"


def _fill(values: dict[str, Any], assumption: Assumption) -> None:
    name, value = assumption.name, assumption.value
    if name.startswith("software."):
        _fill_version(values, name.removeprefix("software."), str(value))
    elif name == "hardware.accelerator":
        values[name] = value  # a name that also fits other chips, made plain
    elif name in _ZERO_MEANS_BLANK and not value:
        values[name.replace("_steps", "_strategy")] = "no"
    elif name == "training.save_total_limit" and not value:
        return
    elif name in values and values[name] is None and name != "data.quantiles":
        values[name] = _SAID.get((name, value if isinstance(value, str) else None), value)


def _fill_version(values: dict[str, Any], library: str, version: str) -> None:
    if library == values.get("framework"):
        values["framework"] = f"{library}=={version}"
        return
    values["software"] = {**(values.get("software") or {}), library: version}
