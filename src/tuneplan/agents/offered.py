"""The tools: what each takes, and the words of the command that answers it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tuneplan.frozen import dataclass

Words = Sequence[str]
_TEXT: Final = {"type": "string", "minLength": 1, "maxLength": 4096}
_LONG: Final = 4 * 2**20
_KEPT_WORDS: Final = frozenset(
    [
        *("type", "enum", "const", "anyOf", "items", "properties", "$ref", "$defs", "required"),
        *("additionalProperties", "minimum", "maximum", "minItems", "pattern"),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool.

    Attributes:
        answer: Name of the schema of what it gives.
        words: Of the command line, from checked arguments; files that a call brings along are
            written into the folder given.
        paths: Arguments that name files.
    """

    name: str
    title: str
    description: str
    answer: str
    input_schema: Callable[[], dict[str, Any]]
    words: Callable[[Mapping[str, Any], Path], list[str]]
    paths: tuple[str, ...] = ()


def _object(properties: Mapping[str, Any], *, required: Sequence[str] = ()) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


def slim(schema: Any) -> Any:
    """A JSON Schema without its prose: what may stand where."""
    if isinstance(schema, list):
        return [slim(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Any] = {}
    for name, value in schema.items():
        if name in ("properties", "$defs"):
            kept[name] = {key: slim(one) for key, one in value.items()}
        elif name in _KEPT_WORDS:
            kept[name] = slim(value)
    return kept


def _job_schema() -> dict[str, Any]:
    from tuneplan.contract.schema import json_schema

    return slim(json_schema("job"))  # type: ignore[no-any-return]


_SHORT: Final = {
    "model": {**_TEXT, "description": "Catalogue name, hub id, folder, config.json, or 7B."},
    "method": {**_TEXT, "description": "full, freeze, lora, dora, qlora or gptq-lora."},
    "accelerator": {**_TEXT, "description": "Catalogue name or alias."},
    "count": {"type": "integer", "minimum": 1, "description": "Accelerators per node."},
    "max_length": {"type": "integer", "minimum": 1, "description": "Longest sequence, tokens."},
    "framework": {**_TEXT, "description": "NAME or NAME==VERSION."},
    "data": {**_TEXT, "description": "File or folder of samples."},
}


def _job_input() -> dict[str, Any]:
    job = _job_schema()
    definitions = job.pop("$defs", {})
    properties = {
        "path": {**_TEXT, "description": "A job file; or give `job`, or the short fields alone."},
        "job": {**job, "description": "A job as the job file has it (resource tuneplan://job)."},
        **_SHORT,
    }
    return {**_object(properties), "$defs": definitions}


def _job_words(arguments: Mapping[str, Any], folder: Path) -> list[str]:
    words: list[str] = []
    if arguments.get("job") is not None:
        file = folder / "job.json"
        file.write_text(json.dumps(arguments["job"]), encoding="utf-8")
        words.append(str(file))
    elif arguments.get("path"):
        words.append(arguments["path"])
    for name in _SHORT:
        if arguments.get(name) is not None:
            words += [f"--{name.replace('_', '-')}", str(arguments[name])]
    return words


def _config_input() -> dict[str, Any]:
    return _object(
        {
            "path": {**_TEXT, "description": "The configuration; or give its text."},
            "text": {"type": "string", "maxLength": _LONG, "description": "Its content."},
            "file_name": {**_TEXT, "description": "Of that text: train.yaml, run.sh, ds.json."},
            "gpu": {**_TEXT, "description": "NAME:COUNT, such as H100:8."},
            "model": _SHORT["model"],
            "data": _SHORT["data"],
            "framework": _SHORT["framework"],
        }
    )


def _check_words(arguments: Mapping[str, Any], folder: Path) -> list[str]:
    words = [_given(arguments, folder, "text", arguments.get("file_name") or "config.yaml")]
    for name in ("gpu", "model", "data", "framework"):
        if arguments.get(name) is not None:
            words += [f"--{name}", str(arguments[name])]
    return words


def _given(arguments: Mapping[str, Any], folder: Path, text: str, file_name: str) -> str:
    """The path of the request, or that of its text in a file of this call."""
    if arguments.get(text) is not None:
        file = folder / Path(file_name).name
        file.write_text(arguments[text], encoding="utf-8")
        return str(file)
    return str(arguments.get("path") or "")


def _oom_input() -> dict[str, Any]:
    schema = _job_input()
    schema["properties"] |= {
        "log": {"type": "string", "maxLength": _LONG, "description": "Text of the failed run."},
        "log_path": {**_TEXT, "description": "Its file."},
        "gpu": {**_TEXT, "description": "NAME:COUNT, such as H100:8."},
    }
    return schema


def _oom_words(arguments: Mapping[str, Any], folder: Path) -> list[str]:
    words = _job_words(arguments, folder)
    if arguments.get("log") is not None:
        file = folder / "run.log"
        file.write_text(arguments["log"], encoding="utf-8")
        words += ["--log", str(file)]
    elif arguments.get("log_path"):
        words += ["--log", arguments["log_path"]]
    if arguments.get("gpu"):
        words += ["--gpu", arguments["gpu"]]
    return words


def _profile_input() -> dict[str, Any]:
    return _object(
        {
            "files": {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": 1000},
            "model": {**_TEXT, "description": "The model whose tokenizer counts."},
            "tokenizer": {**_TEXT, "description": "A tokenizer file, or approximate."},
            "max_length": {"type": "array", "items": {"type": "integer", "minimum": 1}},
            "skip_bad_rows": {"type": "boolean"},
        },
        required=["files"],
    )


def _profile_words(arguments: Mapping[str, Any], _folder: Path) -> list[str]:
    words = list(arguments["files"])
    for name in ("model", "tokenizer"):
        if arguments.get(name) is not None:
            words += [f"--{name}", str(arguments[name])]
    for length in arguments.get("max_length") or ():
        words += ["--max-length", str(length)]
    if arguments.get("skip_bad_rows"):
        words.append("--skip-bad-rows")
    return [*words, "--workers", "1"]


def _catalog_input() -> dict[str, Any]:
    return _object(
        {
            "kind": {"type": "string", "enum": ["models", "accelerators", "prices"]},
            "name": {**_TEXT, "description": "One entry in full; all of them without it."},
        },
        required=["kind"],
    )


def _catalog_words(arguments: Mapping[str, Any], _folder: Path) -> list[str]:
    return [arguments["kind"], *([arguments["name"]] if arguments.get("name") else [])]


TOOLS: Final = (
    Tool(
        name="plan",
        title="Plan a fine-tuning job",
        description="Which accelerators, how many, which settings: ranked plans with memory, "
        "hours and cost as ranges, why others were left out, and every assumption.",
        answer="plan",
        input_schema=_job_input,
        words=_job_words,
        paths=("path", "model", "data"),
    ),
    Tool(
        name="estimate",
        title="Estimate one configuration",
        description="Whether one configuration fits, how fast it is and what it costs, as ranges "
        "with terms and assumptions.",
        answer="estimate",
        input_schema=_job_input,
        words=_job_words,
        paths=("path", "model", "data"),
    ),
    Tool(
        name="check",
        title="Check a configuration",
        description="A configuration of LLaMA-Factory, Axolotl, TRL, torchtune, LitGPT, ms-swift, "
        "DeepSpeed, Accelerate, or a launch script: does it fit, what is wrong, what helps most.",
        answer="check",
        input_schema=_config_input,
        words=_check_words,
        paths=("path", "model", "data"),
    ),
    Tool(
        name="oom",
        title="Why memory ran out",
        description="What ran out of memory, which tensor it was, and the fixes, cheapest first; "
        "from a log, a job, or both.",
        answer="oom",
        input_schema=_oom_input,
        words=_oom_words,
        paths=("path", "model", "data", "log_path"),
    ),
    Tool(
        name="data_profile",
        title="Profile training data",
        description="Tokens, lengths, truncation, padding and packing of data files, counted by "
        "the model's own tokenizer; bad rows located.",
        answer="data-profile",
        input_schema=_profile_input,
        words=_profile_words,
        paths=("files", "model", "tokenizer"),
    ),
    Tool(
        name="catalog",
        title="Facts with sources",
        description="Models, accelerators and prices that are known here, with source and date.",
        answer="catalog",
        input_schema=_catalog_input,
        words=_catalog_words,
    ),
)
COMMAND: Final[Mapping[str, tuple[str, ...]]] = {
    **{tool.name: (tool.name,) for tool in TOOLS},
    "data_profile": ("data", "profile"),
}
