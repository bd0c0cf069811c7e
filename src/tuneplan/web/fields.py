"""The fields of the form, declared once: short name, key of the job file, how it is asked for.

A view may bring fields of its own (``View.fields``); those with no key are no part of the job.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from tuneplan.frozen import dataclass
from tuneplan.language import say

if TYPE_CHECKING:
    from tuneplan.web.world import World

LEAD: Final = "lead"


def _no_choices(_world: World) -> Sequence[str]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field.

    Attributes:
        name: In the address.
        key: Of the job file; empty for what only a view reads.
        kind: ``text``, ``number``, ``flag``, ``choice``, ``switch`` (a box that is ticked),
            ``area`` (many lines), ``file``, ``hidden``.
        group: ``lead`` is always open, the others fold.
        label: In the current language.
        hint: A few words more, in the current language; None for none.
        many: Commas part several values, which are a choice.
        choices: Of a ``choice``; of a text, those that are offered while one types.
        stops: Places of the slider; empty for none.
        example: What stands in the empty field.
    """

    name: str
    label: Callable[[], str]
    key: str = ""
    kind: str = "text"
    group: str = LEAD
    hint: Callable[[], str] | None = None
    many: bool = False
    choices: Callable[[World], Sequence[str]] = _no_choices
    stops: tuple[int, ...] = ()
    example: str = ""


def _words(*words: str) -> Callable[[World], Sequence[str]]:
    return lambda _world: words


def _models(world: World) -> Sequence[str]:
    return [entry.hf_id or entry.name for entry in world.sources().models.entries()]


def _accelerators(world: World) -> Sequence[str]:
    return [one.name for one in world.sources().accelerators.accelerators]


def group_label(group: str) -> str:
    """The heading of a group of fields."""
    return {
        "data": say("Data"),
        "training": say("Training"),
        "adapter": say("Adapter and quantisation"),
        "hardware": say("Hardware"),
        "limits": say("Limits and goal"),
        "files": say("Your own files"),
    }.get(group, group)


GROUPS: Final = (LEAD, "data", "training", "adapter", "hardware", "limits", "files")
_DOUBLINGS: Final = (1, 2, 4, 8, 16, 32, 64, 128)

