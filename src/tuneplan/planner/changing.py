"""A job with some of its keys said anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from tuneplan.spec.stated import StatedJob

# What is said anew about one of these leaves nothing to the others: they say the same thing.
_REPLACES: Final[Mapping[str, tuple[str, ...]]] = {
    "training.packing": ("training.padding",),
    "training.padding": ("training.packing",),
    "training.per_device_train_batch_size": ("training.global_batch_size",),
    "training.gradient_accumulation_steps": ("training.global_batch_size",),
    "training.eval_strategy": ("training.eval_steps",),
    "training.save_strategy": ("training.save_steps",),
    "training.num_train_epochs": ("training.max_steps",),
}
_SEVERAL: Final = ("hardware.accelerator", "hardware.accelerators_per_node")
_OF_RECIPE: Final = ("adapter", "quantization", "training", "parallelism")


def with_settings(job: StatedJob, settings: Mapping[str, Any]) -> StatedJob:
    """The job with these key paths of the job file stated; None makes one blank."""
    changed = job
    for path, value in with_blanks(settings).items():
        changed = _with(changed, path, value)
    choices = {path: values for path, values in job.choices.items() if path not in settings}
    return replace(changed, choices=choices)


def with_blanks(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The same key paths, and as None those that say the same thing in another way."""
    blanks = {
        other: None
        for path in settings
        for other in _REPLACES.get(path, ())
        if other not in settings
    }
    return blanks | dict(settings)


def _with(job: StatedJob, path: str, value: Any) -> StatedJob:
    section, _, name = path.rpartition(".")
    if path in _SEVERAL:
        value = (value,) if value is not None else ()
    if section in _OF_RECIPE:
        part = replace(getattr(job.recipe, section), **{name: value})
        return replace(job, recipe=replace(job.recipe, **{section: part}))
    if section:
        return replace(job, **{section: replace(getattr(job, section), **{name: value})})
    if path == "framework":
        pinned, _, version = (value or "").partition("==")
        recipe = replace(job.recipe, framework=pinned or None, framework_version=version or None)
        return replace(job, recipe=recipe)
    if path in ("method", "objective", "date"):
        return replace(job, recipe=replace(job.recipe, **{name: value}))
    return replace(job, **{name: value})
