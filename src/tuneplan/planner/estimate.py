"""Use-case: one configuration, answered in full."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tuneplan.calibration.calibrated import Calibration
from tuneplan.calibration.own import Own
from tuneplan.catalog.model_building import ResolvedModel
from tuneplan.catalog.regions import carbon_intensity
from tuneplan.economics.billing import Cost
from tuneplan.economics.energy import Energy, energy_of
from tuneplan.errors import NotSupported
from tuneplan.estimation.persistent import persistent
from tuneplan.estimation.uncertainty import Fit, fit_on, memory_ranges
from tuneplan.frameworks.loading import loading_of
from tuneplan.frozen import dataclass
from tuneplan.language import message
from tuneplan.planner.data_path import DataPath, data_path, disk_notice
from tuneplan.planner.dataset import Dataset, read_dataset
from tuneplan.planner.doubts import doubts, far_from_runs
from tuneplan.planner.evaluating import (
    MemoryAnswer,
    TimeAnswer,
    evaluate_memory,
    evaluate_time,
)
from tuneplan.planner.heeding import once, what_to_heed
from tuneplan.planner.known import Asked
from tuneplan.planner.renting import cheapest_cost
from tuneplan.planner.resolving import (
    Platform,
    Resolved,
    resolve,
    resolve_model,
    resolve_platform,
    together,
    told_by_line,
)
from tuneplan.planner.sources import Sources
from tuneplan.planner.storing import checkpoint_size, kept_size
from tuneplan.spec.answer import Assumption, Estimate, Notice
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.hardware import Accelerator
from tuneplan.spec.recipe import AttentionKernel, TrainingRecipe
from tuneplan.spec.stated import StatedJob
from tuneplan.units import HOUR_S, format_gib

if TYPE_CHECKING:
    from tuneplan.planner.traced import KnownTrace
    from tuneplan.planner.traced_timeline import Moment

# Micro-batches that `auto` tries, largest that fits wins.
AUTO_MICRO_BATCHES: Final = (128, 96, 64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageAnswer:
    """Bytes on disk."""

    checkpoint_bytes: float
    kept_bytes: float | None
    dataset_bytes: int | None
    path: DataPath | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEstimate:
    """The whole answer for one configuration.

    Attributes:
        fits_on: Without an accelerator: every card of the catalogue that can run it, smallest
            first.
        time: None without an accelerator.
        cost: None without an offer or without hours.
        timeline: Of the memory, where it is that of a trace.
    """

    resolved: Resolved
    memory: MemoryAnswer
    time: TimeAnswer | None
    cost: Cost | None
    energy: Energy | None
    storage: StorageAnswer
    fits_on: tuple[tuple[str, Fit], ...]
    assumptions: tuple[Assumption, ...]
    notices: tuple[Notice, ...]
    timeline: tuple[Moment, ...] = ()

    @property
    def total_s(self) -> Estimate | None:
        """Wall-clock seconds of the run."""
        return self.time.run.total_s if self.time and self.time.run else None


@told_by_line
def estimate_job(
    job: StatedJob,
    sources: Sources,
    *,
    dataset: Dataset | None = None,
    replays: bool = False,
) -> JobEstimate:
    """Estimate one configuration; ``dataset`` where the job's data is read already.

    ``replays`` plays the job through a model of PyTorch's allocator for reserved memory and
    fragmentation (0.05 to 0.5 s); without it they are ratios.

    Raises:
        InputError: Everything the user can mend: unknown names, contradictions, files.
    """
    found, platform, known = _read_job(job, sources, dataset)
    asked = Asked(job, found.architecture, known, sources, replays=replays)
    estimate = sources.estimates.get(asked)
    if estimate is None:
        resolved = _with_batch(job, found.architecture, platform, known)
        estimate = estimate_resolved(resolved, sources, replays=replays)
        sources.estimates.keep(asked, estimate)
    return estimate


def resolve_job(job: StatedJob, sources: Sources, *, dataset: Dataset | None = None) -> Resolved:
    """A stated job without blanks; ``dataset`` where its data is read already.

    Raises:
        InputError: As ``estimate_job``.
    """
    found, platform, known = _read_job(job, sources, dataset)
    return _with_batch(job, found.architecture, platform, known)


def _read_job(
    job: StatedJob, sources: Sources, dataset: Dataset | None
) -> tuple[ResolvedModel, Platform, Dataset]:
    """Model, cards and data, with what there is to tell of them."""
    found, platform, read = together(
        lambda: resolve_model(job, sources),
        lambda: resolve_platform(job, sources),
        lambda: dataset or read_dataset(job),
    )
    known = replace(
        read,
        assumptions=(*found.assumptions, *read.assumptions),
        notices=(
            *job.notices,
            *(Notice(message=note) for note in found.notes),
            *read.notices,
        ),
    )
    return found, platform, known


def _with_batch(
    job: StatedJob,
    model: ModelArchitecture,
    platform: Platform,
    dataset: Dataset,
) -> Resolved:
    """Resolve; for ``auto`` with the largest micro-batch that keeps the head-room."""
    if job.recipe.training.per_device_train_batch_size != "auto" or platform.cluster is None:
        return resolve(job, model=model, platform=platform, dataset=dataset)
    chosen = None
    for micro_batch in AUTO_MICRO_BATCHES:
        chosen = resolve(
            job, model=model, platform=platform, dataset=dataset, micro_batch=micro_batch
        )
        fit = memory_by_formula(chosen).fit
        limit = (1 - job.limits.headroom_fraction) * (fit.capacity_bytes if fit else 0)
        if fit is not None and fit.needed_bytes.likely <= limit:
            break
    assert chosen is not None  # noqa: S101 - the list is not empty
    assumption = Assumption(
        name="training.per_device_train_batch_size",
        value=chosen.recipe.per_device_train_batch_size,
        reason=message("largest_batch", "the largest micro-batch that keeps the head-room"),
        source="estimation/memory.py",
        how_to_set="training.per_device_train_batch_size: 4",
    )
    return replace(chosen, assumptions=(*chosen.assumptions, assumption))


def memory_by_formula(
    resolved: Resolved,
    *,
    replays: bool = False,
    calibration: Calibration | None = None,
    own: Own | None = None,
) -> MemoryAnswer:
    """Memory as the formulas have it; ``replays`` as for ``estimate_job``.

    A processor has no caching allocator to be played.
    """
    kernels = resolved.accelerator.kernels if resolved.accelerator else None
    cached = kernels is None or not kernels.synchronous
    return evaluate_memory(
        resolved.model,
        resolved.recipe,
        resolved.parallelism,
        resolved.batch,
        resolved.accelerator,
        loading=loading_of(resolved.recipe, resolved.software) if replays and cached else None,
        calibration=calibration,
        own=own,
    )


def estimate_resolved(
    resolved: Resolved, sources: Sources, *, replays: bool = False
) -> JobEstimate:
    """Estimate a configuration that has no blanks left; ``replays`` as for ``estimate_job``."""
    memory = memory_by_formula(
        resolved, replays=replays, calibration=sources.calibration, own=sources.own
    )
    assumptions, notices = list(resolved.assumptions), list(resolved.notices)
    traced = _known_trace(resolved, memory, sources)
    if traced is not None:
        notices.append(_is_traced(memory, traced.versions))
        memory = traced.memory.answer
    storage = _storage(resolved)
    time = _time(resolved, sources, storage, assumptions, notices)
    notices += doubts(resolved, memory.host_bytes)
    notices += far_from_runs(resolved, memory, time)
    if resolved.model.vision is not None:
        notices.append(Notice(message=_NO_IMAGES))
    cost = energy = None
    run = time.run if time else None
    total_s = run.total_s if run else None
    if run is not None and resolved.cluster is not None:
        hours = run.total_s.scaled(1 / HOUR_S)
        saved = resolved.schedule.saved_share(run.steps, run.steps_per_epoch)
        cost, told = cheapest_cost(
            resolved.job,
            resolved.cluster,
            sources,
            hours,
            checkpoint_hours=float(saved) * hours.likely,
        )
        notices += told
        energy = _energy(resolved, hours, cost)
        assumptions += run.assumptions
        if energy is not None:
            assumptions += energy.assumptions
        path = data_path(resolved, run, checkpoint_bytes=storage.checkpoint_bytes)
        full = disk_notice(resolved, path) if path is not None else None
        notices += [full] if full is not None else []
        storage = replace(
            storage,
            path=path,
            kept_bytes=kept_size(
                resolved.model,
                resolved.recipe,
                persistent(resolved.model, resolved.recipe),
                num_saves=int(resolved.schedule.num_saves(run.steps, run.steps_per_epoch)),
                save_total_limit=resolved.save_total_limit,
            ),
        )
    return JobEstimate(
        resolved=resolved,
        memory=memory,
        time=time,
        cost=cost,
        energy=energy,
        storage=storage,
        fits_on=() if resolved.cluster else fits_on_every_card(resolved, memory, sources),
        assumptions=tuple(assumptions),
        notices=once((*notices, *what_to_heed(resolved, sources, memory, total_s, cost))),
        timeline=traced.memory.timeline if traced is not None else (),
    )


def _known_trace(resolved: Resolved, formula: MemoryAnswer, sources: Sources) -> KnownTrace | None:
    """What reads a trace is imported where there can be one."""
    if sources.trace_folder is None or not sources.trace_folder.is_dir():
        return None
    from tuneplan.planner.traced import known_trace

    traces = sources.traces
    return known_trace(resolved, formula, traces) if traces is not None else None


def _is_traced(formula: MemoryAnswer, versions: Mapping[str, str]) -> Notice:
    text = message(
        "memory_traced",
        "memory is that of a trace of the real model code that was made before (tuneplan trace), "
        "with {libraries}; the formulas alone say {formula} allocated",
        libraries=", ".join(
            f"{name} {versions[name]}"
            for name in ("torch", "transformers", "peft")
            if name in versions
        ),
        formula=format_gib(formula.ranges.peak_bytes.likely),
    )
    return Notice(message=text)


_NO_IMAGES = message(
    "no_images",
    "images are not counted: the vision tower is held, and samples are taken as text alone",
)


def _time(
    resolved: Resolved,
    sources: Sources,
    storage: StorageAnswer,
    assumptions: list[Assumption],
    notices: list[Notice],
) -> TimeAnswer | None:
    if resolved.cluster is None:
        return None
    curves = sources.curves(resolved.cluster.accelerator)
    try:
        time = evaluate_time(
            resolved.model,
            resolved.recipe,
            resolved.parallelism,
            resolved.cluster,
            curves,
            resolved.batch,
            resolved.dataset.statistics,
            resolved.schedule,
            checkpoint_bytes=storage.checkpoint_bytes,
            calibration=sources.calibration,
            own=sources.own,
        )
    except (
        NotSupported
    ) as error:  # a type that the chip only emulates: memory is known all the same
        text = message(
            "time_unknown", "time and cost are unknown: {reason}", reason=str(error.message)
        )
        notices.append(Notice(message=text, path="training.precision"))
        return None
    assumptions += curves.assumptions
    return time


def _storage(resolved: Resolved) -> StorageAnswer:
    held = persistent(resolved.model, resolved.recipe)
    statistics = resolved.dataset.statistics
    return StorageAnswer(
        checkpoint_bytes=checkpoint_size(resolved.model, resolved.recipe, held),
        kept_bytes=None,
        dataset_bytes=statistics.raw_bytes if statistics else None,
    )


def _energy(resolved: Resolved, hours: Estimate, cost: Cost | None) -> Energy | None:
    cluster = resolved.cluster
    if cluster is None or not cluster.accelerator.power_w:
        return None
    return energy_of(
        power_w=cluster.accelerator.power_w,
        num_accelerators=cluster.num_accelerators,
        hours=hours,
        carbon=carbon_intensity(cost.offer.region if cost else None),
    )


def fits_on_every_card(
    resolved: Resolved, memory: MemoryAnswer, sources: Sources
) -> tuple[tuple[str, Fit], ...]:
    """Every card of the catalogue that can run the job, smallest first."""
    found = [
        (accelerator.name, fit_on_card(memory, accelerator))
        for accelerator in sources.accelerators.accelerators
        if _can_run(accelerator, resolved.recipe)
    ]
    return tuple(sorted(found, key=lambda pair: (pair[1].capacity_bytes, pair[0])))


def fit_on_card(memory: MemoryAnswer, accelerator: Accelerator) -> Fit:
    """The verdict on a job of this memory on a card, by the rule of the job's own card."""
    ranges = memory_ranges(
        memory.ranges.peak_bytes,
        context_bytes=accelerator.context_bytes,
        capacity_bytes=accelerator.capacity_bytes,
        reserving=memory.reserving,
        spreads=memory.spreads,
    )
    return fit_on(ranges.needed_bytes, accelerator.capacity_bytes, memory.spreads.allocated)


def _can_run(accelerator: Accelerator, recipe: TrainingRecipe) -> bool:
    """Whether PyTorch's CUDA or ROCm build runs this recipe there.

    Other chips have allocators of their own, which these formulas do not describe.
    """
    if accelerator.vendor not in ("NVIDIA", "AMD"):
        return False
    needs_flash = recipe.attention in (AttentionKernel.FLASH_2, AttentionKernel.FLASH_3)
    return accelerator.supports_flash_attention_2 or not needs_flash
