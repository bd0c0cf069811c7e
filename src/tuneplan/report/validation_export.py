"""The answer of ``validate`` for programs (JSON) and for spreadsheets (CSV)."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from io import StringIO
from typing import Any, Final

from tuneplan.calibration.hierarchy import Nearest
from tuneplan.planner.validate import ValidatedRow, Validation
from tuneplan.report.validation import largest_terms
from tuneplan.runs.comparison import Comparison, Verdicts
from tuneplan.runs.summaries import Summary
from tuneplan.spec.answer import Estimate, Term

_PREDICTED: Final = (
    "peak_bytes",
    "peak_reserved_bytes",
    "peak_device_bytes",
    "tokens_per_s_per_accelerator",
    "real_tokens_per_s_per_accelerator",
    "step_s",
)
_FORMULA_SIGNS: Final = ("=", "+", "-", "@", "\t", "\r")
_COLUMNS: Final = (
    "id",
    "source",
    "status",
    "reason",
    "model",
    "framework",
    "method",
    "accelerator",
    "accelerators",
    "quantity",
    "measured",
    "likely",
    "low",
    "high",
    "error_fraction",
    "inside_interval",
    "verdict",
    "out_of_memory",
    "terms",
)


def validation_answer(validation: Validation) -> dict[str, Any]:
    """The fields of the ``validate`` answer, ready for JSON; what is unknown is ``None``."""
    return {
        "path": validation.path,
        "complete_path": validation.complete_path,
        "rows": [_row_answer(row) for row in validation.rows],
        "summary": [_summary_answer(summary) for summary in validation.summary],
        "verdicts": _verdicts_answer(validation.verdicts),
        "skipped": [
            {
                "reason": reason.code,
                "example": str(reason.example),
                "count": reason.count,
                "counted": reason.counted,
            }
            for reason in validation.skipped
        ],
    }


def rows_csv(validation: Validation) -> str:
    """One line per compared figure (one per row without any), for a spreadsheet."""
    text = StringIO()
    writer = csv.DictWriter(text, fieldnames=_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in validation.rows:
        items: Sequence[Comparison | None] = row.compared or (None,)
        writer.writerows(_as_text(_csv_row(row, item)) for item in items)
    return text.getvalue()


def _as_text(cells: dict[str, Any]) -> dict[str, Any]:
    """Cells of which none is a formula: words that would begin one have an apostrophe before."""
    return {
        name: f"'{value}" if isinstance(value, str) and _is_formula(value) else value
        for name, value in cells.items()
    }


def _is_formula(text: str) -> bool:
    """Whether a spreadsheet would compute it. Source: OWASP "CSV Injection"."""
    if not text.startswith(_FORMULA_SIGNS):
        return False
    try:
        float(text)
    except ValueError:
        return True
    return False


def _row_answer(row: ValidatedRow) -> dict[str, Any]:
    predicted = row.predicted
    return {
        "id": row.run.id,
        "status": row.status,
        "reason": None if row.reason is None else row.reason.code,
        "message": None if row.reason is None else str(row.reason),
        "predicted": None
        if predicted is None
        else {name: _range(getattr(predicted, name)) for name in _PREDICTED},
        "compared": [
            {
                "quantity": str(item.quantity),
                "measured": item.measured,
                "likely": item.likely,
                "error_fraction": item.error_fraction,
                "inside_interval": item.inside_interval,
                "probability": item.probability,
            }
            for item in row.compared
        ],
        "verdict": None if predicted is None else predicted.verdict,
        "out_of_memory": row.run.measured.out_of_memory,
        "extra": dict(row.run.extra),
        "memory_terms": [] if predicted is None else _terms(predicted.memory_terms),
        "time_terms": [] if predicted is None else _terms(predicted.time_terms),
        "nearest_memory": None if predicted is None else _nearest(predicted.nearest_memory),
        "nearest_time": None if predicted is None else _nearest(predicted.nearest_time),
    }


def _terms(terms: Sequence[Term]) -> list[dict[str, Any]]:
    return [{"kind": term.kind, "value": term.value} for term in terms]


def _nearest(nearest: Nearest | None) -> dict[str, Any] | None:
    if nearest is None or not nearest.rows:
        return None
    return {"runs": dict(nearest.rows), "shared": list(nearest.fields)}


def _range(estimate: Estimate | None) -> dict[str, Any] | None:
    if estimate is None:
        return None
    return {
        "low": estimate.low,
        "likely": estimate.likely,
        "high": estimate.high,
        "basis": str(estimate.basis),
    }


def _summary_answer(item: Summary) -> dict[str, Any]:
    return {
        "quantity": str(item.quantity),
        **{
            name: getattr(item, name)
            for name in ("method", "framework", "accelerator", "source", "cards", "size")
        },
        "count": item.count,
        "median_abs_error_fraction": item.median_abs_error_fraction,
        "p90_abs_error_fraction": item.p90_abs_error_fraction,
        "bias_fraction": item.bias_fraction,
        "coverage_fraction": item.coverage_fraction,
        "median_width_fraction": item.median_width_fraction,
        "num_sources": item.num_sources,
        "source_median_abs_error_fraction": item.source_median_abs_error_fraction,
        "source_median_p90_abs_error_fraction": item.source_median_p90_abs_error_fraction,
    }


def _verdicts_answer(verdicts: Verdicts) -> dict[str, Any]:
    return {
        "num_ran": verdicts.num_ran,
        "num_out_of_memory": verdicts.num_out_of_memory,
        "missed_oom": verdicts.missed_oom,
        "false_oom": verdicts.false_oom,
        "tight": verdicts.tight,
        "missed_oom_rate": verdicts.missed_oom_rate,
        "false_oom_rate": verdicts.false_oom_rate,
        "tight_rate": verdicts.tight_rate,
    }


def _csv_row(row: ValidatedRow, item: Comparison | None) -> dict[str, Any]:
    run = row.run
    cells: dict[str, Any] = {
        "id": run.id,
        "source": run.source,
        "status": row.status,
        "reason": "" if row.reason is None else str(row.reason),
        "model": run.model,
        "framework": run.framework,
        "method": run.method,
        "accelerator": run.accelerator,
        "accelerators": run.accelerators,
        "verdict": "" if row.predicted is None else row.predicted.verdict or "",
        "out_of_memory": "" if run.measured.out_of_memory is None else run.measured.out_of_memory,
    }
    if item is not None:
        cells |= {
            "quantity": str(item.quantity),
            "measured": f"{item.measured:.6g}",
            "likely": f"{item.likely:.6g}",
            "low": f"{item.low:.6g}",
            "high": f"{item.high:.6g}",
            "error_fraction": f"{item.error_fraction:.4f}",
            "inside_interval": item.inside_interval,
            "terms": largest_terms(row, memory=item.quantity.is_memory, count=8),
        }
    return cells
