"""Which program ran, and with which libraries: names and versions out of their columns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Final

from tuneplan.frozen import dataclass
from tuneplan.runs.rows import MeasuredRun
from tuneplan.units import MONTHS, date_in

# What a table of runs calls a program, to the name under which its defaults are known. Programs
# whose layouts or model code have no formula yet keep a name too: they are refused by name later.
_FRAMEWORKS: Final[tuple[tuple[str, str], ...]] = (
    ("ms-swift (megatron)", "megatron"),
    ("ms-swift + unsloth", "unsloth"),
    ("ms-swift", "ms-swift"),
    ("swift", "ms-swift"),
    ("fms-hf-tuning", "fms-hf-tuning"),
    ("fsdp_qlora", "fsdp_qlora"),
    ("answerdotai fsdp_qlora", "fsdp_qlora"),
    ("lit-gpt", "litgpt"),
    ("litgpt", "litgpt"),
    ("llama-factory", "llamafactory"),
    ("llamafactory", "llamafactory"),
    ("llm-foundry", "llm-foundry"),
    ("axolotl", "axolotl"),
    ("unsloth", "unsloth"),
    ("torchtune", "torchtune"),
    ("torchtitan", "torchtitan"),
    ("xtuner", "xtuner"),
    ("h2o-llmstudio", "h2o-llmstudio"),
    ("colossal", "colossalai"),
    ("megatron-bridge", "nemo"),
    ("megatron-deepspeed", "megatron-deepspeed"),
    ("megatron", "megatron"),
    ("nemo", "nemo"),
    ("maxtext", "maxtext"),
    ("paxml", "paxml"),
    ("arctictraining", "arctictraining"),
    ("fms-fsdp", "fms-fsdp"),
    ("peft custom loop", "peft-loop"),
    ("transformers + peft (custom", "custom"),
    ("peft + accelerate", "transformers"),
    ("accelerate", "transformers"),
    ("trl", "trl"),
    ("transformers/trl", "trl"),
    ("transformers", "transformers"),
    ("hf trainer", "transformers"),
    ("deepspeed", "deepspeed"),
    ("generic", "generic"),
)
# Repositories whose rows name the library alone although they ran the repository's own script.
_SCRIPTS: Final = MappingProxyType({("qwenlm/qwen", "transformers"): "qwen"})
_LIBRARIES: Final = MappingProxyType(
    {
        "bnb": "bitsandbytes",
        "lit-gpt": "litgpt",
        "pytorch": "torch",
        "swift": "ms-swift",
        "ms_swift": "ms-swift",
        "flash_attn": "flash-attn",
        "llama-factory": "llamafactory",
    }
)
_PINNED: Final = re.compile(r"^\s*([A-Za-z][\w.\-]*?)\s*(?:==|=|\s)\s*(v?[\w.+]*\d[\w.+]*)\s*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """The program and its libraries.

    Attributes:
        framework: Canonical name; None where the row names none; the row's own word where nobody
            knows it (then it is refused by name).
        version: Of the program, as stated.
        libraries: Name to version.
        date: ``2024-03`` or ``2024-03-18``, where the row dates its software.
    """

    framework: str | None = None
    version: str | None = None
    libraries: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    date: str | None = None


def software_of(run: MeasuredRun) -> Software:
    """Program, versions and date of a run; the version columns win over the free column.

    A row of a repository that ships its own training script ran that script; unless the row states
    a version of it, it is the one at the commit that the row was read at.
    """
    framework = canonical_framework(run.framework)
    script = _SCRIPTS.get((run.repository.casefold(), framework or ""))
    text = run.framework_version
    pinned: dict[str, str] = {}
    rest: list[str] = []
    for part in re.split(r"[;,]", text):
        match = _PINNED.match(part)
        if match is not None and not match[1].casefold().startswith(MONTHS):
            name = match[1].casefold()
            pinned[_LIBRARIES.get(name, name)] = match[2]
        elif part.strip():
            rest.append(part.strip())
    if script is not None:
        framework = script
    own = pinned.pop(framework, None) if framework else None
    if script is not None and own is None:
        own = run.commit or None
    pinned |= run.software
    return Software(
        framework=framework,
        version=own or _own_version(rest, framework, pinned),
        libraries=MappingProxyType(pinned),
        date=date_in(text),
    )


def canonical_framework(text: str) -> str | None:
    """``fms-hf-tuning/HF SFTTrainer + ...`` is ``fms-hf-tuning``; None for a blank cell."""
    words = " ".join(text.casefold().split())
    if not words:
        return None
    name = words.split("==")[0].strip()
    for start, canonical in sorted(_FRAMEWORKS, key=lambda pair: -len(pair[0])):
        if name == start or name.startswith(start):
            return canonical
    return text.strip()


def _own_version(rest: list[str], framework: str | None, pinned: Mapping[str, str]) -> str | None:
    """What is left of the text is the program's own version, unless it only dates the run."""
    if framework is not None and framework in pinned:
        return pinned[framework]
    for part in rest:
        if (
            re.search(r"\d", part)
            and not re.fullmatch(r"[\d\s().,-]+", part)
            and (not date_in(part) or re.search(r"v?\d+\.\d+", part))
        ):
            return part
    return None
