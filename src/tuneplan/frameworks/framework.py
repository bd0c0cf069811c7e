"""What a module of this room offers to be a framework."""

from __future__ import annotations

from collections.abc import Callable

from tuneplan.frameworks.context import Context, Head
from tuneplan.frameworks.ledger import Default
from tuneplan.frameworks.settings import Defaults, Settings
from tuneplan.frameworks.stack import Stack
from tuneplan.frozen import dataclass
from tuneplan.spec.parallelism import Strategy
from tuneplan.spec.recipe import Method

ANY_STRATEGY = tuple(one for one in Strategy if one is not Strategy.SINGLE)
HUGGING_FACE_LIBRARIES = ("torch", "transformers", "peft", "accelerate", "bitsandbytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """One framework.

    Attributes:
        name: As the job file writes it.
        aliases: Other spellings, lower case.
        package: Whose version ``framework_version`` is; "" where it has none of its own.
        libraries: The others whose versions decide what runs.
        method, strategy: What runs when the job names none.
        defaults: What each job key is when blank.
        stack: What the framework makes of the settings.
        strategies: Those of several cards that it can run, as described here.
        lacks: Libraries of kernels and states that it has no switch for.
        on_one_card: Strategy of a single rank, where an engine runs even there.
        degrees: Names of the degrees (tensor, pipeline, context, expert) that it can run.
        packing_needs_flash: Packing is refused without a flash kernel.
    """

    name: str
    aliases: tuple[str, ...] = ()
    package: str = ""
    libraries: tuple[str, ...] = HUGGING_FACE_LIBRARIES
    method: Callable[[Context], Default[Method]]
    strategy: Callable[[Context, Method], Default[Strategy]]
    defaults: Callable[[Context, Head], Defaults]
    stack: Callable[[Context, Settings], Stack]
    strategies: tuple[Strategy, ...] = ANY_STRATEGY
    lacks: tuple[str, ...] = ()
    on_one_card: Strategy = Strategy.SINGLE
    packing_needs_flash: bool = False
    degrees: tuple[str, ...] = ()
