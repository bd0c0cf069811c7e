"""What a framework may look at when it decides: model, chip, software, what was stated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType

from packaging.version import Version

from tuneplan.frameworks.measured import MeasuredFacts
from tuneplan.frameworks.timeline import Fact, known, look_up
from tuneplan.frameworks.versions import newest_release, read_version, release_date
from tuneplan.frozen import dataclass
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.blocks import MixtureOfExperts
from tuneplan.spec.hardware import Accelerator
from tuneplan.spec.parallelism import Offload, Strategy
from tuneplan.spec.recipe import Method, Objective
from tuneplan.spec.stated import StatedRecipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """The libraries of one job.

    Attributes:
        framework: Canonical name of the framework.
        version: Of the framework, as stated or newest; "" where it has none.
        versions: Library to version.
        date: The day the versions stand for.
    """

    framework: str
    version: str
    versions: Mapping[str, str]
    date: str

    def at_least(self, library: str, version: str) -> bool:
        """Whether a library is at or above a version (unknown libraries are at their newest)."""
        own = read_version(self.versions.get(library))
        if own is None:
            day = release_date(library, version)
            return day is None or self.date >= day
        return own >= Version(version)

    def fact(self, library: str, key: str, variant: str = "") -> Fact:
        """The row of the table of defaults that holds here, the model's own row first."""
        if variant and known(library, f"{key}:{variant}"):
            key = f"{key}:{variant}"
        version = self.versions.get(library, "")
        if not version and (release := newest_release(library, on=self.date)) is not None:
            version = release.version
        return look_up(library, key, version, date="" if version else self.date)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Everything known before the first setting is resolved.

    Attributes:
        world_size: Ranks that see different samples.
        degrees: Tensor, pipeline, context and expert degrees above 1.
    """

    architecture: ModelArchitecture
    accelerator: Accelerator | None
    software: Software
    stated: StatedRecipe
    measured: MeasuredFacts
    world_size: int = 1
    num_nodes: int = 1
    degrees: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def model_type(self) -> str:
        """Hugging Face's ``model_type``."""
        return self.architecture.model_type

    @property
    def has_bf16(self) -> bool:
        """Whether the chip computes in bf16 (a chip that is not named is taken as modern)."""
        return self.accelerator is None or self.accelerator.supports_bf16

    @property
    def has_flash_attention_2(self) -> bool:
        """Whether FlashAttention-2 kernels run on the chip (compute capability 8 or more)."""
        return self.accelerator is None or self.accelerator.supports_flash_attention_2

    @property
    def compute_capability(self) -> float | None:
        """CUDA compute capability; None for other vendors and where no chip is named."""
        return None if self.accelerator is None else self.accelerator.compute_capability

    @property
    def has_experts(self) -> bool:
        """Whether any layer routes to experts."""
        return any(
            isinstance(group.layer.feed_forward, MixtureOfExperts)
            for group in self.architecture.groups
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What is decided first, because the other defaults hang on it."""

    objective: Objective
    method: Method
    strategy: Strategy
    offload: Offload = Offload.NONE

    @property
    def deepspeed(self) -> bool:
        """Whether DeepSpeed runs the step."""
        return self.strategy in (Strategy.ZERO1, Strategy.ZERO2, Strategy.ZERO3)

    @property
    def fsdp(self) -> bool:
        """Whether PyTorch FSDP shards the model."""
        return self.strategy in (Strategy.FSDP, Strategy.FSDP2, Strategy.HSDP)
