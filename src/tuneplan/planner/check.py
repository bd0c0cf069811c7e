"""Use-case: a configuration checked: does it fit, how long, how much, what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tuneplan.diagnosis.finding import Finding
from tuneplan.diagnosis.lint import lint, not_judged, silenced
from tuneplan.diagnosis.outcome import Outcome, Variant
from tuneplan.frozen import dataclass
from tuneplan.planner.best_changes import BestChange, best_changes
from tuneplan.planner.estimate import JobEstimate, estimate_job
from tuneplan.planner.importing import Configuration, in_own_words
from tuneplan.planner.outcomes import outcome_of
from tuneplan.planner.quick_check import case_of
from tuneplan.planner.resolving import told_by_line
from tuneplan.planner.sources import Sources
from tuneplan.planner.variants import TriedChange, Trying
from tuneplan.spec.stated import StatedJob

_MUST_FIT: Final = ("no_checkpointing", "one_card", "packing")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCheck:
    """What a check says about a job.

    Attributes:
        configuration: What was read.
        findings: What the rules found, what matters most first.
        not_judged: Rules that could say nothing, and what is not known: ``accelerator``, ``data``
            or ``run``.
        best_changes: At most three.
        silenced: Rules that the job silences and that would have said something.
    """

    configuration: Configuration
    estimate: JobEstimate
    findings: tuple[Finding, ...]
    not_judged: Mapping[str, str]
    best_changes: tuple[BestChange, ...]
    silenced: tuple[str, ...] = ()


def check_configuration(configuration: Configuration, sources: Sources) -> JobCheck:
    """Estimate one configuration, look for the usual mistakes, try what could be changed.

    Raises:
        InputError: Everything the user can mend, at the keys and lines of the user's own files.
    """
    with in_own_words(configuration):
        return _check(configuration.job, configuration, sources)


@told_by_line
def _check(job: StatedJob, configuration: Configuration, sources: Sources) -> JobCheck:
    estimate = estimate_job(job, sources, replays=True)
    now = outcome_of(estimate)
    trying = Trying(job, estimate, sources)
    tried = trying.all()
    case = case_of(estimate, now, _variants(trying, tried))
    return JobCheck(
        configuration=configuration,
        estimate=estimate,
        findings=lint(case),
        not_judged=not_judged(case),
        best_changes=best_changes(trying, tried, now),
        silenced=silenced(case),
    )


def _variants(trying: Trying, tried: Sequence[TriedChange]) -> dict[str, Variant]:
    """The changes that rules look at, by name; whether they fit is told with a replay."""
    headroom = trying.job.limits.headroom_fraction
    found = {one.change.name: _variant(one, one.outcome) for one in tried}
    for one in tried:
        if one.change.name in _MUST_FIT and one.outcome.fits:
            full = outcome_of(trying.in_full(one))
            found[one.change.name] = _variant(one, full)
    fewer = [one for one in tried if one.change.kind == "fewer_cards"]
    fewer = [one for one in fewer if one.outcome.fits and one.outcome.keeps(headroom)]
    if fewer:
        fewest = min(fewer, key=_cards)
        found["fewer_cards"] = found[fewest.change.name]
    return found


def _cards(one: TriedChange) -> int:
    return int(one.change.settings["hardware.accelerators_per_node"])


def _variant(one: TriedChange, outcome: Outcome) -> Variant:
    return Variant(
        name=one.change.name,
        change=one.change.message,
        settings=dict(one.change.settings),
        outcome=outcome,
    )
