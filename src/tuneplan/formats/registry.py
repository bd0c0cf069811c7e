"""Which formats there are, and which one a document is of."""

from __future__ import annotations

from importlib import import_module
from typing import Final, cast

from tuneplan.errors import UnknownName
from tuneplan.formats.foreign import ConfigFormat, ForeignDocument
from tuneplan.language import message

# Name to module; each is imported when it is needed.
FORMATS: Final[dict[str, str]] = {
    "axolotl": "tuneplan.formats.axolotl",
    "llamafactory": "tuneplan.formats.llamafactory",
    "trl": "tuneplan.formats.trl",
    "transformers": "tuneplan.formats.trainer",
    "deepspeed": "tuneplan.formats.deepspeed",
    "accelerate": "tuneplan.formats.accelerate",
    "torchtune": "tuneplan.formats.torchtune",
    "litgpt": "tuneplan.formats.litgpt",
    "lm-evaluation-harness": "tuneplan.formats.evaluation_task",
    "ms-swift": "tuneplan.formats.ms_swift",
    "megatron": "tuneplan.formats.megatron",
    "nemo": "tuneplan.formats.nemo",
    "colossalai": "tuneplan.formats.colossalai",
    "unsloth": "tuneplan.formats.unsloth",
    "qwen": "tuneplan.formats.qwen",
    "fastchat": "tuneplan.formats.fastchat",
}
_LEAST_SURE: Final = 0.2


def format_named(name: str) -> ConfigFormat:
    """A format by name.

    Raises:
        UnknownName: There is none of that name; with those there are.
    """
    if name not in FORMATS:
        raise UnknownName(
            message("unknown_format", "there is no configuration format {name}", name=name),
            name=name,
            near=tuple(FORMATS),
        )
    return cast("ConfigFormat", import_module(FORMATS[name]))


def recognised(document: ForeignDocument) -> tuple[str, ...]:
    """The formats that a document may be of, the surest first."""
    sure = {name: format_named(name).recognise(document) for name in FORMATS}
    likely = [name for name, share in sure.items() if share >= _LEAST_SURE]
    return tuple(sorted(likely, key=lambda name: -sure[name]))
