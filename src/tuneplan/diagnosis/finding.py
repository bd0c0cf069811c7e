"""One thing that a good colleague would point out about a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any

from tuneplan.diagnosis.outcome import Outcome, Variant
from tuneplan.frozen import dataclass
from tuneplan.language import Message
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.data import TokenStatistics
from tuneplan.spec.hardware import Accelerator
from tuneplan.spec.parallelism import Parallelism
from tuneplan.spec.recipe import TrainingRecipe
from tuneplan.spec.stated import StatedJob


class Severity(StrEnum):
    """How much it matters, worst first."""

    ERROR = "error"  # the run fails, or does not do what is asked
    WARNING = "warning"  # time, money or memory is lost, or an expectation will not hold
    ADVICE = "advice"  # a better way, if the aim allows it


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a rule found.

    Attributes:
        rule: Stable name of the rule.
        keys: Job keys that it is about, the most telling one first.
        message: What is the matter, with the figures of this job.
        evidence: The figures by name; names end in their unit.
        fix: What to write or do instead.
    """

    rule: str
    severity: Severity
    keys: tuple[str, ...]
    message: Message
    evidence: Mapping[str, Any] = field(default_factory=dict)
    fix: Message | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A job, what it comes to, and what it would come to otherwise.

    Attributes:
        mean_tokens_known: Whether the data says how long its samples are.
        lengths: ``{0.5: ..., 0.95: ..., 0.99: ..., 1.0: ...}``: sample lengths before truncation;
            empty where they are not known.
        samples_per_row: Samples in a row of a micro-batch; 1 unless packed.
        mean_length: Positions of a row on average, padding included.
        eval_steps: Optimizer steps between evaluations, None = none.
        flop: Model operations of the whole run, nothing computed twice; None where unknown.
        peak_flop_per_s: Of one card, by its datasheet.
        split_bytes: What the layout splits over the ranks, as one rank holds it now.
        weights_bytes: Weights as one rank holds them now.
        num_duplicates: Samples that stand more than once, as far as they were counted.
        variants: By name; those that cannot run are absent.
    """

    job: StatedJob
    model: ModelArchitecture
    recipe: TrainingRecipe
    parallelism: Parallelism
    accelerator: Accelerator | None
    num_nodes: int
    statistics: TokenStatistics | None
    now: Outcome
    mean_tokens_known: bool = True
    lengths: Mapping[float, float] = field(default_factory=dict)
    samples_per_row: float = 1.0
    padding: str = "longest"
    max_steps: int | None = None
    num_train_epochs: float = 1.0
    eval_steps: int | None = None
    save_steps: int | None = None
    flop: float | None = None
    peak_flop_per_s: float | None = None
    weights_bytes: float = 0.0
    split_bytes: float = 0.0
    num_duplicates: int = 0
    variants: Mapping[str, Variant] = field(default_factory=dict)

    @property
    def ranks(self) -> int:
        """Cards in all."""
        return self.parallelism.world_size

    @property
    def headroom_fraction(self) -> float:
        """The share of the card that is to stay free."""
        return self.job.limits.headroom_fraction
