"""A resolved job said again as a job without blanks: what was assumed becomes what is stated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from tuneplan.contract.job_document import job_document
from tuneplan.contract.reading import load_job
from tuneplan.planner.resolving import Resolved
from tuneplan.spec.stated import StatedJob

# What follows from the framework and its version rather than from a key that it has.
FOLLOWS: Final = ("training.loss", "training.master_weights")


def filled(resolved: Resolved) -> StatedJob:
    """The job with the resolved value of every blank that a job key can say.

    Words such as ``auto`` become what they were resolved to. Loss and master copies stay blank
    where they were: they follow from framework and version. So does ``max_length`` where nothing
    is cut and the data decide how long rows are.
    """
    job, recipe = resolved.job, resolved.recipe
    known = {one.name: one for one in resolved.assumptions if one.name not in FOLLOWS}
    document = job_document(job, known.values())
    training: dict[str, Any] = document["training"]
    if training["per_device_train_batch_size"] == "auto":
        training["per_device_train_batch_size"] = recipe.per_device_train_batch_size
    if training["gradient_accumulation_steps"] in (None, "auto"):
        training["gradient_accumulation_steps"] = recipe.gradient_accumulation_steps
    if training["dtype"] == "auto":
        training["dtype"] = resolved.model.stored_dtype
    if document["parallelism"]["strategy"] == "auto":
        document["parallelism"]["strategy"] = resolved.parallelism.strategy.value
    training["global_batch_size"] = None  # said by the two other keys, and the ranks may differ
    said = load_job(document)
    return replace(said, base_path=job.base_path, notices=(), places=job.places)
