"""A check of the core as the answer that the contract describes."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

from tuneplan.contract.answers import Fit, header
from tuneplan.contract.checked import BestChange, CheckAnswer, Key
from tuneplan.contract.job_document import job_document
from tuneplan.contract.parts import money_model
from tuneplan.contract.plain_json import json_value
from tuneplan.formats.foreign import Fate, ForeignKey, Imported
from tuneplan.planner import best_changes
from tuneplan.planner.check import JobCheck
from tuneplan.report.estimate_answer import estimate_body, fit_fields
from tuneplan.report.lint_answer import finding_models
from tuneplan.spec.offer import Money

_SAME: Final = 0.005  # a share of the time or the memory that is no difference
_A_CENT: Final = Decimal("0.005")


def check_answer(check: JobCheck, *, as_of: str) -> CheckAnswer:
    """The answer of ``check``; ``as_of`` is the day it is given, ``2026-11-30``."""
    configuration = check.configuration
    body = estimate_body(check.estimate)
    return CheckAnswer(
        **header("check", as_of=as_of),
        **fate_fields(configuration.imported),
        format=configuration.format,
        format_version=configuration.imported.format_version if configuration.imported else None,
        files=list(configuration.files),
        job=job_document(configuration.job),
        estimate=body,
        lint=finding_models(check.findings, configuration),
        not_judged=dict(check.not_judged),
        silenced=list(check.silenced),
        best_changes=[
            _change(one, check.estimate.memory.ranges.peak_bytes.likely)
            for one in check.best_changes
        ],
        warnings=body.warnings,
    )


def fate_fields(imported: Imported | None) -> dict[str, Any]:
    """The keys of a configuration by what became of them; none for a job file."""
    return {
        fate.value: [key_model(key) for key in imported.with_fate(fate)] if imported else []
        for fate in Fate
    }


def key_model(key: ForeignKey) -> Key:
    """A key with its value, place and reason."""
    return Key(
        key=key.path,
        value=json_value(key.value),
        file=key.file,
        line=key.line,
        why=str(key.why) if key.why is not None else None,
        job_keys=list(key.job_keys),
    )


def _change(best: best_changes.BestChange, peak_bytes: float) -> BestChange:
    differences = dict(_differences(best.difference, peak_bytes))
    return BestChange(
        change=str(best.change.message),
        name=best.change.name,
        settings=json_value(dict(best.change.settings)),
        saves={name: value for name, (saved, value) in differences.items() if saved},
        costs={name: value for name, (saved, value) in differences.items() if not saved},
        note=str(best.change.note) if best.change.note is not None else None,
        fit_after=Fit(**fit_fields(best.fit_after)) if best.fit_after is not None else None,
    )


def _differences(found: best_changes.Difference, peak_bytes: float) -> dict[str, tuple[bool, Any]]:
    """Name to whether it is saved, and how much; what hardly changes is left out."""
    named: dict[str, tuple[bool, Any]] = {}
    if abs(found.peak_bytes) > _SAME * peak_bytes:
        named["peak_bytes"] = (found.peak_bytes > 0, round(abs(found.peak_bytes)))
    share = found.time_fraction
    if share is not None and abs(share) > _SAME:
        named["time_fraction"] = (share > 0, abs(share))
        if found.time_s is not None:
            named["time_s"] = (share > 0, abs(found.time_s))
    hours = found.accelerator_hours
    if hours is not None and abs(hours) > 1e-6:
        named["accelerator_hours"] = (hours > 0, abs(hours))
    if found.money is not None and found.currency is not None and abs(found.money) >= _A_CENT:
        money: Any = money_model(Money(amount=abs(found.money), currency=found.currency))
        named["money"] = (found.money > 0, money.model_dump(mode="json"))
    return named
