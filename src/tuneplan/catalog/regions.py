"""Carbon intensity of electricity by country, for the CO2 figure and nothing else."""

from __future__ import annotations

from functools import cache
from typing import Final

from tuneplan.catalog.tables import read_table
from tuneplan.economics.energy import CarbonIntensity
from tuneplan.spec.answer import Basis, Estimate

# A yearly mean says little about one week: assumed, and wide enough for a year's change too.
_SPREAD: Final = (0.75, 1.25)


def carbon_intensity(region: str | None) -> CarbonIntensity:
    """Of a country code (``DE``) or a cloud region (``us-east-1``); else the world's mean.

    Where the region is unknown the range spans the bundled countries, from the 10th to the 90th
    percentile of their yearly means.
    """
    rows = _rows()
    wanted = (region or "").strip().lower()
    fitting = [(_fit(wanted, row), row) for row in rows if row["country"] and wanted]
    length, row = max(fitting, key=lambda pair: pair[0], default=(0, rows[0]))
    if length:
        grams = float(row["gco2_kwh"])
        return CarbonIntensity(
            grams_per_kwh=Estimate(
                low=grams * _SPREAD[0],
                likely=grams,
                high=grams * _SPREAD[1],
                basis=Basis.ASSUMED,
            ),
            region=row["name"],
            source=f"{row['source']}, {row['year']}",
        )
    world = next(row for row in rows if not row["country"])
    known = sorted(float(row["gco2_kwh"]) for row in rows if row["country"])
    return CarbonIntensity(
        grams_per_kwh=Estimate(
            low=known[len(known) // 10],
            likely=float(world["gco2_kwh"]),
            high=known[-1 - len(known) // 10],
            basis=Basis.ASSUMED,
        ),
        region=world["name"],
        source=f"{world['source']}, {world['year']}",
        known=False,
    )


@cache
def _rows() -> tuple[dict[str, str], ...]:
    return tuple(read_table("regions.csv"))


def _fit(wanted: str, row: dict[str, str]) -> int:
    """How many letters of a region say that it lies in a country; 0 where none do.

    ``europe-west12`` begins with ``europe-west1`` too, and lies where the longer name says.
    """
    if wanted in (row["country"].lower(), row["name"].lower()):
        return len(wanted) + 1
    found = [len(prefix) for prefix in row["prefixes"].split("|") if wanted.startswith(prefix)]
    return max(found, default=0)
