"""What a configuration asks for that its own machine or data cannot give."""

from __future__ import annotations

from collections.abc import Iterator

from tuneplan.calibration.hierarchy import Nearest
from tuneplan.calibration.situations import situation_of
from tuneplan.language import Message, message
from tuneplan.planner.evaluating import MemoryAnswer, TimeAnswer
from tuneplan.planner.resolving import Resolved
from tuneplan.spec.answer import Basis, Estimate, Notice
from tuneplan.units import format_gib


def doubts(resolved: Resolved, host_bytes: Estimate) -> tuple[Notice, ...]:
    """Warnings of a configuration; ``host_bytes`` is the main memory that one rank needs."""
    found = (*_step_beyond_data(resolved), *_short_main_memory(resolved, host_bytes))
    return tuple(Notice(message=text) for text in found)


def _step_beyond_data(resolved: Resolved) -> Iterator[Message]:
    """One optimizer step takes more samples than there are."""
    statistics = resolved.dataset.statistics
    if statistics is None or not statistics.num_samples:
        return
    micro_batches = resolved.recipe.gradient_accumulation_steps * resolved.parallelism.data
    count = round(resolved.batch.samples * micro_batches)
    if count > statistics.num_samples and micro_batches * resolved.batch.sequences > 1:
        yield message(
            "step_beyond_data",
            "an optimizer step takes {count:,} samples, but only {known:,} are trained on: steps "
            "are counted as if they were full; choose smaller batches or fewer cards",
            count=count,
            known=statistics.num_samples,
        )


def _short_main_memory(resolved: Resolved, host_bytes: Estimate) -> Iterator[Message]:
    """The stated main memory is less than even the low end of what the ranks need."""
    cluster = resolved.cluster
    if cluster is None or cluster.host_memory_bytes is None:
        return
    needed = host_bytes.low * cluster.accelerators_per_node
    if needed > cluster.host_memory_bytes:
        yield message(
            "short_main_memory",
            "{have} of main memory are less than the {needed} that {count} "
            "{count:~process/processes} of this job need at least",
            have=format_gib(cluster.host_memory_bytes),
            needed=format_gib(needed),
            count=cluster.accelerators_per_node,
        )


def far_from_runs(
    resolved: Resolved, memory: MemoryAnswer, time: TimeAnswer | None
) -> tuple[Notice, ...]:
    """Where no measured run resembles the job, its ranges are wider: that is said."""
    situation = situation_of(resolved.recipe, resolved.parallelism, resolved.accelerator)
    found: list[Message] = []
    if memory.correction is not None:
        found.append(
            message(
                "own_measured_memory",
                "the memory is corrected by {count} {count:~measurement/measurements} of yours: "
                "{factor} times the predicted peak, {share} of its doubt is gone",
                count=len(memory.correction.names),
                factor=f"{memory.correction.factor:.3f}",
                share=f"{memory.correction.share:.0%}",
            )
        )
    far = memory.nearest if memory.correction is None else None
    traced = memory.ranges.peak_bytes.basis is Basis.TRACED
    if far is not None and not far.is_near and not traced:
        found.append(
            message(
                "no_near_memory",
                "the range of memory is wider: no measured run of {framework} with this layout "
                "({layout}) stands behind it; the closest are {runs}",
                framework=situation.framework,
                layout=situation.layout,
                runs=_runs(far),
            )
        )
    own = time.correction if time else None
    if own is not None:
        found.append(
            message(
                "own_measurements",
                "the speed is corrected by {count} measurements of yours: {factor} times the "
                "predicted step, {share} of its doubt is gone",
                count=len(own.names),
                factor=f"{own.factor:.3f}",
                share=f"{own.share:.0%}",
            )
        )
    far = time.nearest if time else None
    if own is None and far is not None and not far.is_near:
        found.append(
            message(
                "no_near_speed",
                "the range of the speed is wider: no measured run of {framework} on {chip} stands "
                "behind it; the closest are {runs}",
                framework=situation.framework,
                chip=situation.chip,
                runs=_runs(far),
            )
        )
    return tuple(Notice(message=text) for text in found)


def _runs(nearest: Nearest) -> Message | str:
    """How many runs of whom, the most first."""
    ordered = sorted(nearest.rows.items(), key=lambda pair: (-pair[1], pair[0]))
    told: Message | str = ""
    for source, count in ordered[:4]:
        told = (
            message(
                "runs_too", "{others}, {count} of {source}", others=told, count=count, source=source
            )
            if told
            else message("runs_of", "{count} of {source}", count=count, source=source)
        )
    return told
