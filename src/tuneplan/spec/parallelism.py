"""How one job is spread over ranks."""

from __future__ import annotations

from enum import StrEnum

from tuneplan.frozen import dataclass


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
    """Degrees of parallelism; ``world_size`` is their product (experts share the data ranks).

    Attributes:
        tensor: Ranks that share every matrix; ``sequence`` where they share the positions between
            the blocks too (Megatron's sequence parallelism).
        pipeline: Stages; ``virtual_stages`` pieces of the stack on each (interleaved schedule).
        context: Ranks that share the positions of every sequence.
        expert: Ranks that share the experts.
        overlap_tensor: Products run beside the collectives of the tensor ranks.
        overlap_transfers: Transfers between stages run beside compute.
        reduces_in_place: Gradients are reduced in their own buffer (Megatron), so that no buckets
            stand beside it.
        pads_vocabulary_to: The vocabulary is padded to a multiple of this and the tensor ranks.
    """

    strategy: Strategy = Strategy.SINGLE
    data: int = 1
    shard_group: int | None = None  # HSDP: ranks per shard group; None = all data ranks
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    sequence: bool = False
    virtual_stages: int = 1
    overlap_tensor: bool = False
    overlap_transfers: bool = False
    pads_vocabulary_to: int = 1
    reduces_in_place: bool = False
    offload: Offload = Offload.NONE
    reduce_bucket_elements: int = 500_000_000
    allgather_bucket_elements: int = 500_000_000
    overlap_communication: bool = True
    max_live_parameters: int = 1_000_000_000
    persistence_threshold: int = 100_000
    ddp_bucket_bytes: int = 25 * 2**20
    keeps_gathered: bool = False  # FSDP's weights stay gathered from forward to backward
    activation_gather: bool = False  # checkpointing outside the sharded unit gathers once more

    @property
    def world_size(self) -> int:
        """Ranks in all."""
        return self.data * self.model_ranks

    @property
    def model_ranks(self) -> int:
        """Ranks that work on one micro-batch together."""
        return self.tensor * self.pipeline * self.context

    @property
    def splits_model(self) -> bool:
        """Whether a rank holds a part of each layer, of the stack, of a sequence or of experts."""
        return self.model_ranks > 1 or self.expert > 1

    @property
    def shards(self) -> int:
        """Ranks over which sharded state is split."""
        if self.strategy in (Strategy.SINGLE, Strategy.DDP, Strategy.DEVICE_MAP):
            return 1
        return self.shard_group or self.data * self.context

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
