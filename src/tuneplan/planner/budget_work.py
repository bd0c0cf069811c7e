"""What a project has to do, from its job file and the estimate of one run; every blank is told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tuneplan.economics.project import Span, Work, exactly
from tuneplan.economics.storage import transfer_s
from tuneplan.errors import InvalidRequest, Mistake
from tuneplan.frozen import dataclass
from tuneplan.language import Message, message
from tuneplan.planner.estimate import JobEstimate
from tuneplan.spec.answer import Assumption
from tuneplan.spec.stated import StatedJob, StatedProject
from tuneplan.units import HOUR_S

# Runs are done over for mistakes, changed wishes and settings that turn out badly.
_RETRIES: Final = (1.5, 3.0)
_BYTES_OF_A_GB: Final = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Bytes that a project moves: onto the machine, and off it."""

    in_bytes: float
    out_bytes: float


def work_of(job: StatedJob, estimate: JobEstimate) -> Work:
    """What there is to do.

    Raises:
        InvalidRequest: The hours of a run are not known, with what is missing.
    """
    total_s = estimate.total_s
    if total_s is None:
        raise InvalidRequest([_no_hours(job)])
    project = job.project
    moved = moved_bytes(estimate)
    rate = project.network
    times = [
        transfer_s(size_bytes=size, bandwidth_bytes_per_s=rate) / HOUR_S if rate else 0.0
        for size in (moved.in_bytes, moved.out_bytes)
    ]
    return Work(
        run_hours=total_s.scaled(1 / HOUR_S),
        num_experiments=project.num_experiments or 0,
        experiment_fraction=_span(project.experiment_fraction, 1.0),
        num_sweep_runs=project.num_sweep_runs or 0,
        sweep_fraction=_span(project.sweep_fraction, 1.0),
        data_iterations=project.data_iterations or 1,
        retry_factor=Span(low=(project.retry_factor or _RETRIES)[0],
                          high=(project.retry_factor or _RETRIES)[1]),
        failure_fraction=_span(project.failure_fraction, 0.0),
        evaluation_hours=_span(project.evaluation_time, 0.0, scale=HOUR_S),
        setup_hours=_span(project.setup_time, 0.0, scale=HOUR_S),
        idle_fraction=_span(project.idle_fraction, 0.0),
        transfer_in_hours=times[0],
        transfer_out_hours=times[1],
    )  # fmt: skip


def moved_bytes(estimate: JobEstimate) -> Moved:
    """The model's weights and the data go in; one checkpoint goes out."""
    resolved = estimate.resolved
    weights = resolved.model.total_parameters * resolved.recipe.frozen_dtype.num_bytes
    data = estimate.storage.dataset_bytes or 0
    return Moved(in_bytes=weights + data, out_bytes=estimate.storage.checkpoint_bytes)


def project_storage_bytes(job: StatedJob, estimate: JobEstimate) -> float:
    """Room on disk for the project's length: as stated, or checkpoints, data and weights."""
    if job.project.storage is not None:
        return job.project.storage
    kept = estimate.storage.kept_bytes or estimate.storage.checkpoint_bytes
    return kept + moved_bytes(estimate).in_bytes


def gigabytes(size_bytes: float) -> float:
    """Prices of storage and egress are for 10^9 bytes."""
    return size_bytes / _BYTES_OF_A_GB


def blanks(job: StatedJob) -> tuple[Assumption, ...]:
    """What the job file leaves open of the project, and what was taken instead."""
    return tuple(_blanks(job.project))


def _blanks(project: StatedProject) -> Iterator[Assumption]:
    none = message("not_counted", "nothing is said of it: none is counted")
    full = message("full_runs", "nothing is said of their length: each is a full run")
    taken: tuple[tuple[str, Any, Message, str, bool], ...] = (
        ("num_experiments", 0, none, "6", True),
        ("experiment_fraction", 1, full, "0.2", bool(project.num_experiments)),
        ("num_sweep_runs", 0, none, "8", True),
        ("sweep_fraction", 1, full, "0.1", bool(project.num_sweep_runs)),
        ("data_iterations", 1, message("one_data_version", "one version of the data"), "3", True),
        (
            "retry_factor",
            _RETRIES,
            message(
                "usual_retries",
                "runs are done over for mistakes and changed wishes: 1.5 to 3 times is usual",
            ),
            "[1.2, 2]",
            True,
        ),
        ("failure_fraction", 0, none, "[0.02, 0.1]", True),
        ("evaluation_time", "0 h", none, "1 h", True),
        ("setup_time", "0 h", none, "[2 h, 8 h]", True),
        ("idle_fraction", 0, none, "[0.1, 0.4]", True),
        ("network", None, message("no_transfers", "no rate is stated: transfers are not counted"),
         "1 Gbit/s", True),
        ("egress_price", None, none, "0.09 USD", True),
        ("storage_price", None, none, "0.05 USD", True),
    )  # fmt: skip
    for name, value, reason, example, matters in taken:
        if matters and getattr(project, name) is None:
            yield Assumption(
                name=f"project.{name}",
                value=value,
                reason=reason,
                source="docs/how-to/budget.md",
                how_to_set=f"project.{name}: {example}",
            )


def _span(stated: tuple[float, float] | None, blank: float, *, scale: float = 1.0) -> Span:
    if stated is None:
        return exactly(blank)
    return Span(low=stated[0] / scale, high=stated[1] / scale)


def _no_hours(job: StatedJob) -> Mistake:
    if not job.hardware.accelerator:
        return Mistake(
            message=message(
                "budget_needs_accelerator",
                "a budget needs the card that the runs are to use",
            ),
            path="hardware.accelerator",
            how_to_fix=message(
                "plan_finds_accelerator", "state it; tuneplan plan says which one is the cheapest"
            ),
        )
    return Mistake(
        message=message(
            "budget_needs_hours",
            "a budget needs the hours of one run, and they are not known without the data",
        ),
        path="data",
        how_to_fix=message("state_data", "state data.num_samples and data.mean_tokens, or a file"),
    )
