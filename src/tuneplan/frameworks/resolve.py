"""A stated recipe in, a recipe without blanks out: the entry point of this room."""

from __future__ import annotations

from collections.abc import Mapping

from tuneplan.frameworks.build import build_recipe
from tuneplan.frameworks.checks import check_packing, check_stated
from tuneplan.frameworks.choices import resolve_settings
from tuneplan.frameworks.context import Context
from tuneplan.frameworks.degrees import check_degrees, data_ranks, stated_degrees
from tuneplan.frameworks.head import resolve_head
from tuneplan.frameworks.ledger import Ledger, by_rule
from tuneplan.frameworks.measured import read_facts
from tuneplan.frameworks.registry import find_framework, split_name
from tuneplan.frameworks.settings import RunSettings
from tuneplan.frameworks.sharding import resolve_parallelism
from tuneplan.frameworks.software import resolve_software
from tuneplan.frozen import dataclass
from tuneplan.language import message
from tuneplan.spec.answer import Assumption, Notice
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.hardware import Accelerator
from tuneplan.spec.parallelism import Parallelism
from tuneplan.spec.recipe import TrainingRecipe
from tuneplan.spec.stated import StatedRecipe

DEFAULT_FRAMEWORK = "trl"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedRecipe:
    """What will really run.

    Attributes:
        recipe: Every setting of a step on one rank.
        parallelism: Who holds what.
        run: What decides the run: epochs, evaluation, saving, padding.
        assumptions: One for everything nobody stated.
        notices: What the reader should know.
        software: Library to version, stated and assumed.
    """

    recipe: TrainingRecipe
    parallelism: Parallelism
    run: RunSettings
    assumptions: tuple[Assumption, ...]
    notices: tuple[Notice, ...]
    software: Mapping[str, str]


def resolve_recipe(
    stated: StatedRecipe,
    architecture: ModelArchitecture,
    accelerator: Accelerator | None,
    *,
    world_size: int,
    num_nodes: int = 1,
) -> ResolvedRecipe:
    """Resolve a stated recipe on a model, a chip and a number of ranks.

    A ``per_device_train_batch_size`` that is ``"auto"`` or a choice counts as blank here; callers
    that search put an integer in.

    Raises:
        InvalidRequest: Every contradiction and unknown word at once.
        NotSupported: What has no formula yet, by name.
        UnknownName: A framework that nobody knows.
    """
    ledger = Ledger()
    name = split_name(stated.framework or "")[0]
    if not name:
        reason = message("framework_trl", "the usual library for fine-tuning in Python")
        name = ledger.assume(
            "framework", by_rule(DEFAULT_FRAMEWORK, reason, "docs/reference/job.md")
        )
    framework = find_framework(name)
    measured = read_facts(stated.facts)
    degrees = stated_degrees(stated, measured, framework)
    context = Context(
        architecture=architecture,
        accelerator=accelerator,
        software=resolve_software(stated, framework, architecture, ledger),
        stated=stated,
        measured=measured,
        world_size=data_ranks(degrees, world_size, ledger),
        num_nodes=num_nodes,
        degrees=degrees,
    )
    head = resolve_head(context, framework, ledger)
    check_stated(context, head, ledger)
    check_degrees(degrees, architecture, head.method, ledger)
    ledger.refuse_mistakes()
    settings = resolve_settings(context, head, framework.defaults(context, head), ledger)
    check_packing(framework, settings, ledger)
    ledger.refuse_mistakes()
    stack = framework.stack(context, settings)
    recipe = build_recipe(context, settings, stack, ledger)
    parallelism = resolve_parallelism(context, settings, stack, ledger)
    ledger.refuse_mistakes()
    return ResolvedRecipe(
        recipe=recipe,
        parallelism=parallelism,
        run=settings.run,
        assumptions=tuple(ledger.assumptions),
        notices=tuple(ledger.notices),
        software=context.software.versions,
    )
