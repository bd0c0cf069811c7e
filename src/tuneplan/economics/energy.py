"""Energy of a run and the CO2 that comes with it, as ranges with every assumption listed."""

from __future__ import annotations

import math
from typing import Final

from tuneplan.frozen import dataclass
from tuneplan.language import message, sentence
from tuneplan.spec.answer import Assumption, Basis, Estimate

# Share of the board power that a training card draws on average. The limit itself is the most;
# half of it is what a job draws that waits a good deal for data, launches or other cards.
DRAW_FRACTION: Final = Estimate(low=0.5, likely=0.75, high=1.0, basis=Basis.ASSUMED)
# Power of CPUs, fans, network and losses, as a share of what the cards draw.
HOST_FRACTION: Final = Estimate(low=0.1, likely=0.3, high=0.8, basis=Basis.ASSUMED)
# Power usage effectiveness of the building.
PUE: Final = Estimate(low=1.1, likely=1.3, high=1.56, basis=Basis.ASSUMED)


@dataclass(frozen=True, slots=True, kw_only=True)
class CarbonIntensity:
    """Grams of CO2 equivalent per kWh of a region's electricity.

    Attributes:
        known: Whether the region was known; otherwise the world's mean stands in for it.
    """

    grams_per_kwh: Estimate
    region: str
    source: str
    known: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """Energy at the meter of the building, and its CO2 (None where the intensity is not given)."""

    energy_kwh: Estimate
    co2_kg: Estimate | None
    assumptions: tuple[Assumption, ...]


def energy_of(
    *,
    power_w: float,
    num_accelerators: int,
    hours: Estimate,
    carbon: CarbonIntensity | None = None,
    draw_fraction: Estimate = DRAW_FRACTION,
    host_fraction: Estimate = HOST_FRACTION,
    pue: Estimate = PUE,
) -> Energy:
    """Energy and CO2 of ``num_accelerators`` cards over ``hours``.

    kWh = cards x board power x draw x (1 + host) x PUE x hours / 1000.

    Args:
        power_w: Board power of one card, above zero.
        num_accelerators: Cards that run.
        hours: Wall-clock hours.
        carbon: Of the electricity; None leaves CO2 out.
        draw_fraction: Mean draw over board power.
        host_fraction: Everything else in the server over the cards' draw.
        pue: Power at the meter over power of the servers.
    """
    with_host = Estimate(
        low=1 + host_fraction.low, likely=1 + host_fraction.likely, high=1 + host_fraction.high
    )
    at_full_power_kw = num_accelerators * power_w / 1000
    energy = product(draw_fraction, with_host, pue, hours).scaled(at_full_power_kw)
    assumptions = [
        _assumption(
            "draw_fraction", draw_fraction, sentence("assumed; a pilot that records power says")
        ),
        _assumption(
            "host_fraction",
            host_fraction,
            sentence("assumed; at most: DGX H100 datasheet, 10.2 kW for 8 x 700 W of cards"),
        ),
        _assumption(
            "pue",
            pue,
            "Uptime Institute survey 2024: 1.56 on average, 1.3 or less in new large sites; "
            "1.1 is what the largest operators report",
        ),
    ]
    co2 = None
    if carbon is not None:
        co2 = product(energy, carbon.grams_per_kwh).scaled(1e-3)
        assumptions.append(_carbon_assumption(carbon))
    return Energy(energy_kwh=energy, co2_kg=co2, assumptions=tuple(assumptions))


def product(*factors: Estimate) -> Estimate:
    """The product of independent positive factors.

    Likely values multiply; the distances to low and high add as squares of logarithms, since
    independent factors are rarely all low or all high at once.
    """
    likely = math.prod(factor.likely for factor in factors)
    if likely <= 0:
        return Estimate(low=0.0, likely=0.0, high=math.prod(f.high for f in factors))
    below = math.hypot(*(_distance(factor.likely, factor.low) for factor in factors))
    above = math.hypot(*(_distance(factor.high, factor.likely) for factor in factors))
    weakest = min((factor.basis for factor in factors), key=list(Basis).index)
    return Estimate(
        low=likely * math.exp(-below),
        likely=likely,
        high=likely * math.exp(above),
        basis=weakest,
    )


def _distance(larger: float, smaller: float) -> float:
    return math.log(larger / smaller) if smaller > 0 else math.inf


def _assumption(name: str, value: Estimate, source: str) -> Assumption:
    return Assumption(
        name=f"energy.{name}",
        value=(value.low, value.likely, value.high),
        reason=message("energy_factor", "a factor of the energy at the meter, as a range"),
        source=source,
        how_to_set=f"energy_of({name}=...) of the Python API",
    )


def _carbon_assumption(carbon: CarbonIntensity) -> Assumption:
    grams = carbon.grams_per_kwh
    if carbon.known:
        reason = message(
            "carbon_intensity", "yearly mean of {region}, in g per kWh", region=carbon.region
        )
    else:
        reason = message(
            "carbon_intensity_world", "the region is not known: the world's mean, in g per kWh"
        )
    return Assumption(
        name="energy.carbon_intensity",
        value=(grams.low, grams.likely, grams.high),
        reason=reason,
        source=carbon.source,
        how_to_set="limits.regions: [DE]",
    )
