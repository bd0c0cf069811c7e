"""Disks, networks and loaders as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tuneplan.contract.answers import EstimateBody, Storage
from tuneplan.language import say
from tuneplan.report.labels import disk_label, writing_label
from tuneplan.report.tables import Column, facts, number_text, paragraph, table
from tuneplan.units import format_count, format_duration, format_gb

if TYPE_CHECKING:
    from rich.console import RenderableType


def disk_blocks(answer: EstimateBody) -> Iterator[RenderableType]:
    """What writing checkpoints costs, how long an upload takes, what a loader must give."""
    storage = answer.storage
    if storage is None or not storage.writings:
        return
    yield table(
        (
            Column(name=say("Checkpoints written to")),
            Column(name=say("How")),
            Column(name=say("Stands still"), right=True, keep=True),
            Column(name=say("of the run"), right=True, keep=True),
        ),
        [
            (
                say(
                    "{disk}, {rate}/s",
                    disk=disk_label(one.disk),
                    rate=format_gb(one.disk_bytes_per_s),
                ),
                writing_label(one.how),
                format_duration(one.stall_s),
                f"{number_text(100 * one.lost_fraction, digits=2)}%",
            )
            for one in storage.writings
        ],
        title=say("Disks"),
    )
    yield table(
        (
            Column(name=say("Upload over")),
            Column(name=say("Ideal"), right=True, keep=True),
            Column(name=say("Likely"), right=True, keep=True),
            Column(name=say("By courier"), right=True, keep=True),
        ),
        [
            (
                one.uplink,
                format_duration(one.ideal_s),
                format_duration(one.likely_s),
                format_duration(one.shipped_s),
            )
            for one in storage.uploads
        ],
        title=upload_title(storage),
    )
    advice = shipping_sentence(storage)
    if advice:
        yield paragraph(advice)
    yield facts(list(loader_rows(storage)), title=say("So that no card waits for data"))


def upload_title(storage: Storage) -> str:
    """How much has to get there."""
    size = format_gb(storage.uploads[0].size_bytes) if storage.uploads else ""
    return say("Data and model to the machine, {size}", size=size)


def shipping_sentence(storage: Storage) -> str:
    """That a courier is faster, over which networks; empty where none is."""
    slow = [one.uplink for one in storage.uploads if one.ship_instead]
    if not slow:
        return ""
    return say("Over {uplinks} a disk by courier is there first.", uplinks=", ".join(slow))


def loader_rows(storage: Storage) -> Iterator[tuple[str, str]]:
    """What must arrive each second."""
    load = storage.loader
    if load is None:
        return
    yield say("Real tokens/s of the whole job"), format_count(load.tokens_per_s)
    yield say("From disk, tokenised"), f"{format_gb(load.disk_bytes_per_s)}/s"
    if load.raw_bytes_per_s is not None:
        yield say("From disk, as text"), f"{format_gb(load.raw_bytes_per_s)}/s"
    yield (
        say("Tokenised while it trains"),
        say("{cores} cores busy", cores=number_text(load.cores_on_the_fly, digits=2)),
    )
