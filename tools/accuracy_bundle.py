"""What of ``docs/accuracy.md`` goes with the package: its figures, and a point for each run.

``accuracy_page.py`` writes it to ``catalog/data/accuracy.json``, whence the local page shows it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from accuracy_runs import Runs, cases
from accuracy_targets import Figure

from tuneplan import __version__

_DIGITS = 5


def bundle(runs: Runs, lines: Sequence[Figure]) -> str:
    """The file's text."""
    counts: dict[str, int] = {}
    for row in runs.physics.rows:
        counts[row.run.source] = counts.get(row.run.source, 0) + 1
    table: dict[str, Any] = {
        "tuneplan_version": __version__,
        "as_of": datetime.now(tz=UTC).date().isoformat(),
        "num_runs": len(runs.physics.rows),
        "num_predicted": sum(row.status == "predicted" for row in runs.physics.rows),
        "sources": [
            {"name": name, "runs": counts.get(name, 0), "published_in": where}
            for name, where in sorted(runs.evidence.published.items())
        ],
        "figures": [_figure(one) for one in lines],
        "points": {
            "columns": ["quantity", "source", "measured", "likely", "low", "high", "probability"],
            "rows": _points(runs),
        },
    }
    parts = (f"{json.dumps(key)}: {_dumped(key, value)}" for key, value in table.items())
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _dumped(key: str, value: Any) -> str:
    """Points and figures a line each, so that a change of one is a change of one line."""
    if key == "points":
        rows = ",\n".join(json.dumps(row, separators=(",", ":")) for row in value["rows"])
        return f'{{"columns": {json.dumps(value["columns"])}, "rows": [\n{rows}\n]}}'
    if isinstance(value, list):
        return "[\n" + ",\n".join(json.dumps(one, ensure_ascii=False) for one in value) + "\n]"
    return json.dumps(value, ensure_ascii=False)


def _figure(one: Figure) -> dict[str, Any]:
    found: dict[str, Any] = {
        "key": one.key,
        "runs": one.count,
        "must": list(one.must),
        "aim": list(one.aim),
        "measured": [_rounded(value) for value in one.measured],
        "by_source": [_rounded(value) for value in one.by_source] if one.by_source else None,
        "met": one.met,
        "aimed": one.aimed,
    }
    if one.key.startswith("coverage"):
        inside = re.match(r"([\d.]+)%", one.note)
        share = float(inside[1]) / 100 if inside else None
        bands = {"must": [0.72, 0.90], "aim": [0.78, 0.85]}
        found |= {**bands, "measured": [_rounded(share), None]}
    return found


def _points(runs: Runs) -> list[list[Any]]:
    """Calibrated without the runs of the point's own source."""
    return [
        [
            str(one.item.quantity),
            one.source,
            *(_rounded(value) for value in (one.item.measured, one.item.likely)),
            *(_rounded(value) for value in (one.item.low, one.item.high, one.item.probability)),
        ]
        for one in cases(runs.held_out_sources)
    ]


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{_DIGITS}g}")