FIELDS: Final = (
    Field(
        name="model",
        key="model",
        label=lambda: say("Model"),
        hint=lambda: say("a name, a hub id or a size such as 7B"),
        choices=_models,
        example="Qwen/Qwen2.5-7B-Instruct",
        group="training",
    ),
    Field(
        name="method",
        key="method",
        label=lambda: say("Method"),
        kind="choice",
        choices=_words("full", "freeze", "lora", "dora", "qlora", "gptq-lora"),
        many=True,
        group="training",
    ),
    Field(
        name="gpu",
        key="hardware.accelerator",
        label=lambda: say("Card"),
        hint=lambda: say("left open: all cards are compared"),
        choices=_accelerators,
        many=True,
        example="NVIDIA H100 SXM",
        group="hardware",
    ),
    Field(
        name="count",
        key="hardware.accelerators_per_node",
        label=lambda: say("Cards per machine"),
        kind="number",
        many=True,
        stops=(1, 2, 3, 4, 5, 6, 7, 8),
        group="hardware",
    ),
    Field(
        name="max_length",
        key="training.max_length",
        label=lambda: say("Longest sequence, tokens"),
        kind="number",
        many=True,
        stops=(
            *(256, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384),
            *(24576, 32768, 49152, 65536, 98304, 131072),
        ),
    ),
    Field(
        name="micro_batch",
        key="training.per_device_train_batch_size",
        label=lambda: say("Micro-batch, sequences per card"),
        kind="number",
        many=True,
        stops=_DOUBLINGS,
        group="training",
    ),
    Field(
        name="samples",
        key="data.num_samples",
        label=lambda: say("Samples"),
        kind="number",
        group="data",
        example="10000",
    ),
    Field(
        name="mean_tokens",
        key="data.mean_tokens",
        label=lambda: say("Tokens of a sample, on average"),
        kind="number",
        group="data",
        example="600",
    ),
    Field(
        name="total_tokens",
        key="data.total_tokens",
        label=lambda: say("Tokens in all"),
        hint=lambda: say("instead of samples and their tokens"),
        kind="number",
        group="data",
    ),
    Field(
        name="data",
        key="data.path",
        label=lambda: say("Files of samples"),
        hint=lambda: say("in a folder that the page may read"),
        group="data",
        many=True,
    ),
    Field(
        name="eval_fraction",
        key="data.eval_fraction",
        label=lambda: say("Share held out for evaluation"),
        kind="number",
        group="data",
        example="0.05",
    ),
    Field(
        name="tokenizer",
        key="data.tokenizer",
        label=lambda: say("Tokenizer"),
        group="data",
    ),
    Field(
        name="accumulation",
        key="training.gradient_accumulation_steps",
        label=lambda: say("Gradient accumulation, micro-batches per step"),
        kind="number",
        group="training",
        many=True,
        stops=_DOUBLINGS,
    ),
    Field(
        name="epochs",
        key="training.num_train_epochs",
        label=lambda: say("Epochs"),
        kind="number",
        group="training",
        stops=(1, 2, 3, 4, 5, 6, 8, 10),
    ),
    Field(
        name="steps",
        key="training.max_steps",
        label=lambda: say("or steps in all"),
        kind="number",
        group="training",
    ),
    Field(
        name="packing",
        key="training.packing",
        label=lambda: say("Packing"),
        kind="flag",
        group="training",
    ),
    Field(
        name="checkpointing",
        key="training.gradient_checkpointing",
        label=lambda: say("Gradient checkpointing"),
        kind="choice",
        group="training",
        choices=_words("true", "false", "selective", "offload"),
        many=True,
    ),
    Field(
        name="optimizer",
        key="training.optim",
        label=lambda: say("Optimizer"),
        group="training",
        choices=_words(
            *("adamw_torch", "adamw_torch_fused", "adamw_bnb_8bit", "paged_adamw_8bit"),
            *("adafactor", "sgd", "lion_8bit"),
        ),
        many=True,
    ),
    Field(
        name="precision",
        key="training.precision",
        label=lambda: say("Precision of the computation"),
        kind="choice",
        group="training",
        choices=_words("bf16", "fp16", "fp32", "tf32", "none"),
        many=True,
    ),
    Field(
        name="attention",
        key="training.attn_implementation",
        label=lambda: say("Attention kernel"),
        kind="choice",
        group="training",
        choices=_words("auto", "eager", "sdpa", "flash_attention_2", "flash_attention_3"),
        many=True,
    ),
    Field(
        name="framework",
        key="framework",
        label=lambda: say("Framework"),
        group="training",
        choices=_words("trl", "transformers", "llamafactory", "axolotl", "torchtune", "ms-swift"),
    ),
    Field(
        name="rank",
        key="adapter.r",
        label=lambda: say("Rank of the adapters"),
        kind="number",
        group="adapter",
        many=True,
        stops=(4, 8, 16, 32, 64, 128, 256),
    ),
    Field(
        name="targets",
        key="adapter.target_modules",
        label=lambda: say("Layers that get an adapter"),
        group="adapter",
        many=True,
        example="all-linear",
    ),
    Field(
        name="bits",
        key="quantization.bits",
        label=lambda: say("Bits of a frozen weight"),
        kind="choice",
        group="adapter",
        choices=_words("4", "8"),
    ),
    Field(
        name="nodes",
        key="hardware.num_nodes",
        label=lambda: say("Machines"),
        kind="number",
        group="hardware",
        many=True,
        stops=(1, 2, 4, 8, 16, 32),
    ),
    Field(
        name="strategy",
        key="parallelism.strategy",
        label=lambda: say("Who holds what"),
        kind="choice",
        group="hardware",
        choices=_words(
            *("auto", "ddp", "zero1", "zero2", "zero3", "fsdp", "fsdp2", "hsdp"),
            *("single", "device_map"),
        ),
        many=True,
    ),
    Field(
        name="offload",
        key="parallelism.offload",
        label=lambda: say("Kept in main memory"),
        kind="choice",
        group="hardware",
        choices=_words("none", "optimizer", "params"),
        many=True,
    ),
    Field(
        name="deadline",
        key="limits.deadline",
        label=lambda: say("Done within"),
        group="limits",
        example="24 h",
    ),
    Field(
        name="budget",
        key="limits.budget",
        label=lambda: say("Costs at most"),
        group="limits",
        example="500 USD",
    ),
    Field(
        name="headroom",
        key="limits.headroom",
        label=lambda: say("Share of the memory that stays free"),
        kind="number",
        group="limits",
        example="0.2",
    ),
    Field(
        name="goal",
        key="goal",
        label=lambda: say("Goal"),
        kind="choice",
        group="limits",
        choices=_words("cheapest", "fastest", "balanced"),
    ),
    Field(
        name="prices",
        key="prices",
        label=lambda: say("Price sheets"),
        group="files",
        many=True,
    ),
)
BY_NAME: Final = {field.name: field for field in FIELDS}
BY_KEY: Final = {field.key: field for field in FIELDS if field.key}
