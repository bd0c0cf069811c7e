"""How one job is spread over ranks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Strategy(StrEnum):
    """Who holds what."""

    SINGLE = "single"
    DDP = "ddp"
    ZERO1 = "zero1"
    ZERO2 = "zero2"
    ZERO3 = "zero3"
    FSDP = "fsdp"
    FSDP2 = "fsdp2"
    HSDP = "hsdp"
    DEVICE_MAP = "device_map"  # layers spread over the cards of one process, one busy at a time


class Offload(StrEnum):
    """What lives in host memory."""

    NONE = "none"
    OPTIMIZER = "optimizer"
    PARAMS = "params"  # parameters and optimizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """Degrees of parallelism; ``world_size`` is their product.

    Tensor, pipeline, context and expert degrees above 1 are refused until they have formulas.
    """

    strategy: Strategy = Strategy.SINGLE
    data: int = 1
    shard_group: int | None = None  # HSDP: ranks per shard group; None = all data ranks
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    offload: Offload = Offload.NONE
    reduce_bucket_elements: int = 500_000_000
    allgather_bucket_elements: int = 500_000_000
    overlap_communication: bool = True
    max_live_parameters: int = 1_000_000_000
    persistence_threshold: int = 100_000
    ddp_bucket_bytes: int = 25 * 2**20
    activation_gather: bool = False  # checkpointing outside the sharded unit gathers once more

    @property
    def world_size(self) -> int:
        """Ranks in all."""
        return self.data * self.tensor * self.pipeline * self.context

    @property
    def shards(self) -> int:
        """Ranks over which sharded state is split."""
        if self.strategy in (Strategy.SINGLE, Strategy.DDP, Strategy.DEVICE_MAP):
            return 1
        return self.shard_group or self.data

    @property
    def shards_parameters(self) -> bool:
        """Whether weights are split."""
        return self.strategy in (Strategy.ZERO3, Strategy.FSDP, Strategy.FSDP2, Strategy.HSDP)

    @property
    def shards_gradients(self) -> bool:
        """Whether gradients are split."""
        return self.shards_parameters or self.strategy is Strategy.ZERO2

    @property
    def shards_optimizer(self) -> bool:
        """Whether optimizer states are split."""
        return self.shards_gradients or self.strategy is Strategy.ZERO1
