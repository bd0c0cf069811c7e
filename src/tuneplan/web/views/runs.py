"""Runs: measurements of one's own, what they move, a live run beside its plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tuneplan.language import say
from tuneplan.web.fields import Field
from tuneplan.web.views.view import View, always

if TYPE_CHECKING:
    from tuneplan.contract.kept_runs import RunsAnswer
    from tuneplan.contract.learned import StoreAnswer
    from tuneplan.contract.watched import WatchAnswer
    from tuneplan.planner.estimate import JobEstimate
    from tuneplan.report.view import Section
    from tuneplan.spec.answer import Notice
    from tuneplan.spec.stated import StatedJob
    from tuneplan.store.store import Kept
    from tuneplan.web.form import Form
    from tuneplan.web.world import World


_Pair: TypeAlias = "tuple[JobEstimate, JobEstimate | None, tuple[Notice, ...]]"


def _answer(form: Form, world: World) -> RunsAnswer:
    from tuneplan.contract.answers import header
    from tuneplan.contract.kept_runs import RunsAnswer
    from tuneplan.report.estimate_answer import notice_models
    from tuneplan.report.learned_answer import store_answer
    from tuneplan.report.piloted import moved_figures

    form.refuse_mistakes()
    day = world.today.isoformat()
    path, kept = _kept(world)
    now = then = None
    notices: tuple[Notice, ...] = ()
    if form.given:
        now, then, notices = _before_and_after(form.job(), kept, world)
    stored: StoreAnswer = store_answer(kept, store=path, as_of=day)
    return RunsAnswer(
        **header("runs", as_of=day),
        store=stored.store,
        measurements=stored.measurements,
        moved=list(moved_figures(now, then)) if now is not None else [],
        run=form.text("run") or None,
        watch=_look(form, now, world) if form.text("run") else None,
        warnings=notice_models(notices),
    )


def _kept(world: World) -> tuple[str, tuple[Kept, ...]]:
    """The store and what it holds; nothing is made where there is none."""
    from tuneplan.store.paths import store_path
    from tuneplan.store.store import Store

    path = Path(world.settings.store or store_path())
    if not path.is_file():
        return str(path), ()
    with Store(path) as store:
        return str(path), store.find()


def _before_and_after(job: StatedJob, kept: tuple[Kept, ...], world: World) -> _Pair:
    from dataclasses import replace

    from tuneplan.planner.estimate import estimate_job
    from tuneplan.planner.recalibrating import recalibrate

    key = ("runs", world.today, repr(job), *(one.id for one in kept))
    known: _Pair | None = world.known.get(key)
    if known is None:
        sources = world.sources(job)
        known = (estimate_job(job, sources), None, ())
        if kept:
            found = recalibrate(((one.id, one.measurement) for one in kept), sources)
            then = estimate_job(job, replace(sources, own=found.own))
            known = (known[0], then, found.notices)
        world.known.put(key, known)
    return known


def _look(form: Form, now: JobEstimate | None, world: World) -> WatchAnswer:
    from tuneplan.planner.watch import expected_of, watched_run
    from tuneplan.web.live_runs import run_path

    path, expected = run_path(form), expected_of(now)
    if not world.runs.knows(path, expected):
        watched_run(str(path))
    return world.runs.look(path, expected)


def _sections(answer: RunsAnswer, _form: Form) -> tuple[Section, ...]:
    from tuneplan.contract.learned import StoreAnswer
    from tuneplan.report.runs_document import (
        calibration_section,
        store_section,
        warnings_section,
        watch_section,
    )

    live: tuple[Section, ...] = ()
    if answer.watch is not None and answer.run is not None:
        live = (watch_section(answer.watch, name=answer.run),)
    kept = answer.model_dump(exclude={"moved", "run", "watch", "warnings"})
    return (
        *live,
        calibration_section(answer.moved, num_measurements=len(answer.measurements)),
        store_section(StoreAnswer(**kept)),
        *warnings_section(answer.warnings),
    )


def _polled(answer: RunsAnswer) -> str:
    """The live run, until it is finished."""
    return "live" if answer.watch is not None and not answer.watch.finished else ""


VIEW = View(
    name="runs",
    title=lambda: say("Runs"),
    purpose=lambda: say("What you measured, what that moves, and a run that is going on."),
    schema="runs",
    answer=_answer,
    sections=_sections,
    fields=(
        Field(
            name="run",
            label=lambda: say("Folder or log of a live run"),
            hint=lambda: say("in a folder that the page may read"),
            example="outputs/run-1",
        ),
    ),
    ready=always,
    polls=_polled,
)
