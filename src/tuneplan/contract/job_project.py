"""The job file's project: what is done around the run, for its whole budget."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any

from pydantic import Field

from tuneplan.contract.section import Section
from tuneplan.contract.values import Number, Quantity
from tuneplan.contract.written import Day, RetryFactor, Shares, Times
from tuneplan.units import parse_bytes, parse_bytes_per_s, parse_money, parse_seconds

_MOST = 1_000_000
_Duration = Quantity(parse=parse_seconds, example="2 week", high=3.2e9)


class ProjectSection(Section):
    """The project around the run: read by `budget`. A range is as likely at one end as another."""

    num_experiments: Annotated[int | None, Number(low=0, high=_MOST, whole=True)] = Field(
        None, description="Runs that are expected before the main one."
    )
    experiment_fraction: Annotated[tuple[float, float] | None, Shares(above_zero=True)] = Field(
        None, description="Length of an experiment as a share of the full run."
    )
    num_sweep_runs: Annotated[int | None, Number(low=0, high=_MOST, whole=True)] = Field(
        None, description="Runs that look for settings (learning rate, rank)."
    )
    sweep_fraction: Annotated[tuple[float, float] | None, Shares(above_zero=True)] = Field(
        None, description="Length of such a run as a share of the full run."
    )
    data_iterations: Annotated[int | None, Number(low=1, high=_MOST, whole=True)] = Field(
        None, description="Full runs: one for each version of the data."
    )
    retry_factor: Annotated[tuple[float, float] | None, RetryFactor()] = Field(
        None, description="How often a run is repeated: a number or `[low, high]`."
    )
    failure_fraction: Annotated[tuple[float, float] | None, Shares()] = Field(
        None,
        description="Share of the runs that stop somewhere and are begun again; repetitions for "
        "other reasons stand in `retry_factor`.",
    )
    evaluation_time: Annotated[tuple[float, float] | None, Times(example="1 h")] = Field(
        None,
        description="Tests of the finished model on the rented cards, after each full run and "
        "before the hand-over.",
    )
    setup_time: Annotated[tuple[float, float] | None, Times(example="4 h")] = Field(
        None, description="Rented time until the first run starts: environment, first attempts."
    )
    idle_fraction: Annotated[tuple[float, float] | None, Shares(below_one=True)] = Field(
        None, description="Share of the rented hours in which nothing runs: nights, meetings."
    )
    runs_in_parallel: Annotated[int | None, Number(low=1, high=_MOST, whole=True)] = Field(
        None, description="Runs at the same time, each on machines of its own."
    )
    start: Annotated[dt.date | None, Day()] = Field(
        None, description="First day; the calendar then has dates."
    )
    duration: Annotated[float | None, _Duration] = Field(
        None, description="Of the project; no offer may bind for longer."
    )
    proof_of_concept_time: Annotated[float | None, _Duration] = Field(
        None, description="Weeks of the calendar for set-up, experiments and sweeps."
    )
    main_time: Annotated[float | None, _Duration] = Field(
        None, description="Weeks of the calendar for the full runs."
    )
    hand_over_time: Annotated[float | None, _Duration] = Field(
        None, description="Weeks of the calendar for the last tests and the release."
    )
    network: Annotated[
        float | None, Quantity(parse=parse_bytes_per_s, example="1 Gbit/s", high=1e13)
    ] = Field(None, description="Line over which model, data and results are moved.")
    egress_price: Annotated[Any, Quantity(parse=parse_money, example="0.09 USD", high=1e6)] = Field(
        None, description="For a GB that leaves the provider."
    )
    storage: Annotated[int | None, Quantity(parse=parse_bytes, example="2 TB", high=1e18)] = Field(
        None, description="Room that is rented for the project's length."
    )
    storage_price: Annotated[Any, Quantity(parse=parse_money, example="0.05 USD", high=1e6)] = (
        Field(None, description="For a GB and month of it.")
    )
