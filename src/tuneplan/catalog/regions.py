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
    for row in rows:
        if row["country"] and wanted and _is_in(wanted, row):
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


def _is_in(wanted: str, row: dict[str, str]) -> bool:
    if wanted in (row["country"].lower(), row["name"].lower()):
        return True
    return any(wanted.startswith(prefix) for prefix in row["prefixes"].split("|"))
