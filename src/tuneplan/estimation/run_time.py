"""From one step to the whole run: steps, hours, evaluation, checkpoints, start-up, utilisation."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from tuneplan.estimation.batches import BatchShape
from tuneplan.estimation.operations import Number
from tuneplan.estimation.step_time import StepTime
from tuneplan.frozen import dataclass
from tuneplan.language import message, sentence
from tuneplan.spec.answer import Assumption, Basis, Estimate, Term
from tuneplan.spec.hardware import Cluster
from tuneplan.spec.parallelism import Parallelism
from tuneplan.spec.recipe import TrainingRecipe
from tuneplan.units import HOUR_S

# Rate of a network or local disk that holds checkpoints, where none is stated.
DEFAULT_DISK_BYTES_PER_S: Final = 1e9
# Container, imports, CUDA and NCCL set-up, data preparation, first slow steps.
_START_UP_S: Final = 90.0
# What is not known of checkpoint writing and start-up: a disk may be 3 times faster or slower.
_DISK_WIDTH: Final = (0.4, 3.0)
_START_UP_WIDTH: Final = (0.5, 4.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How long and how often, as stated or by the framework's default.

    Attributes:
        num_train_epochs: Ignored where ``max_steps`` is set.
        rounds_up: Whether a last, smaller group of micro-batches makes a step of its own
            (transformers 5: yes; 4.45: no).
        eval_steps: Steps between two evaluations; below 1 it is a share of the run.
        save_steps: Steps between two checkpoints; below 1 it is a share of the run.
        per_device_eval_batch_size: Rows of an evaluation batch.
    """

    num_train_epochs: float = 3.0
    max_steps: int | None = None
    rounds_up: bool = True
    eval_steps: float | None = None
    per_device_eval_batch_size: int = 8
    save_steps: float | None = None
    evaluates_each_epoch: bool = False
    saves_each_epoch: bool = False

    @property
    def evaluates(self) -> bool:
        """Whether held-out rows are looked at while training."""
        return self.evaluates_each_epoch or bool(self.eval_steps)

    def num_evaluations(self, steps: Number, per_epoch: Number) -> Number:
        """Evaluations of a run of so many steps."""
        return _occasions(steps, per_epoch, self.eval_steps, each_epoch=self.evaluates_each_epoch)

    def saved_share(self, steps: Number, per_epoch: Number) -> Number:
        """Share of the run from one checkpoint to the next; 1 where only the end is saved."""
        if self.saves_each_epoch:
            period: Number = np.maximum(per_epoch, 1)
        elif not self.save_steps:
            period = steps
        elif self.save_steps < 1:
            period = np.maximum(1, np.ceil(steps * self.save_steps))
        else:
            period = self.save_steps
        share: Number = np.minimum(1.0, period / np.maximum(steps, 1))
        return share

    def num_saves(self, steps: Number, per_epoch: Number) -> Number:
        """Checkpoints of a run of so many steps, the last one among them."""
        return 1 + _occasions(steps, per_epoch, self.save_steps, each_epoch=self.saves_each_epoch)


def _occasions(
    steps: Number, per_epoch: Number, every: float | None, *, each_epoch: bool
) -> Number:
    """How often something happens that is due every so many steps, or after each epoch.

    A share of the run is rounded up to whole steps (transformers trainer_callback.py
    ``TrainerState.compute_steps``).
    """
    if each_epoch:
        return np.ceil(steps / np.maximum(per_epoch, 1))
    if not every:
        return np.zeros_like(steps)
    period = every if every >= 1 else np.maximum(1, np.ceil(steps * every))
    return np.floor_divide(steps, period)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTime:
    """Everything about time that an answer shows.

    Attributes:
        tokens_per_step: Positions computed by all ranks, padding included.
        tokens_per_s_per_accelerator: Positions; ``real_`` counts tokens of samples only.
        samples_per_s: Of the whole job.
    """

    steps: int
    steps_per_epoch: int
    tokens_per_step: float
    real_tokens_per_step: float
    step_s: Estimate
    tokens_per_s_per_accelerator: Estimate
    real_tokens_per_s_per_accelerator: Estimate
    samples_per_s: Estimate
    mfu_fraction: float | None
    hfu_fraction: float | None
    train_s: Estimate
    eval_s: Estimate
    checkpoint_s: Estimate
    start_up_s: Estimate
    total_s: Estimate
    accelerator_hours: Estimate
    terms: tuple[Term, ...]
    assumptions: tuple[Assumption, ...]


