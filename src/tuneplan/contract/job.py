"""The job file, key by key: type, bounds, meaning.

How the model is trained stands in ``job_training.py``, what it runs on in ``job_hardware.py``, the
project around it in ``job_project.py``; everything else, and the file as a whole, here.

Every field is ``Annotated`` with a reader (``values.py``) and described once; the reference page,
the JSON Schema and the checks are all made from them. A blank key is ``None``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, Final

from pydantic import Field
from pydantic_core import PydanticUndefined

from tuneplan.contract.job_hardware import HardwareSection, ParallelismSection
from tuneplan.contract.job_project import ProjectSection
from tuneplan.contract.job_training import AdapterSection, QuantizationSection, TrainingSection
from tuneplan.contract.section import Section
from tuneplan.contract.values import (
    Choice,
    Flag,
    Number,
    Quantity,
    Text,
    Texts,
    Word,
)
from tuneplan.contract.written import (
    ByName,
    FrameworkPin,
    Quantiles,
    Version,
)
from tuneplan.language import phrase
from tuneplan.units import parse_money, parse_seconds

FRAMEWORKS: Final = (
    "transformers",
    "trl",
    "llamafactory",
    "axolotl",
    "torchtune",
    "ms-swift",
    "unsloth",
    "litgpt",
    "nemo",
    "megatron",
    "torchtitan",
    "colossalai",
    "xtuner",
    "qwen",
    "generic",
)


class DataSection(Section):
    """What is trained on: files, a profile of them, or numbers. Exactly one of the three."""

    path: Annotated[tuple[str, ...] | None, Texts(what=phrase("file or folder"))] = Field(
        None, description="Files or folders of samples; relative to the job file."
    )
    profile: Annotated[str | None, Text(what=phrase("file"))] = Field(
        None, description="A file that `tuneplan data profile FILES --save FILE` wrote."
    )
    num_samples: Annotated[int | None, Number(low=1, high=10**12, whole=True)] = Field(
        None, description="Number of samples (rows), evaluation samples included."
    )
    mean_tokens: Annotated[float | None, Number(low=0, high=10**9, open_low=True)] = Field(
        None, description="Mean length of a sample in tokens, before truncation."
    )
    total_tokens: Annotated[int | None, Number(low=1, high=10**16, whole=True)] = Field(
        None, description="Tokens of all samples together; instead of `mean_tokens`."
    )
    quantiles: Annotated[dict[float, float] | None, Quantiles()] = Field(
        None, description="Lengths at quantiles: `{p50: 610, p95: 2900, max: 16000}`."
    )
    eval_fraction: Annotated[float | None, Number(low=0, high=1, open_high=True)] = Field(
        None, description="Share of the samples held out for evaluation."
    )
    tokenizer: Annotated[str | None, Text(what=phrase("tokenizer name, file or folder"))] = Field(
        None, description="Tokenizer that counts the tokens, where it is not the model's own."
    )
    skip_bad_rows: Annotated[bool | None, Flag()] = Field(
        None, description="Rows of `path` that cannot be used are left out, counted and listed."
    )


class LimitsSection(Section):
    """What a plan must keep to."""

    deadline: Annotated[float | None, Quantity(parse=parse_seconds, example="24 h", high=3.2e9)] = (
        Field(None, description="Longest duration of the whole run.")
    )
    budget: Annotated[Any, Quantity(parse=parse_money, example="500 USD", high=1e15)] = Field(
        None, description="Most that the run may cost."
    )
    headroom: Annotated[float | None, Number(low=0, high=1, open_high=True)] = Field(
        None, description="Share of the accelerator's memory that stays free."
    )
    regions: Annotated[tuple[str, ...] | None, Texts(what=phrase("region"))] = Field(
        None, description="Preferred regions."
    )
    residency: Annotated[str | None, Text(what=phrase("region"))] = Field(
        None,
        description="Region that the data must not leave; an offer without a region never does.",
    )
    providers: Annotated[tuple[str, ...] | None, Texts(what=phrase("provider"))] = Field(
        None, description="Providers that may be used; empty = all."
    )
    certifications: Annotated[tuple[str, ...] | None, Texts(what=phrase("certificate"))] = Field(
        None,
        description="Certificates that the site must have (`ISO 27001`); an offer that names none "
        "has none.",
    )
    single_tenant: Annotated[bool | None, Flag()] = Field(
        None, description="Nobody else may be on the machine; own hardware always satisfies it."
    )
    max_nodes: Annotated[int | None, Number(low=1, high=100_000, whole=True)] = Field(
        None, description="Most machines."
    )
    allow_interruptible: Annotated[bool | None, Flag()] = Field(
        None, description="Spot and preemptible offers count."
    )


class LintSection(Section):
    """What is not to be pointed out."""

    ignore: Annotated[tuple[str, ...] | None, Texts(what=phrase("rule"))] = Field(
        None, description="Rules that are silenced, by their identifiers."
    )


class JobFile(Section):
    """A fine-tuning job."""

    model: Annotated[
        str,
        Text(what=phrase("a model: a catalogue name, a hub id, a folder, config.json or a size")),
    ] = Field(
        description="What is trained: catalogue name, hub id, model folder, `config.json`, or a "
        "bare size such as `7B`."
    )
    framework: Annotated[str | None, FrameworkPin(words=FRAMEWORKS)] = Field(
        None, description="Training framework, with `==` and a version where it is known."
    )
    software: Annotated[dict[str, str] | None, ByName()] = Field(
        None,
        description="Versions of `torch`, `transformers`, `peft`, `bitsandbytes`, ...; or "
        "`date: 2026-10` for what was current then.",
    )
    date: Annotated[
        str | None, Version(what=phrase("a date: 2026-10 or 2026-10-05"), dated=True)
    ] = Field(None, description="The same as `software: {date: ...}`.")
    objective: Annotated[
        str | None,
        Word(
            words=("sft", "pretrain", "dpo", "kto", "orpo", "simpo", "rm", "grpo", "ppo"),
            also=(("pt", "pretrain"),),
        ),
    ] = Field(None, description="What is trained for.")
    method: Annotated[
        str | Choice | None,
        Word(
            words=("full", "freeze", "lora", "dora", "qlora", "gptq-lora"),
            also=(("gptq_lora", "gptq-lora"), ("q-lora", "qlora")),
            many=True,
        ),
    ] = Field(None, description="Which parameters are trained, and how the rest is held.")
    adapter: AdapterSection | None = Field(None, description="Low-rank adapters.")
    quantization: QuantizationSection | None = Field(None, description="The frozen base.")
    data: DataSection | None = Field(None, description="What is trained on.")
    training: TrainingSection | None = Field(None, description="The training run.")
    hardware: HardwareSection | None = Field(None, description="What it runs on.")
    parallelism: ParallelismSection | None = Field(None, description="How it is spread.")
    limits: LimitsSection | None = Field(None, description="What a plan must keep to.")
    prices: Annotated[tuple[str, ...] | None, Texts(what=phrase("price sheet file"))] = Field(
        None, description="Your own price sheets (YAML or CSV); they come before the bundled ones."
    )
    accelerators: Annotated[tuple[str, ...] | None, Texts(what=phrase("file"))] = Field(
        None, description="Your own accelerator files; they come before the bundled ones."
    )
    models: Annotated[tuple[str, ...] | None, Texts(what=phrase("file"))] = Field(
        None, description="Your own model files; they come before the bundled ones."
    )
    project: ProjectSection | None = Field(None, description="The project around the run.")
    lint: LintSection | None = Field(None, description="What is not to be pointed out.")
    goal: Annotated[str | None, Word(words=("cheapest", "fastest", "balanced"))] = Field(
        None, description="How plans are ranked."
    )


@cache
def sections() -> Mapping[str, type[Section]]:
    """Every section by key path, ``""`` for the top level."""
    found: dict[str, type[Section]] = {"": JobFile}
    for parent in ("", "hardware"):
        for name, field in found[parent].model_fields.items():
            kind = next(
                (a for a in getattr(field.annotation, "__args__", ()) if _is_section(a)), None
            )
            if kind is not None:
                found[f"{parent}.{name}".lstrip(".")] = kind
    return MappingProxyType(found)


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Section)


def keys() -> tuple[str, ...]:
    """Every key path of the job file, in its order: ``model``, ..., ``training.max_length``, ..."""
    return tuple(
        f"{path}.{name}".lstrip(".")
        for path, kind in sections().items()
        for name in kind.model_fields
    )


def is_required(kind: type[Section], name: str) -> bool:
    """Whether a key must be there."""
    return kind.model_fields[name].default is PydanticUndefined
