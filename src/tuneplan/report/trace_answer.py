"""A trace as the answer that the contract describes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tuneplan.contract.answers import Fit, FitOn, Model, header
from tuneplan.contract.job_document import job_document
from tuneplan.contract.parts import assumption_model
from tuneplan.contract.traced import (
    Alive,
    OperationClass,
    Process,
    Remark,
    Reserved,
    TraceAnswer,
    TracedMemory,
)
from tuneplan.planner.trace import JobTrace
from tuneplan.planner.traced_fit import context_bytes_of
from tuneplan.planner.traced_terms import term_of
from tuneplan.report.estimate_answer import (
    fit_fields,
    hardware_model,
    memory_fields,
    moment_models,
    notice_models,
    unique_assumptions,
)
from tuneplan.tracing import listing

_OTHER_CODE: Final = "model code"  # of another library, for which transformers' stands in
DECIDED_BY: Final = "a replay of the allocator with the card's limit"


def trace_answer(trace: JobTrace, *, as_of: str) -> TraceAnswer:
    """The answer of ``trace``; ``as_of`` is the day it is given."""
    resolved = trace.resolved
    assumptions = unique_assumptions(trace.assumptions)
    return TraceAnswer(
        **header("trace", as_of=as_of),
        job=job_document(resolved.job, assumptions),
        software=dict(resolved.software),
        supported=_OTHER_CODE not in trace.traced.recordings[0].stand_ins,
        hardware=hardware_model(resolved.cluster) if resolved.cluster else None,
        sequences=trace.request.sequences,
        length=trace.request.length,
        assumptions=[assumption_model(one) for one in assumptions],
        warnings=notice_models(trace.notices),
        fit=_fit(trace),
        fit_in=[Fit(**fit_fields(one, decided_by=DECIDED_BY)) for one in trace.fits_in],
        memory=_memory(trace),
        model=Model(
            total_parameters=resolved.model.total_parameters,
            active_parameters=resolved.model.active_parameters,
            trainable_parameters=trace.num_trained,
        ),
        peft_type=trace.peft_type,
        estimated_peak_bytes=(
            None if trace.peft_type else round(trace.formula.ranges.peak_bytes.likely)
        ),
        timeline=moment_models(trace.memory.timeline),
        at_peak=_alive(trace),
        operations=[OperationClass(**_operations(one)) for one in trace.operations],
        stand_ins=_remarks(trace.stand_ins),
        not_modelled=_remarks(trace.not_modelled),
        process=Process(
            from_cache=trace.traced.from_cache,
            import_s=trace.traced.import_s,
            trace_s=trace.traced.trace_s,
            host_peak_bytes=trace.traced.host_peak_bytes,
            versions=dict(trace.traced.versions),
        ),
        elapsed_s=trace.elapsed_s,
    )


def _fit(trace: JobTrace) -> Fit | list[FitOn] | None:
    fit = trace.memory.answer.fit
    if fit is not None:
        return Fit(**fit_fields(fit, decided_by=DECIDED_BY))
    return [FitOn(accelerator=name, **fit_fields(one)) for name, one in trace.fits_on] or None


def _memory(trace: JobTrace) -> TracedMemory:
    memory = trace.memory
    worst, expanding_worst = memory.worst, memory.expanding_worst
    return TracedMemory(
        **memory_fields(memory.answer),
        reserved=Reserved(
            fresh_bytes=memory.usual.peak_reserved_bytes,
            after_history_bytes=worst.peak_reserved_bytes if worst else None,
            expandable_fresh_bytes=memory.expanding.peak_reserved_bytes,
            expandable_after_history_bytes=(
                expanding_worst.peak_reserved_bytes if expanding_worst else None
            ),
        ),
        fragmentation_bytes=memory.usual.fragmentation_bytes,
        context_bytes=round(context_bytes_of(trace.resolved)),
    )


def _alive(trace: JobTrace) -> list[Alive]:
    return [
        Alive(
            module=group.module,
            kind=term_of(group),
            operation=group.operation,
            dtype=group.dtype,
            shape=list(group.shape),
            size_bytes=group.size_bytes,
            count=group.count,
        )
        for group in trace.memory.at_peak
    ]


def _operations(one: listing.OperationClass) -> dict[str, Any]:
    return {
        "class": one.name,
        "count": one.count,
        "flops": one.flops,
        "bytes_moved": one.bytes_moved,
    }


def _remarks(found: Sequence[listing.Remark]) -> list[Remark]:
    return [Remark(name=one.name, reason=str(one.reason), count=one.count) for one in found]