def steps_per_epoch(
    num_rows: int, *, micro_batch: int, ranks: int, accumulation: int, rounds_up: bool
) -> int:
    """Optimizer steps of one epoch.

    Rows are spread over ranks and micro-batches, the last one smaller (``drop_last`` off); groups
    of ``accumulation`` micro-batches make a step. transformers 5 counts a started group as a step
    (trainer.py, ``set_initial_training_values``), 4.45 drops it; at least one step either way.
    """
    batches = math.ceil(num_rows / (micro_batch * ranks))
    steps = batches / accumulation
    return max(1, math.ceil(steps) if rounds_up else math.floor(steps))


def total_steps(per_epoch: int, schedule: Schedule) -> int:
    """Optimizer steps of the run: ``max_steps``, or epochs x steps of an epoch, rounded up."""
    if schedule.max_steps is not None and schedule.max_steps > 0:
        return schedule.max_steps
    return math.ceil(schedule.num_train_epochs * per_epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class LikelyRun:
    """The likely duration of a run, in parts; numbers or arrays, one entry a candidate."""

    steps: Number
    steps_per_epoch: Number
    train_s: Number
    eval_s: Number
    checkpoint_s: Number
    start_up_s: float

    @property
    def total_s(self) -> Number:
        """From start to end."""
        return self.train_s + self.eval_s + self.checkpoint_s + self.start_up_s


def likely_run(
    *,
    step_s: Number,
    forward_s: Number,
    sequences: Number,
    samples: Number,
    num_samples: int,
    num_eval_samples: int,
    accumulation: Number,
    ranks: Number,
    disk_bytes_per_s: float | None,
    schedule: Schedule,
    checkpoint_bytes: float,
    model_bytes: float,
) -> LikelyRun:
    """Steps and likely seconds of the run.

    Every save waits for the disk, and the last step always saves; an evaluation is forward passes
    at the training batch's seconds per sample.

    Args:
        step_s: Of one optimizer step.
        forward_s: Of one micro-batch's forward pass.
        sequences: Rows of a micro-batch.
        samples: Samples in an average micro-batch.
        num_samples: Training samples.
        num_eval_samples: Samples of one evaluation.
        accumulation: Micro-batches of a step and rank.
        ranks: Data-parallel ranks.
        disk_bytes_per_s: None where not stated.
        schedule: Epochs or steps, evaluation, saving.
        checkpoint_bytes: Written at each save.
        model_bytes: Read at start.
    """
    rows = np.ceil(num_samples * sequences / np.maximum(samples, 1e-9))
    groups = np.ceil(rows / (sequences * ranks)) / accumulation
    per_epoch = np.maximum(1.0, np.ceil(groups) if schedule.rounds_up else np.floor(groups))
    if schedule.max_steps is not None and schedule.max_steps > 0:
        steps = np.full_like(per_epoch, float(schedule.max_steps))
    else:
        steps = np.ceil(schedule.num_train_epochs * per_epoch)
    disk = disk_bytes_per_s or DEFAULT_DISK_BYTES_PER_S
    saves = schedule.num_saves(steps, per_epoch)
    evaluations = schedule.num_evaluations(steps, per_epoch)
    per_sample = forward_s / np.maximum(samples, 1e-9)
    return LikelyRun(
        steps=steps,
        steps_per_epoch=per_epoch,
        train_s=step_s * steps,
        eval_s=evaluations * num_eval_samples * per_sample / np.maximum(ranks, 1),
        checkpoint_s=saves * checkpoint_bytes / disk,
        start_up_s=_START_UP_S + model_bytes / disk,
    )


def run_time(
    *,
    step: StepTime,
    batch: BatchShape,
    num_samples: int,
    num_eval_samples: int,
    recipe: TrainingRecipe,
    parallelism: Parallelism,
    cluster: Cluster,
    schedule: Schedule,
    checkpoint_bytes: float,
    model_bytes: float,
    model_flop_per_token: float | None = None,
    recompute_flop_per_token: float = 0.0,
    peak_flop_per_s: float | None = None,
) -> RunTime:
    """The whole run, given one step and one micro-batch.

    Args:
        step: One optimizer step.
        batch: One micro-batch of one rank.
        num_samples: Training samples.
        num_eval_samples: Samples of one evaluation.
        recipe: Batch size and accumulation are read.
        parallelism: Data ranks are read.
        cluster: Cards, and the disk where stated.
        schedule: Epochs or steps, evaluation, saving.
        checkpoint_bytes: Written at each save.
        model_bytes: Read at start.
        model_flop_per_token: Of ``utilization.model_flop_per_token``; None leaves MFU open.
        recompute_flop_per_token: Executed again under checkpointing.
        peak_flop_per_s: Dense datasheet rate of the compute dtype.
    """
    likely = likely_run(
        step_s=step.step_s.likely,
        forward_s=step.forward_s,
        sequences=float(batch.sequences),
        samples=batch.samples,
        num_samples=num_samples,
        num_eval_samples=num_eval_samples,
        accumulation=recipe.gradient_accumulation_steps,
        ranks=parallelism.data,
        disk_bytes_per_s=cluster.disk_bytes_per_s,
        schedule=schedule,
        checkpoint_bytes=checkpoint_bytes,
        model_bytes=model_bytes,
    )
    steps = int(likely.steps)
    micro_batches = recipe.gradient_accumulation_steps * parallelism.data
    tokens, real = batch.positions * micro_batches, batch.real_tokens * micro_batches
    accelerators = cluster.num_accelerators
    train_s = step.step_s.scaled(steps)
    eval_s = _evaluation_range(float(likely.eval_s), step)
    checkpoint_s, assumptions = _checkpoint_range(float(likely.checkpoint_s), cluster)
    start_up_s = _widened(likely.start_up_s, _START_UP_WIDTH, Basis.ASSUMED)
    total_s = _sum(train_s, eval_s, checkpoint_s, start_up_s)
    mfu = hfu = None
    if model_flop_per_token is not None and peak_flop_per_s:
        capacity = step.step_s.likely * accelerators * peak_flop_per_s
        mfu = model_flop_per_token * tokens / capacity
        hfu = (model_flop_per_token + recompute_flop_per_token) * tokens / capacity
    return RunTime(
        steps=steps,
        steps_per_epoch=int(likely.steps_per_epoch),
        tokens_per_step=tokens,
        real_tokens_per_step=real,
        step_s=step.step_s,
        tokens_per_s_per_accelerator=_rate(tokens / accelerators, step.step_s),
        real_tokens_per_s_per_accelerator=_rate(real / accelerators, step.step_s),
        samples_per_s=_rate(batch.samples * micro_batches, step.step_s),
        mfu_fraction=mfu,
        hfu_fraction=hfu,
        train_s=train_s,
        eval_s=eval_s,
        checkpoint_s=checkpoint_s,
        start_up_s=start_up_s,
        total_s=total_s,
        accelerator_hours=total_s.scaled(accelerators / HOUR_S),
        terms=(
            _term(
                "training",
                train_s,
                sentence("steps x step_s"),
                steps=steps,
                step_s=step.step_s.likely,
            ),
            _term(
                "evaluation", eval_s, sentence("evaluations x batches x forward_s"), evals=schedule
            ),
            _term(
                "checkpoints",
                checkpoint_s,
                sentence("saves x bytes / disk"),
                bytes=checkpoint_bytes,
            ),
            _term("start-up", start_up_s, sentence("90 s + model bytes / disk"), bytes=model_bytes),
        ),
        assumptions=assumptions,
    )


def _rate(amount: float, seconds: Estimate) -> Estimate:
    """``amount`` per second; the slow end of the time is the low end of the rate."""
    if not seconds.low:
        return Estimate(low=0.0, likely=0.0, high=0.0, basis=seconds.basis)
    return Estimate(
        low=amount / seconds.high,
        likely=amount / seconds.likely,
        high=amount / seconds.low,
        basis=seconds.basis,
    )


def _sum(first: Estimate, *others: Estimate) -> Estimate:
    """Sum of ranges whose errors go together (the careful choice); basis of the first."""
    every = (first, *others)
    return Estimate(
        low=sum(part.low for part in every),
        likely=sum(part.likely for part in every),
        high=sum(part.high for part in every),
        basis=first.basis,
    )


def _evaluation_range(seconds: float, step: StepTime) -> Estimate:
    """As uncertain as the step, and more: batches and the path of the loss differ."""
    width = (
        step.step_s.low / step.step_s.likely * 0.8,
        step.step_s.high / step.step_s.likely * 1.5,
    )
    return _widened(seconds, width, Basis.ANALYTIC)


def _checkpoint_range(seconds: float, cluster: Cluster) -> tuple[Estimate, tuple[Assumption, ...]]:
    """Narrow where the disk is stated, wide where it is assumed."""
    if cluster.disk_bytes_per_s:
        return _widened(seconds, (0.8, 1.5), Basis.ANALYTIC), ()
    assumption = Assumption(
        name="hardware.disk",
        value="1 GB/s",
        reason=message(
            "disk_rate_assumed", "the rate of the disk that takes checkpoints is not stated"
        ),
        source=sentence("a cloud's network block storage or shared file system"),
        how_to_set="hardware.disk: {bandwidth: 7 GB/s}",
    )
    return _widened(seconds, _DISK_WIDTH, Basis.ASSUMED), (assumption,)


def _widened(seconds: float, width: tuple[float, float], basis: Basis) -> Estimate:
    low, high = width
    return Estimate(low=seconds * low, likely=seconds, high=seconds * high, basis=basis)


def _term(kind: str, estimate: Estimate, formula: str, **inputs: object) -> Term:
    return Term(
        kind=kind, value=estimate.likely, formula=formula, inputs=inputs, basis=estimate.basis
    )
