"""Names and blanks of a job made into values; each blank is an assumption of the answer."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, cast

from tuneplan.catalog.links import resolve_cluster
from tuneplan.catalog.model_building import ResolvedModel
from tuneplan.errors import InputError, InvalidRequest, Mistake, NotSupported, UnknownName
from tuneplan.estimation.batches import BatchShape
from tuneplan.estimation.run_time import Schedule
from tuneplan.frameworks.resolve import ResolvedRecipe, resolve_recipe
from tuneplan.frozen import dataclass
from tuneplan.language import message, sentence
from tuneplan.planner.dataset import Dataset
from tuneplan.planner.evaluating import ORDINARY_LENGTH, shape_of_batch, takes_ordinary_length
from tuneplan.planner.sources import Sources
from tuneplan.spec.answer import Assumption, Notice
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.data import TokenStatistics
from tuneplan.spec.hardware import Accelerator, Cluster
from tuneplan.spec.parallelism import Parallelism
from tuneplan.spec.recipe import TrainingRecipe
from tuneplan.spec.stated import StatedJob

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
P = ParamSpec("P")
R = TypeVar("R")
_NO_TOKENIZER: Final = ("no_tokenizer", "tokenizer_not_installed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """One configuration without blanks.

    Attributes:
        cluster: None where no accelerator is stated.
        batch: The micro-batch of one rank.
    """

    job: StatedJob
    model: ModelArchitecture
    recipe: TrainingRecipe
    parallelism: Parallelism
    cluster: Cluster | None
    dataset: Dataset
    batch: BatchShape
    schedule: Schedule
    save_total_limit: int | None
    software: Mapping[str, str]
    assumptions: tuple[Assumption, ...]
    notices: tuple[Notice, ...]

    @property
    def accelerator(self) -> Accelerator | None:
        """The card."""
        return self.cluster.accelerator if self.cluster else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """Cards of a job, found in the catalogue."""

    cluster: Cluster | None
    assumptions: tuple[Assumption, ...] = ()
    notices: tuple[Notice, ...] = ()


@contextmanager
def at_key(path: str) -> Iterator[None]:
    """Within the block an unknown name is a mistake at this key of the job.

    Raises:
        InvalidRequest: In place of ``UnknownName``.
    """
    try:
        yield
    except UnknownName as error:
        raise InvalidRequest([replace(one, path=path) for one in error.mistakes]) from error


def told_by_line(
    use_case: Callable[Concatenate[StatedJob, P], R],
) -> Callable[Concatenate[StatedJob, P], R]:
    """A use-case whose mistakes carry the line of the job file that they are about."""

    @functools.wraps(use_case)
    def call(job: StatedJob, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return use_case(job, *args, **kwargs)
        except InvalidRequest as error:
            raise type(error)([_with_line(one, job) for one in error.mistakes]) from error
        except NotSupported as error:
            raise error.at(_with_line(error.mistake, job)) from error

    return call


def _with_line(mistake: Mistake, job: StatedJob) -> Mistake:
    place = job.places.get(mistake.path or "")
    if place is None or mistake.line is not None:
        return mistake
    return replace(mistake, file=place[0], line=place[1])


def resolve_model(job: StatedJob, sources: Sources) -> ResolvedModel:
    """The stated model.

    Raises:
        InputError: It is unknown, or its files do not read.
    """
    with at_key("model"):
        return sources.models.resolve(job.model, base_path=job.base_path)


def together(
    first: Callable[[], A], second: Callable[[], B], third: Callable[[], C]
) -> tuple[A, B, C]:
    """What three steps give that do not need each other; every mistake of all of them at once.

    Raises:
        InvalidRequest: The mistakes, in the order of the steps. That an unknown model has no
            tokenizer is none of its own.
    """
    results: list[Any] = []
    mistakes: list[Mistake] = []
    for step in (first, second, third):
        try:
            results.append(step())
        except InputError as error:
            mistakes += error.mistakes
    if any(mistake.path == "model" for mistake in mistakes):
        mistakes = [one for one in mistakes if one.message.code not in _NO_TOKENIZER]
    if mistakes:
        raise InvalidRequest(mistakes)
    return cast("tuple[A, B, C]", tuple(results))


def resolve_platform(job: StatedJob, sources: Sources) -> Platform:
    """The stated accelerator, count and links.

    Raises:
        InvalidRequest: The job has choices, which only ``plan`` can make; all of them at once.
    """
    hardware = job.hardware
    choices = dict(job.choices)
    if len(hardware.accelerator) > 1:
        choices["hardware.accelerator"] = hardware.accelerator
    if len(hardware.accelerators_per_node) > 1:
        choices["hardware.accelerators_per_node"] = hardware.accelerators_per_node
    if choices:
        raise InvalidRequest([_choice_in_estimate(key, values) for key, values in choices.items()])
    if not hardware.accelerator:
        notice = message(
            "no_accelerator",
            "no accelerator is stated: memory is set beside every card of the catalogue, time and "
            "cost are unknown; name one with --accelerator, or use `tuneplan plan`",
        )
        return Platform(cluster=None, notices=(Notice(message=notice),))
    with at_key("hardware.accelerator"):
        found = sources.accelerators.resolve(hardware.accelerator[0])
    assumptions = list(found.assumptions)
    count = hardware.accelerators_per_node[0] if hardware.accelerators_per_node else 1
    if not hardware.accelerators_per_node:
        assumptions.append(
            _one("hardware.accelerators_per_node", sentence("one card is enough to start"))
        )
    if hardware.num_nodes is None:
        assumptions.append(_one("hardware.num_nodes", sentence("one node is enough to start")))
    resolved = resolve_cluster(
        found.accelerator,
        num_nodes=hardware.num_nodes or 1,
        accelerators_per_node=count,
        interconnect=hardware.interconnect,
        inter_node=hardware.inter_node,
        host_memory_bytes=hardware.host_memory_bytes,
        disk_bytes_per_s=hardware.disk_bytes_per_s,
        disk_bytes=hardware.disk_bytes,
    )
    return Platform(
        cluster=resolved.cluster,
        assumptions=(*assumptions, *resolved.assumptions),
        notices=found.notes,
    )


def _one(name: str, reason: str) -> Assumption:
    return Assumption(
        name=name,
        value=1,
        reason=message("one_assumed", reason),
        source="docs/reference/job.md",
        how_to_set=f"{name}: 8",
    )


def _choice_in_estimate(key: str, values: tuple[Any, ...]) -> Mistake:
    return Mistake(
        message=message(
            "choice_in_estimate", "estimate answers for one configuration; {key} is a choice",
            key=key,
        ),
        path=key,
        value=list(values),
        near=tuple(str(value) for value in values[:3]),
        how_to_fix=message("choice_fix", "name one, or use `tuneplan plan`"),
    )  # fmt: skip


def cards_of(job: StatedJob, cluster: Cluster | None) -> tuple[int, int]:
    """Machines and cards of each: also where they are stated and the card is not."""
    if cluster is not None:
        return cluster.num_nodes, cluster.accelerators_per_node
    hardware = job.hardware
    stated = hardware.accelerators_per_node
    return hardware.num_nodes or 1, stated[0] if len(stated) == 1 else 1


def resolve(
    job: StatedJob,
    *,
    model: ModelArchitecture,
    platform: Platform,
    dataset: Dataset,
    micro_batch: int | None = None,
) -> Resolved:
    """Framework defaults, batch and schedule of one configuration.

    ``micro_batch`` stands in for a blank, ``auto`` or a choice of
    ``training.per_device_train_batch_size``.
    """
    cluster = platform.cluster
    nodes, per_node = cards_of(job, cluster)
    ranks = nodes * per_node
    stated = job.recipe
    if micro_batch is not None:
        training = replace(stated.training, per_device_train_batch_size=micro_batch)
        stated = replace(stated, training=training)
    found = resolve_recipe(
        stated,
        model,
        cluster.accelerator if cluster else None,
        world_size=ranks,
        num_nodes=nodes,
    )
    statistics = dataset.statistics
    found = with_trained_share(found, statistics)
    schedule = schedule_of(found)
    batch = shape_of_batch(
        statistics,
        found.recipe,
        found.run.padding,
        samples_seen=samples_seen(found, dataset, ranks),
    )
    dataset = _with_ordinary_length(dataset, found)
    return Resolved(
        job=job,
        model=model,
        recipe=found.recipe,
        parallelism=found.parallelism,
        cluster=cluster,
        dataset=dataset,
        batch=batch,
        schedule=schedule,
        save_total_limit=found.run.save_total_limit,
        software=found.software,
        assumptions=(*platform.assumptions, *dataset.assumptions, *found.assumptions),
        notices=(*platform.notices, *dataset.notices, *found.notices),
    )


def _with_ordinary_length(dataset: Dataset, found: ResolvedRecipe) -> Dataset:
    """Says which length is assumed where neither the data nor the framework decides it."""
    recipe = found.recipe
    if dataset.statistics is not None or not takes_ordinary_length(recipe, found.run.padding):
        return dataset
    length = min(ORDINARY_LENGTH, recipe.max_length)
    assumption = Assumption(
        name="data.mean_tokens",
        value=length,
        reason=message(
            "ordinary_length",
            "neither data nor max_length is stated and {framework} cuts nothing: the longest "
            "sample decides; this is an ordinary length",
            framework=recipe.framework,
        ),
        source="LLaMA-Factory data_args cutoff_len",
        how_to_set=sentence("--data FILE, or --set training.max_length=4096"),
    )
    notice = Notice(
        message=message(
            "no_data_no_length",
            "nothing is said about the data, and {framework} cuts no sample: rows of {length:,} "
            "tokens are assumed, and longer ones need more (up to {limit:,} where the model "
            "allows them); hours and cost are unknown; name data.path, or training.max_length",
            framework=recipe.framework,
            length=length,
            limit=recipe.max_length,
        ),
        path="training.max_length",
    )
    return replace(
        dataset,
        assumptions=(*dataset.assumptions, assumption),
        notices=(*(one for one in dataset.notices if one.message.code != "no_data"), notice),
    )


def with_trained_share(found: ResolvedRecipe, statistics: TokenStatistics | None) -> ResolvedRecipe:
    """The recipe with the share of tokens that reach the head, where the loss skips the others."""
    recipe = found.recipe
    if statistics is None or not recipe.loss.skips_masked:
        return found
    loss = replace(recipe.loss, trained_fraction=statistics.trained_tokens_fraction)
    return replace(found, recipe=replace(recipe, loss=loss))


def schedule_of(found: ResolvedRecipe) -> Schedule:
    """What decides the run, as the framework's version rounds it."""
    run = found.run
    return Schedule(
        num_train_epochs=run.num_train_epochs,
        max_steps=run.max_steps,
        rounds_up=_rounds_up(found.software),
        eval_steps=run.eval_steps,
        per_device_eval_batch_size=run.per_device_eval_batch_size,
        save_steps=run.save_steps,
        evaluates_each_epoch=run.evaluates_each_epoch,
        saves_each_epoch=run.saves_each_epoch,
    )


def _rounds_up(software: Mapping[str, str]) -> bool:
    """Transformers 5 makes a started group of micro-batches a step, earlier versions drop it."""
    from packaging.version import InvalidVersion, Version

    try:
        return Version(software.get("transformers", "5")).major >= 5
    except InvalidVersion:
        return True


def samples_seen(found: ResolvedRecipe, dataset: Dataset, ranks: int) -> float:
    """Samples that the whole run draws."""
    statistics = dataset.statistics
    samples = statistics.num_samples if statistics else 0
    if found.run.max_steps:
        recipe = found.recipe
        each = recipe.per_device_train_batch_size * recipe.gradient_accumulation_steps
        return float(found.run.max_steps * each * ranks)
    return float(math.ceil(samples * found.run.num_train_epochs))
