"""Every framework by name."""

from __future__ import annotations

import difflib
import re
from typing import Final

from tuneplan.errors import NotSupported, UnknownName
from tuneplan.frameworks.axolotl import AXOLOTL
from tuneplan.frameworks.custom import CUSTOM, PEFT_LOOP
from tuneplan.frameworks.deepspeed import DEEPSPEED
from tuneplan.frameworks.fms import FMS
from tuneplan.frameworks.framework import Framework
from tuneplan.frameworks.fsdp_qlora import FSDP_QLORA
from tuneplan.frameworks.generic import GENERIC
from tuneplan.frameworks.litgpt import LITGPT
from tuneplan.frameworks.llamafactory import LLAMAFACTORY
from tuneplan.frameworks.llm_foundry import LLM_FOUNDRY
from tuneplan.frameworks.megatron import MEGATRON, MEGATRON_DEEPSPEED, NEMO
from tuneplan.frameworks.ms_swift import MS_SWIFT
from tuneplan.frameworks.qwen import QWEN
from tuneplan.frameworks.torchtitan import TORCHTITAN
from tuneplan.frameworks.torchtune import TORCHTUNE
from tuneplan.frameworks.transformers import TRANSFORMERS
from tuneplan.frameworks.trl import TRL
from tuneplan.frameworks.unsloth import UNSLOTH
from tuneplan.language import message

FRAMEWORKS: Final = {
    framework.name: framework
    for framework in (
        TRL,
        TRANSFORMERS,
        LLAMAFACTORY,
        AXOLOTL,
        TORCHTUNE,
        TORCHTITAN,
        MS_SWIFT,
        UNSLOTH,
        LITGPT,
        GENERIC,
        CUSTOM,
        PEFT_LOOP,
        FMS,
        FSDP_QLORA,
        LLM_FOUNDRY,
        DEEPSPEED,
        QWEN,
        MEGATRON,
        NEMO,
        MEGATRON_DEEPSPEED,
    )
}
# Known by name, not yet described: refused rather than approximated.
NOT_SUPPORTED: Final = (
    "arctictraining",
    "colossal-ai",
    "colossalai",
    "colossalchat",
    "fms-fsdp",
    "h2o-llmstudio",
    "lmflow",
    "maxtext",
    "paxml",
    "xtuner",
)

# Programs of published runs, described to compare with them; a job cannot ask for one.
_OF_PUBLISHED_RUNS: Final = frozenset(
    framework.name
    for framework in (
        CUSTOM,
        PEFT_LOOP,
        FMS,
        FSDP_QLORA,
        LLM_FOUNDRY,
        DEEPSPEED,
        MEGATRON_DEEPSPEED,
    )
)


def split_name(text: str) -> tuple[str, str | None]:
    """Name and version of ``trl==1.16``, ``trl 1.16`` or ``trl``."""
    match = re.match(r"^\s*(.+?)\s*==\s*v?([\w.+-]+)\s*$", text)
    if match is None:
        match = re.match(r"^\s*([A-Za-z][\w-]*)[\s@]+v?(\d[\w.+-]*)\s*$", text)
    return (match[1], match[2]) if match is not None else (text.strip(), None)


def find_framework(name: str) -> Framework:
    """The framework of a name or alias, whatever its case.

    Raises:
        NotSupported: For a framework that exists but has no description here yet.
        UnknownName: For any other name, with close matches.
    """
    key = name.strip().lower()
    if key in FRAMEWORKS:
        return FRAMEWORKS[key]
    for framework in FRAMEWORKS.values():
        if key in framework.aliases:
            return framework
    if key.startswith(NOT_SUPPORTED):
        raise NotSupported(
            message(
                "framework_not_supported",
                "framework {name!r} is part of a later release; supported now: {known}",
                name=name,
                known=", ".join(sorted(set(FRAMEWORKS) - _OF_PUBLISHED_RUNS)),
            ),
            path="framework",
            value=name,
        )
    spellings = {alias: f.name for f in FRAMEWORKS.values() for alias in (f.name, *f.aliases)}
    close = difflib.get_close_matches(key, spellings, n=3, cutoff=0.5)
    near = list(dict.fromkeys(spellings[alias] for alias in close)) or sorted(FRAMEWORKS)
    raise UnknownName(
        message(
            "unknown_framework",
            "{name!r} is not a framework we know",
            name=name,
        ),
        name=name,
        near=near,
    )
