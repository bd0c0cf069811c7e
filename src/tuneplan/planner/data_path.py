"""Disks, networks and loaders of a configuration: what they must hold and give."""

from __future__ import annotations

from typing import Final

from tuneplan.economics import storage
from tuneplan.economics.data_path import (
    DISKS,
    TOKENISED_BYTES_PER_TOKEN,
    Loading,
    Upload,
    loading,
    uploads,
)
from tuneplan.estimation.run_time import RunTime
from tuneplan.frozen import dataclass
from tuneplan.language import message
from tuneplan.planner.resolving import Resolved
from tuneplan.spec.answer import Notice
from tuneplan.spec.hardware import Cluster
from tuneplan.spec.parallelism import Strategy
from tuneplan.units import format_gb

# Of PCIe's nominal rate, from the card to main memory that is not pinned.
_COPY_EFFICIENCY: Final = 0.5
_PCIE_BYTES_PER_S: Final = 16e9  # of a chip whose link is not known
_SPLIT: Final = frozenset(
    {Strategy.ZERO1, Strategy.ZERO2, Strategy.ZERO3, Strategy.FSDP, Strategy.FSDP2, Strategy.HSDP}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """One way to write checkpoints to one disk.

    Attributes:
        disk: ``stated`` or a name of ``economics.data_path.DISKS``.
        how: ``gathered`` by one process, ``sharded`` over the machines, or ``asynchronous``.
        lost_fraction: Share of the run that stands still for it.
    """

    disk: str
    disk_bytes_per_s: float
    how: str
    stall_s: float
    lost_fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPath:
    """Of a whole run.

    Attributes:
        num_saves: Checkpoints written.
        num_kept: On disk at once, the one being written among them.
        checkpoints_bytes, data_bytes, tokens_bytes, model_bytes: Room on disk; data as text
            where its size is known.
    """

    num_saves: int
    num_kept: int
    checkpoints_bytes: float
    data_bytes: float | None
    tokens_bytes: float
    model_bytes: float
    writings: tuple[Writing, ...]
    uploads: tuple[Upload, ...]
    loading: Loading

    @property
    def needed_bytes(self) -> float:
        """Room for all of it."""
        data = (self.data_bytes or 0.0) + self.tokens_bytes
        return self.checkpoints_bytes + data + self.model_bytes


def data_path(resolved: Resolved, run: RunTime, *, checkpoint_bytes: float) -> DataPath | None:
    """What the run asks of disks, networks and loaders; None without a cluster or data."""
    cluster, statistics = resolved.cluster, resolved.dataset.statistics
    if cluster is None or statistics is None or not statistics.num_samples:
        return None
    num_saves = int(resolved.schedule.num_saves(run.steps, run.steps_per_epoch))
    kept = storage.kept_checkpoints(num_saves=num_saves, last=resolved.save_total_limit)
    raw = statistics.raw_bytes
    tokens = float(statistics.total_tokens)
    tokenised = storage.tokenized_bytes(
        num_tokens=tokens, bytes_per_token=TOKENISED_BYTES_PER_TOKEN
    )
    model_bytes = float(resolved.model.total_parameters * 2)  # as published: 16 bits
    rate = run.real_tokens_per_s_per_accelerator.likely * cluster.num_accelerators
    return DataPath(
        num_saves=num_saves,
        num_kept=kept,
        checkpoints_bytes=kept * checkpoint_bytes,
        data_bytes=None if raw is None else float(raw),
        tokens_bytes=tokenised,
        model_bytes=model_bytes,
        writings=_writings(resolved, cluster, run, num_saves, checkpoint_bytes),
        uploads=uploads((float(raw) if raw is not None else tokenised) + model_bytes),
        loading=loading(
            tokens_per_s=rate, raw_bytes_per_token=raw / tokens if raw and tokens else None
        ),
    )


def _writings(
    resolved: Resolved, cluster: Cluster, run: RunTime, num_saves: int, size: float
) -> tuple[Writing, ...]:
    disks = dict(DISKS)
    if cluster.disk_bytes_per_s:
        disks = {"stated": cluster.disk_bytes_per_s, **disks}
    other_s = run.total_s.likely - run.checkpoint_s.likely
    interval_s = run.train_s.likely / max(1, num_saves)
    split = resolved.parallelism.strategy in _SPLIT and cluster.num_accelerators > 1
    found = []
    for disk, rate in disks.items():
        shared = disk == "network_10g"
        for how, stall in _stalls(cluster, size, rate, interval_s, split=split, shared_disk=shared):
            lost = storage.lost_fraction(num_saves=num_saves, stall_s=stall, other_s=other_s)
            found.append(
                Writing(
                    disk=disk, disk_bytes_per_s=rate, how=how, stall_s=stall, lost_fraction=lost
                )
            )
    return tuple(found)


def _stalls(
    cluster: Cluster, size: float, rate: float, interval_s: float, *, split: bool, shared_disk: bool
) -> list[tuple[str, float]]:
    ranks = cluster.num_accelerators
    links = [cluster.intra_node_bytes_per_s]
    links += [cluster.inter_node_bytes_per_s] if cluster.num_nodes > 1 else []
    link = min((each for each in links if each > 0), default=0.0)
    gathered = size * (ranks - 1) / ranks if split and link else 0.0
    found = [
        (
            "gathered",
            storage.gathered_stall_s(
                size_bytes=size,
                disk_bytes_per_s=rate,
                gathered_bytes=gathered,
                link_bytes_per_s=link or 1.0,
            ),
        )
    ]
    if split:
        sharded = storage.sharded_stall_s(
            size_bytes=size,
            disk_bytes_per_s=rate,
            num_nodes=cluster.num_nodes,
            shared_disk=shared_disk,
        )
        found.append(("sharded", sharded))
    copy = (cluster.accelerator.pcie_bytes_per_s or _PCIE_BYTES_PER_S) * _COPY_EFFICIENCY
    hidden = storage.asynchronous_stall_s(
        rank_bytes=size / ranks if split else size,
        copy_bytes_per_s=copy,
        write_seconds=found[-1][1],
        interval_s=interval_s,
    )
    found.append(("asynchronous", hidden))
    return found


def disk_notice(resolved: Resolved, path: DataPath) -> Notice | None:
    """That the stated disk is too small for what the run leaves on it."""
    cluster = resolved.cluster
    if cluster is None or cluster.disk_bytes is None or path.needed_bytes <= cluster.disk_bytes:
        return None
    text = message(
        "disk_too_small",
        "the run needs {need} on disk ({kept} checkpoints at once, data and the model); "
        "hardware.disk.size is {size}: keep fewer with training.save_total_limit",
        need=format_gb(path.needed_bytes),
        kept=path.num_kept,
        size=format_gb(cluster.disk_bytes),
    )
    return Notice(message=text, path="hardware.disk.size")
