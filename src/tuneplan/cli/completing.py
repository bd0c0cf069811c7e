"""What a tab completes: names of models and accelerators, keys of the job file, files.

Each takes what click gives (context, parameter, what stands there so far) and is asked only while
a shell completes. Names are offered without blanks (``H100-SXM``), which a shell would break.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def files(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Files and folders: the shell knows them best."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def models(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of the catalogue, with their owner and without."""
    from tuneplan.catalog.models import load_models

    names = [entry.hf_id or entry.name for entry in load_models().entries()]
    short = [name.partition("/")[2] for name in names if "/" in name]
    return _beginning(names, incomplete) or _beginning(short, incomplete)


def accelerators(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Names of the catalogue as people say them: without the maker."""
    return _beginning(accelerator_words(), incomplete)


def names_of_a_kind(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Names of what the command's KIND lists."""
    kinds = {"models": models, "accelerators": accelerators}
    of_kind = kinds.get(str(context.params.get("kind")))
    return of_kind(context, parameter, incomplete) if of_kind else []


def accelerator_words() -> Sequence[str]:
    """A name without blanks for each accelerator of the catalogue."""
    from tuneplan.catalog.accelerators import load_accelerators

    makers = ("NVIDIA GeForce ", "NVIDIA ", "AMD Instinct ", "AMD ", "Intel ", "Apple ")
    words = []
    for entry in load_accelerators().entries:
        name = entry.accelerator.name
        said = next((name.removeprefix(one) for one in makers if name.startswith(one)), name)
        words.append(said.partition(" (")[0].replace(" ", "-"))
    return words


def methods(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Ways to train."""
    from tuneplan.spec.recipe import Method

    return _beginning([one.value for one in Method], incomplete)


def frameworks(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Frameworks whose defaults are known."""
    from tuneplan.frameworks.registry import FRAMEWORKS

    return _beginning(FRAMEWORKS, incomplete)


def settings(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Keys of the job file, to go on after the ``=``."""
    from tuneplan.contract.job import keys

    return _beginning([f"{key}=" for key in keys()], incomplete)


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    """Those that begin so, upper and lower case alike, each once."""
    wanted = incomplete.replace(" ", "-").lower()
    return [name for name in dict.fromkeys(names) if name.lower().startswith(wanted)]
