"""The sections that say what a job runs on and how it is spread."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from tuneplan.contract.section import Section
from tuneplan.contract.values import Choice, Flag, Number, Quantity, Texts, Word
from tuneplan.contract.written import InterNode
from tuneplan.language import phrase
from tuneplan.units import parse_bytes, parse_bytes_per_s

_PB: Final = 10**15
_ELEMENTS: Final = 10**13  # more than any model has


class DiskSection(Section):
    """The disk that holds data and checkpoints."""

    bandwidth: Annotated[float | None, Quantity(parse=parse_bytes_per_s, example="7 GB/s")] = Field(
        None, description="Sustained write rate."
    )
    size: Annotated[int | None, Quantity(parse=parse_bytes, example="4 TB")] = Field(
        None, description="Room for checkpoints and data."
    )


class HardwareSection(Section):
    """What it runs on. A list is a choice for `plan`."""

    accelerator: Annotated[tuple[str, ...] | None, Texts(what=phrase("accelerator name"))] = Field(
        None, description="Catalogue name or alias, e.g. `NVIDIA H100 80GB HBM3`, `H100`."
    )
    num_nodes: Annotated[
        int | Choice | None, Number(low=1, high=100_000, whole=True, many=True)
    ] = Field(None, description="Machines.")
    accelerators_per_node: Annotated[
        int | Choice | None, Number(low=1, high=1024, whole=True, many=True)
    ] = Field(None, description="Accelerators in each machine.")
    interconnect: Annotated[str | None, Word(words=("nvlink", "pcie", "none"), auto=True)] = Field(
        None, description="Link inside a machine; `auto` = that of the accelerator."
    )
    inter_node: Annotated[str | None, InterNode(auto=True)] = Field(
        None,
        description="Link between machines, per machine: `infiniband-400`, `roce-1600`, "
        "`ethernet-100` (Gbit/s), or a rate such as `50 GB/s`.",
    )
    host_memory: Annotated[int | None, Quantity(parse=parse_bytes, example="256 GiB", high=_PB)] = (
        Field(None, description="Main memory of each machine.")
    )
    disk: DiskSection | None = Field(None, description="The disk.")


class ParallelismSection(Section):
    """How the job is spread over the accelerators; the word alone is the strategy."""

    strategy: Annotated[
        str | Choice | None,
        Word(
            words=(
                *("ddp", "zero1", "zero2", "zero3", "fsdp", "fsdp2", "hsdp"),
                *("single", "device_map"),
            ),
            also=(("zero-1", "zero1"), ("zero-2", "zero2"), ("zero-3", "zero3"), ("fsdp1", "fsdp")),
            auto=True,
            many=True,
        ),
    ] = Field(None, description="Who holds what.")
    tensor: Annotated[int | Choice | None, Number(low=1, high=4096, whole=True, many=True)] = Field(
        None, description="Tensor-parallel degree."
    )
    pipeline: Annotated[int | Choice | None, Number(low=1, high=4096, whole=True, many=True)] = (
        Field(None, description="Pipeline stages.")
    )
    context: Annotated[int | Choice | None, Number(low=1, high=4096, whole=True, many=True)] = (
        Field(None, description="Context-parallel degree.")
    )
    expert: Annotated[int | Choice | None, Number(low=1, high=4096, whole=True, many=True)] = Field(
        None, description="Expert-parallel degree."
    )
    offload: Annotated[
        str | Choice | None, Word(words=("none", "optimizer", "params"), many=True)
    ] = Field(None, description="What lies in main memory instead of the accelerator's.")
    reduce_bucket_elements: Annotated[
        int | None, Number(low=0, high=_ELEMENTS, whole=True, open_low=True)
    ] = Field(None, description="DeepSpeed's `reduce_bucket_size`: gradients reduced at once.")
    allgather_bucket_elements: Annotated[
        int | None, Number(low=0, high=_ELEMENTS, whole=True, open_low=True)
    ] = Field(None, description="DeepSpeed's `allgather_bucket_size`: weights gathered at once.")
    overlap_communication: Annotated[bool | None, Flag()] = Field(
        None, description="DeepSpeed's `overlap_comm`: a second bucket, communication meanwhile."
    )
    max_live_parameters: Annotated[int | None, Number(low=0, high=_ELEMENTS, whole=True)] = Field(
        None,
        description="DeepSpeed's `stage3_max_live_parameters`: weights held whole beyond a layer.",
    )
    persistence_threshold: Annotated[int | None, Number(low=0, high=_ELEMENTS, whole=True)] = Field(
        None,
        description="DeepSpeed's `stage3_param_persistence_threshold`: smaller tensors stay whole.",
    )
