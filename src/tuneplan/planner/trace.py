"""Use-case: the memory of one configuration, from the real model code."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tuneplan.estimation.uncertainty import Fit
from tuneplan.frozen import dataclass
from tuneplan.language import message
from tuneplan.planner.estimate import fits_on_every_card, memory_by_formula, resolve_job
from tuneplan.planner.evaluating import MemoryAnswer
from tuneplan.planner.peft_file import check_fits_job, settings_of
from tuneplan.planner.resolving import Resolved, told_by_line
from tuneplan.planner.sources import Sources
from tuneplan.planner.trace_requests import request_of
from tuneplan.planner.traced import TracedMemory, traced_memory
from tuneplan.planner.traced_fit import context_bytes_of, verdict_within
from tuneplan.spec.answer import Assumption, Notice
from tuneplan.spec.stated import StatedJob
from tuneplan.tracing.cache import TraceCache
from tuneplan.tracing.child import trace_in_child
from tuneplan.tracing.environment import interpreter
from tuneplan.tracing.images import FIXED_SIZE, ImageSize
from tuneplan.tracing.listing import (
    OperationClass,
    Remark,
    not_modelled,
    operations,
    stand_ins,
    trained_elements,
)
from tuneplan.tracing.recording import Recording
from tuneplan.tracing.refusals import check_traceable
from tuneplan.tracing.wire import Traced, TraceRequest

Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTrace:
    """The whole answer of a trace.

    Attributes:
        memory: From the trace.
        formula: The estimate of the same job.
        fits_on: Without an accelerator: every card of the catalogue that can run it.
        fits_in: For each limit that was asked for: whether the job runs there.
        operations: Of both steps, by class.
        elapsed_s: Of the whole command; ``traced`` has the child's.
    """

    resolved: Resolved
    request: TraceRequest
    traced: Traced
    memory: TracedMemory
    formula: MemoryAnswer
    fits_on: tuple[tuple[str, Fit], ...]
    fits_in: tuple[Fit, ...]
    operations: tuple[OperationClass, ...]
    stand_ins: tuple[Remark, ...]
    not_modelled: tuple[Remark, ...]
    assumptions: tuple[Assumption, ...]
    notices: tuple[Notice, ...]
    elapsed_s: float

    @property
    def peft_type(self) -> str | None:
        """PEFT's method that stood for the job's adapter."""
        return json.loads(self.request.peft)["peft_type"] if self.request.peft else None

    @property
    def num_trained(self) -> int:
        """Parameters that are trained: counted in the trace where no formula knows the method."""
        if not self.request.peft:
            return self.formula.num_trained
        return trained_elements(self.traced.recordings[0])


@told_by_line
def trace_job(
    job: StatedJob,
    sources: Sources,
    *,
    python: str | None = None,
    limits_bytes: tuple[int, ...] = (),
    images: tuple[ImageSize, ...] = (),
    peft: str | Path | Mapping[str, Any] | None = None,
    use_cache: bool = True,
    progress: Progress = lambda _phase, _share: None,
) -> JobTrace:
    """Trace one configuration: two training steps of the real code, nothing allocated.

    Args:
        job: As for an estimate.
        sources: Catalogues, and where earlier traces lie.
        python: An interpreter, or the folder of its environment, whose PyTorch, transformers and
            PEFT are traced; None for the one that runs.
        limits_bytes: Memory of cards (context included) to answer "does it fit" for.
        images: Of every row, as the processor leaves them; none for text alone.
        peft: A configuration of PEFT's own in place of the job's adapter.
        use_cache: Take a trace of the same job and libraries that was made before.
        progress: Told the phase and the share of the work that is done.

    Raises:
        InputError: What the user can mend, and everything that cannot be traced, by name.
        MissingExtra: PyTorch, transformers or PEFT is not installed.
        TraceStopped: The process that traces ended without an answer.
    """
    started = time.perf_counter()
    settings = "" if peft is None else settings_of(peft)
    resolved = resolve_job(job, sources)
    if settings:
        check_fits_job(resolved)
    request = replace(request_of(resolved, images), peft=settings)
    check_traceable(request)
    traced = _traced(request, sources.traces if use_cache else None, python, progress)
    formula = memory_by_formula(resolved, replays=True)
    memory = traced_memory(traced, resolved, formula)
    context = context_bytes_of(resolved)
    return JobTrace(
        resolved=resolved,
        request=request,
        traced=traced,
        memory=memory,
        formula=formula,
        fits_on=() if resolved.cluster else fits_on_every_card(resolved, memory.answer, sources),
        fits_in=tuple(
            verdict_within(memory.played, memory.answer.ranges, limit, context)
            for limit in limits_bytes
        ),
        operations=operations(traced.recordings[0]),
        stand_ins=stand_ins(traced),
        not_modelled=not_modelled(request, replace(traced, recordings=_played(memory))),
        assumptions=resolved.assumptions,
        notices=(
            *resolved.notices,
            *_notices(resolved),
            *_of_images(resolved, images),
            *_of_peft(settings),
        ),
        elapsed_s=time.perf_counter() - started,
    )


def _played(memory: TracedMemory) -> tuple[Recording, ...]:
    """The recordings that could be used."""
    shorter = memory.played.shorter
    return (memory.played.recording,) if shorter is None else (memory.played.recording, shorter)


def _traced(
    request: TraceRequest, cache: TraceCache | None, python: str | None, progress: Progress
) -> Traced:
    found = interpreter(python)
    known = cache.get(request, found.versions) if cache is not None else None
    if known is not None:
        return known
    traced = trace_in_child(request, found, progress)
    if cache is not None:
        cache.put(request, found.versions, traced)
    return traced


def _of_images(resolved: Resolved, images: tuple[ImageSize, ...]) -> Iterator[Notice]:
    if images:
        yield Notice(
            message=message(
                "traced_images",
                "every row of {length} tokens begins with images of {sizes} pixels (height x "
                "width); the formula beside the trace counts text alone",
                length=round(resolved.batch.worst_length),
                sizes=", ".join(map(str, images)),
            )
        )
        if resolved.model.model_type == FIXED_SIZE:
            yield Notice(
                message=message(
                    "traced_images_fixed",
                    "the processor of {kind} makes every image as large as the model's "
                    "configuration says: the sizes that were given change nothing",
                    kind=FIXED_SIZE,
                )
            )


def _of_peft(settings: str) -> Iterator[Notice]:
    if settings:
        yield Notice(
            message=message(
                "traced_peft",
                "PEFT's {method} is trained in place of the job's adapter; it has no formula to be "
                "compared with, and the job's adapter settings change nothing",
                method=json.loads(settings)["peft_type"],
            ),
            path="adapter",
        )


def _notices(resolved: Resolved) -> tuple[Notice, ...]:
    if "hidden_size" in resolved.model.assumed_fields:
        text = message(
            "traced_shape_assumed",
            "the model is a bare size: what was traced is a Llama of that size with dimensions "
            "that are assumed",
        )
        return (Notice(message=text, path="model"),)
    return ()
