"""Disks and data in a document: room, writing, upload, loader."""

from __future__ import annotations

from collections.abc import Iterator

from tuneplan.contract.answers import EstimateBody, Storage
from tuneplan.language import say
from tuneplan.report.amounts import (
    count_cell,
    gb_cell,
    number_cell,
    percent_cell,
    words,
)
from tuneplan.report.disks import loader_rows, shipping_sentence, upload_title
from tuneplan.report.labels import disk_label, writing_label
from tuneplan.report.view import Block, Column, Fact, Facts, Paragraph, Section, Table
from tuneplan.units import HOUR_S


def disks_section(answer: EstimateBody) -> Iterator[Section]:
    """One section, or none where nothing is known of disks."""
    storage = answer.storage
    if storage is None:
        return
    blocks: list[Block] = [Facts(title=say("Room on disk"), rows=tuple(_room(storage)))]
    if storage.writings:
        blocks.append(_writings(storage))
    if storage.uploads:
        blocks.append(_uploads(storage))
        advice = shipping_sentence(storage)
        blocks += [Paragraph(text=advice)] if advice else []
    if storage.loader is not None:
        rows = tuple(Fact(name=name, cell=words(text)) for name, text in loader_rows(storage))
        blocks.append(Facts(title=say("So that no card waits for data"), rows=rows))
    yield Section(name="disks", title=say("Disks and data"), blocks=tuple(blocks))


def _room(storage: Storage) -> Iterator[Fact]:
    """Addends and their sum."""
    yield Fact(name=say("One checkpoint"), cell=gb_cell(storage.checkpoint_bytes, key="disks.one"))
    keys = []
    if storage.num_kept is not None and storage.kept_bytes is not None:
        yield Fact(
            name=say("Kept at once"),
            cell=count_cell(storage.num_kept, key="disks.kept"),
            remark=say("the one being written among them"),
        )
        keys.append("{disks.checkpoints}")
        yield Fact(
            name=say("Checkpoints at most"),
            cell=gb_cell(
                storage.kept_bytes, key="disks.checkpoints", formula="{disks.one} * {disks.kept}"
            ),
        )
    named = (
        ("data", say("Data set as text"), storage.dataset_bytes),
        ("tokens", say("Data set as tokens"), storage.tokenised_bytes),
        ("model", say("The model in 16 bits"), storage.model_bytes),
    )
    for key, name, size in named:
        if size is not None:
            keys.append(f"{{disks.{key}}}")
            yield Fact(name=name, cell=gb_cell(size, key=f"disks.{key}"))
    if storage.needed_bytes is not None:
        yield Fact(
            name=say("Needed in all"),
            cell=gb_cell(storage.needed_bytes, formula=" + ".join(keys)),
            remark=say("the sum of the above"),
        )


def _writings(storage: Storage) -> Table:
    return Table(
        title=say("What writing checkpoints costs"),
        columns=(
            Column(name=say("Disk")),
            Column(name=say("Rate"), amounts=1, unit="GB/s"),
            Column(name=say("How")),
            Column(name=say("Stands still"), amounts=1, unit="s"),
            Column(name=say("of the run"), amounts=1, unit="%"),
        ),
        rows=tuple(
            (
                words(disk_label(one.disk)),
                number_cell(one.disk_bytes_per_s / 1e9, unit="GB/s"),
                words(writing_label(one.how)),
                number_cell(one.stall_s, unit="s"),
                percent_cell(one.lost_fraction),
            )
            for one in storage.writings
        ),
        folded=True,
    )


def _uploads(storage: Storage) -> Table:
    return Table(
        title=upload_title(storage),
        columns=(
            Column(name=say("Over")),
            Column(name=say("Ideal"), amounts=1, unit="h"),
            Column(name=say("Likely"), amounts=1, unit="h"),
            Column(name=say("By courier"), amounts=1, unit="h"),
        ),
        rows=tuple(
            (
                words(one.uplink),
                number_cell(one.ideal_s / HOUR_S, unit="h"),
                number_cell(one.likely_s / HOUR_S, unit="h"),
                number_cell(one.shipped_s / HOUR_S, unit="h"),
            )
            for one in storage.uploads
        ),
        folded=True,
    )
