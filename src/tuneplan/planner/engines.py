"""Where rows of data are counted and tokenised: this machine's cores, or a Ray cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuneplan.tokens.workers import Engine


def chosen_engine(*, workers: int | None = None, ray_address: str | None = None) -> Engine | None:
    """The engine that is asked for; None for what fits the size of the data."""
    from tuneplan.tokens.workers import InProcess, Workers

    if ray_address is not None:
        from tuneplan.tokens.ray_cluster import RayCluster

        return RayCluster(ray_address)
    if workers is None:
        return None
    return InProcess() if workers == 1 else Workers(workers)
