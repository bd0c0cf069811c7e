"""Pictures of a schedule as Vega-Lite specifications; colours come from ``theme.py``."""

from __future__ import annotations

from typing import Any, Final

from tuneplan.contract.scheduled import ScheduleAnswer
from tuneplan.language import say
from tuneplan.report.plan_charts import SCHEMA
from tuneplan.report.theme import ALARM, SERIES
from tuneplan.units import HOUR_S

_NARROW: Final = 400  # below so many units of width names have less room


def gantt(answer: ScheduleAnswer, *, width: int) -> dict[str, Any]:
    """A bar for each job from its start to its end, coloured by machine; a mark at a deadline."""
    machines = [machine.name for machine in answer.machines]
    used = [name for name in machines if any(name == job.on[0].machine for job in answer.jobs)]
    jobs = sorted(answer.jobs, key=lambda job: (job.start_s, job.end_s))
    bars = [
        {
            "job": job.name,
            "start": job.start_s / HOUR_S,
            "end": job.end_s / HOUR_S,
            "machine": job.on[0].machine,
        }
        for job in jobs
    ]
    end = max((job.end_s for job in jobs), default=0.0)
    deadlines = [
        {"job": job.name, "deadline": job.deadline_s / HOUR_S}
        for job in jobs
        if job.deadline_s is not None and job.deadline_s <= 1.5 * end
    ]
    name = {
        "field": "job",
        "type": "nominal",
        "sort": [job.name for job in jobs],
        "title": None,
        "axis": {"labelLimit": 180 if width > _NARROW else 110},
    }
    hours = {"type": "quantitative", "title": say("hours from the start")}
    layers: list[dict[str, Any]] = [
        {
            "data": {"values": bars},
            "mark": {"type": "bar", "cornerRadius": 2},
            "encoding": {
                "y": name,
                "x": {"field": "start", **hours},
                "x2": {"field": "end"},
                "color": {
                    "field": "machine",
                    "type": "nominal",
                    "scale": {
                        "domain": used,
                        "range": [SERIES[place % len(SERIES)] for place in range(len(used))],
                    },
                    "legend": {
                        "title": None,
                        "orient": "bottom",
                        "columns": 3 if width > _NARROW else 1,
                        "columnPadding": 28,
                    },
                },
            },
        }
    ]
    if deadlines:
        layers.append(
            {
                "data": {"values": deadlines},
                "mark": {"type": "tick", "color": ALARM, "thickness": 3, "size": 18},
                "encoding": {"y": name, "x": {"field": "deadline", **hours}},
            }
        )
    return {"$schema": SCHEMA, "width": width, "height": {"step": 22}, "layer": layers}
