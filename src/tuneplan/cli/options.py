"""Options that commands share: the job and its short flags, ``--json`` and ``--lang``."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from tuneplan.cli import completing
from tuneplan.frozen import dataclass
from tuneplan.language import LANGUAGES, language_of_environment, message, say, sentence

if TYPE_CHECKING:
    from tuneplan.spec.stated import StatedJob

Command = TypeVar("Command", bound=Callable[..., Any])

# Short flag, key of the job file, help. Those of `_SEVERAL` may be given several times.
_FLAGS: Final = (
    (
        "--model",
        "model",
        sentence("Catalogue name, hub id, model folder, config.json or a size: 7B."),
    ),
    (
        "--method",
        "method",
        sentence("full, freeze, lora, dora, qlora or gptq-lora; several = a choice."),
    ),
    (
        "--accelerator",
        "hardware.accelerator",
        sentence("Catalogue name or alias, also NAME:COUNT (H100:8); several = a choice."),
    ),
    (
        "--count",
        "hardware.accelerators_per_node",
        sentence("Accelerators per node; several = a choice."),
    ),
    ("--max-length", "training.max_length", sentence("Longest sequence in tokens.")),
    (
        "--framework",
        "framework",
        sentence("trl, llamafactory, axolotl, ...; with ==VERSION if known."),
    ),
    ("--data", "data.path", sentence("Files or folders of samples.")),
)
_COMPLETED: Final = {
    "--model": completing.models,
    "--method": completing.methods,
    "--accelerator": completing.accelerators,
    "--framework": completing.frameworks,
    "--data": completing.files,
}
_SEVERAL: Final = ("--method", "--accelerator", "--count", "--data")
_SPELLINGS: Final = {"--accelerator": ("--accelerator", "--gpu", "accelerator")}
_GPU: Final = re.compile(r"(?P<name>.+?)(?::(?P<count>\d{1,5})(?:x(?P<nodes>\d{1,5}))?)?")
_GPU_KEYS: Final = ("hardware.accelerators_per_node", "hardware.num_nodes")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """A job as the command line gives it: a file, short flags, ``--set``."""

    source: str | None
    overrides: Mapping[str, Any]
    settings: Sequence[str]

    @property
    def given(self) -> bool:
        """Whether anything is said of a job."""
        return bool(self.source or self.overrides or self.settings)

    def read(self) -> StatedJob:
        """Read the job, or refuse it with every mistake."""
        from tuneplan.contract.reading import load_job
        from tuneplan.errors import InputError, InvalidRequest

        try:
            return load_job(self.source, overrides=self.overrides, set_=self.settings)
        except InputError:
            from tuneplan.planner.importing import foreign_instead

            foreign = foreign_instead(self.source)
            if foreign is None:
                raise
            raise InvalidRequest([foreign]) from None


def job_options(function: Command) -> Command:
    """The JOB argument, its short flags and ``--set``; the function gets a ``JobRequest``."""

    @wraps(function)  # click keeps the options of the decorators below on the function itself
    def gather(*positional: Any, **values: Any) -> Any:
        names = {key: flag.lstrip("-").replace("-", "_") for flag, key, _ in _FLAGS}
        flags = {key: values.pop(name) for key, name in names.items()}
        source, settings = values.pop("job"), values.pop("settings")
        for flag, key, _ in _FLAGS:
            refuse_blank(flag, flags[key])
        overrides = {key: plain(value) for key, value in flags.items() if value not in (None, ())}
        overrides |= _counted(overrides)
        request = JobRequest(source=source, overrides=overrides, settings=settings)
        return function(*positional, job=request, **values)

    wrapped: Any = click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        shell_complete=completing.settings,
        help="Any key of the job file: --set training.packing=true.",
    )(gather)
    for flag, _, text in reversed(_FLAGS):
        wrapped = click.option(
            *_SPELLINGS.get(flag, (flag,)),
            multiple=flag in _SEVERAL,
            help=text,
            shell_complete=_COMPLETED.get(flag),
        )(wrapped)
    return click.argument(  # type: ignore[no-any-return]
        "job", required=False, metavar="[JOB]", shell_complete=completing.files
    )(wrapped)


def gpu_keys(text: str) -> dict[str, Any]:
    """Keys of ``NAME``, ``NAME:COUNT`` or ``NAME:COUNTxNODES``.

    Raises:
        BadParameter: It is none of these.
    """
    match = _GPU.fullmatch(text)
    counts = [match["count"], match["nodes"]] if match else []
    if match is None or ":" in match["name"] or any(one and int(one) == 0 for one in counts):
        told = say("--gpu: {text} is not a name with a count, such as H100:8", text=text)
        raise click.BadParameter(told)
    flags: dict[str, Any] = {"hardware.accelerator": match["name"].strip()}
    return flags | {key: int(one) for key, one in zip(_GPU_KEYS, counts, strict=True) if one}


def _counted(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """What ``NAME:COUNT`` says of accelerators: their names, and the count that all share.

    Raises:
        BadParameter: They have different counts, or ``--count`` says another.
    """
    said = overrides.get("hardware.accelerator")
    names = said if isinstance(said, list) else [said]
    if not any(isinstance(one, str) and ":" in one for one in names):
        return {}
    each = [gpu_keys(str(one)) for one in names]
    counts = [{key: value for key, value in one.items() if key in _GPU_KEYS} for one in each]
    shared = counts[0]
    if any(one != shared for one in counts) or any(
        overrides.get(key, value) != value for key, value in shared.items()
    ):
        told = message(
            "gpu_counts_differ",
            "one count goes for all accelerators: name them without, and state --count; several "
            "are a choice (--count 1 --count 2)",
        )
        raise click.BadParameter(str(told))
    found = [one["hardware.accelerator"] for one in each]
    return {"hardware.accelerator": found if len(found) > 1 else found[0], **shared}


def refuse_blank(flag: str, value: str | tuple[str, ...] | None) -> None:
    """A flag with nothing behind it is a shell variable that is not set, not a wish."""
    for text in (value,) if isinstance(value, str) else value or ():
        if not text.strip(" ,"):
            told = message("blank_flag", "nothing stands behind {flag}", flag=flag)
            raise click.BadParameter(str(told))


def plain(value: str | tuple[str, ...]) -> Any:
    """Flags as the job file has them: digits are numbers, one of several is itself."""
    if isinstance(value, tuple):
        items = [plain(part) for text in value for part in text.split(",") if part.strip()]
        return items[0] if len(items) == 1 else items
    text = value.strip()
    unsigned = text.removeprefix("-")
    return int(text) if unsigned.isascii() and unsigned.isdigit() and len(text) < 19 else text


def answer_options(function: Command) -> Command:
    """``--json`` and ``--lang``, which every command takes.

    ``run`` reads both from the command line before click does, so that errors of usage obey them
    too; ``as_json`` is handed to the function.
    """
    return click.option(
        "--json", "as_json", is_flag=True, callback=_or_group, help="Answer as JSON on stdout."
    )(language_option(function))


def language_option(function: Command) -> Command:
    """``--lang``, which ``run`` reads before click does."""
    return click.option(
        "--lang", type=click.Choice(LANGUAGES), help="Language of the answer.", expose_value=False
    )(function)


def engine_options(function: Command) -> Command:
    """``--workers`` and ``--ray``: where the rows of data files are worked on."""
    wrapped = click.option(
        "--ray",
        "ray_address",
        metavar="ADDRESS",
        help="A Ray cluster that does the work, as HOST:PORT; local starts one here.",
    )(function)
    return click.option(
        "--workers",
        type=click.IntRange(min=1, max=1024),
        help="Processes; all cores where it is not given.",
    )(wrapped)


def _or_group(context: click.Context, _parameter: click.Parameter, value: bool) -> bool:  # noqa: FBT001 - click's signature
    """``tuneplan --json COMMAND`` means the same as ``tuneplan COMMAND --json``."""
    return value or bool(context.find_root().params.get("as_json"))


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether ``--json`` stands on the command line."""
    return "--json" in _before_end_of_options(arguments)


def language_of(arguments: Sequence[str]) -> str:
    """The language of ``--lang``, else of the environment."""
    chosen = language_of_environment(os.environ)
    options = _before_end_of_options(arguments)
    for position, argument in enumerate(options):
        if argument == "--lang" and position + 1 < len(options):
            chosen = options[position + 1]
        elif argument.startswith("--lang="):
            chosen = argument.partition("=")[2]
    return chosen if chosen in LANGUAGES else "en"


def _before_end_of_options(arguments: Sequence[str]) -> list[str]:
    found = list(arguments)
    return found[: found.index("--")] if "--" in found else found
