"""From the job file's model to the values that the core works on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from tuneplan.contract.job import JobFile
from tuneplan.contract.section import Section
from tuneplan.contract.values import Choice
from tuneplan.language import message
from tuneplan.spec.answer import Notice
from tuneplan.spec.stated import (
    Limits,
    StatedAdapter,
    StatedData,
    StatedHardware,
    StatedJob,
    StatedLint,
    StatedParallelism,
    StatedProject,
    StatedQuantization,
    StatedRecipe,
    StatedTraining,
)

# Keys whose field holds a list as it is; every other choice leaves its field blank.
_HOLDS_A_LIST: Final = (
    "training.per_device_train_batch_size",
    "training.gradient_checkpointing",
    "hardware.accelerators_per_node",
)


def to_stated(job: JobFile, *, base_path: str, notices: tuple[Notice, ...] = ()) -> StatedJob:
    """The job with its blanks; what one key entails about another is filled in and told."""
    choices = dict(_choices(job))
    recipe, implied = _recipe(job)
    return StatedJob(
        model=job.model,
        recipe=recipe,
        data=StatedData(**_data(job)),
        hardware=_hardware(job),
        limits=_limits(job),
        prices=job.prices or (),
        accelerators=job.accelerators or (),
        models=job.models or (),
        project=StatedProject(**_fields(job.project, "project")),
        lint=StatedLint(**_fields(job.lint, "lint")),
        goal=job.goal or "cheapest",
        base_path=base_path,
        choices=MappingProxyType(choices),
        notices=(*notices, *implied),
        stated=tuple(_stated(job, "")),
    )


def _fields(section: Section | None, path: str) -> dict[str, Any]:
    """What is stated in a section, by field; a choice only where the field can hold it."""
    found: dict[str, Any] = {}
    for name in type(section).model_fields if section is not None else ():
        value = getattr(section, name)
        if isinstance(value, Choice):
            value = value.values if f"{path}.{name}" in _HOLDS_A_LIST else None
        if value is not None:
            found[name] = value
    return found


def _choices(section: Section, path: str = "") -> Iterator[tuple[str, tuple[Any, ...]]]:
    for name in type(section).model_fields:
        value, inner = getattr(section, name), f"{path}.{name}".lstrip(".")
        if isinstance(value, Section):
            yield from _choices(value, inner)
        elif isinstance(value, Choice):
            yield inner, value.values
        elif inner == "hardware.accelerator" and value is not None and len(value) > 1:
            yield inner, value


def _stated(section: Section, path: str) -> Iterator[str]:
    for name in type(section).model_fields:
        value, inner = getattr(section, name), f"{path}.{name}".lstrip(".")
        if isinstance(value, Section):
            yield from _stated(value, inner)
        elif value is not None:
            yield inner


def _recipe(job: JobFile) -> tuple[StatedRecipe, tuple[Notice, ...]]:
    name, _, version = (job.framework or "").partition("==")
    software = dict(job.software or {})
    date = software.pop("date", None)
    adapter = StatedAdapter(**_fields(job.adapter, "adapter"))
    quantization = _quantization(job)
    method = job.method if isinstance(job.method, str) else None
    implied = None
    if job.method is None and quantization != StatedQuantization():
        method = "gptq-lora" if quantization.type == "gptq" else "qlora"
        implied = "quantization"
    elif method in (None, "lora") and adapter.use_dora and not isinstance(job.method, Choice):
        method, implied = "dora", "adapter.use_dora"
    if method == "dora" and adapter.use_dora is None:
        adapter = StatedAdapter(**{**_fields(job.adapter, "adapter"), "use_dora": True})
    notices: tuple[Notice, ...] = ()
    if implied is not None:
        text = message("method_implied", "{key} means method: {method}", key=implied, method=method)
        notices = (Notice(message=text, path=implied),)
    recipe = StatedRecipe(
        framework=name or None,
        framework_version=version or None,
        software=MappingProxyType(software),
        date=job.date or date,
        objective=job.objective,
        method=method,
        adapter=adapter,
        quantization=quantization,
        training=StatedTraining(**_fields(job.training, "training")),
        parallelism=StatedParallelism(**_fields(job.parallelism, "parallelism")),
    )
    return recipe, notices


def _quantization(job: JobFile) -> StatedQuantization:
    fields = _fields(job.quantization, "quantization")
    if fields.get("bits") == 8 and "type" not in fields and job.method != "gptq-lora":
        fields["type"] = "int8"  # the only 8-bit base that trains adapters without GPTQ
    elif fields.get("type") == "int8":
        fields.setdefault("bits", 8)
    elif fields.get("type") in ("nf4", "fp4", "awq"):
        fields.setdefault("bits", 4)
    return StatedQuantization(**fields)


def _data(job: JobFile) -> dict[str, Any]:
    fields = _fields(job.data, "data")
    if "quantiles" in fields:
        fields["quantiles"] = MappingProxyType(fields["quantiles"])
    return fields


def _hardware(job: JobFile) -> StatedHardware:
    fields = _fields(job.hardware, "hardware")
    disk = fields.pop("disk", None)
    per_node = fields.pop("accelerators_per_node", ())
    return StatedHardware(
        accelerator=fields.get("accelerator", ()),
        num_nodes=fields.get("num_nodes"),
        accelerators_per_node=(per_node,) if isinstance(per_node, int) else per_node,
        interconnect=fields.get("interconnect"),
        inter_node=fields.get("inter_node"),
        host_memory_bytes=fields.get("host_memory"),
        disk_bytes_per_s=disk.bandwidth if disk else None,
        disk_bytes=disk.size if disk else None,
    )


def _limits(job: JobFile) -> Limits:
    fields: Mapping[str, Any] = _fields(job.limits, "limits")
    amount, currency = fields.get("budget", (None, "USD"))
    headroom = fields.get("headroom")
    return Limits(
        deadline_s=fields.get("deadline"),
        budget=amount,
        budget_currency=currency,
        headroom_fraction=0.2 if headroom is None else headroom,
        headroom_stated=headroom is not None,
        regions=fields.get("regions", ()),
        residency=fields.get("residency"),
        providers=fields.get("providers", ()),
        certifications=fields.get("certifications", ()),
        single_tenant=fields.get("single_tenant"),
        max_nodes=fields.get("max_nodes"),
        allow_interruptible=fields.get("allow_interruptible"),
    )
