"""Disks, networks and loaders of the core as the answer that the contract describes."""

from __future__ import annotations

from typing import Any

from tuneplan.contract.answers import CheckpointWriting, Loader, Upload
from tuneplan.planner.data_path import DataPath


def storage_path_fields(path: DataPath) -> dict[str, Any]:
    """The fields of ``Storage`` that need the whole run."""
    load = path.loading
    return {
        "num_saves": path.num_saves,
        "num_kept": path.num_kept,
        "tokenised_bytes": round(path.tokens_bytes),
        "model_bytes": round(path.model_bytes),
        "needed_bytes": round(path.needed_bytes),
        "writings": [
            CheckpointWriting(
                disk=one.disk,
                disk_bytes_per_s=one.disk_bytes_per_s,
                how=one.how,
                stall_s=one.stall_s,
                lost_fraction=one.lost_fraction,
            )
            for one in path.writings
        ],
        "uploads": [
            Upload(
                uplink=one.uplink,
                size_bytes=round(one.size_bytes),
                ideal_s=one.ideal_s,
                likely_s=one.likely_s,
                shipped_s=one.shipped_s,
                ship_instead=one.ship_instead,
            )
            for one in path.uploads
        ],
        "loader": Loader(
            tokens_per_s=load.tokens_per_s,
            disk_bytes_per_s=load.disk_bytes_per_s,
            raw_bytes_per_s=load.raw_bytes_per_s,
            cores_on_the_fly=load.cores_on_the_fly,
        ),
    }
