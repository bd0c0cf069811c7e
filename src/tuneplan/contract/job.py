"""The job file, key by key: type, bounds, meaning.

Every field is ``Annotated`` with a reader (``values.py``) and described once; the reference page,
the JSON Schema and the checks are all made from here. A blank key is ``None``.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticUndefined

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
    InterNode,
    Quantiles,
    RetryFactor,
    Targets,
    Version,
)
from tuneplan.units import parse_bytes, parse_bytes_per_s, parse_money, parse_seconds

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
    "generic",
)
_DTYPES: Final = ("float32", "bfloat16", "float16")
_DTYPE_SPELLINGS: Final = (
    ("fp32", "float32"),
    ("bf16", "bfloat16"),
    ("fp16", "float16"),
    ("half", "float16"),
    ("torch.float32", "float32"),
    ("torch.bfloat16", "bfloat16"),
    ("torch.float16", "float16"),
)
_COUNTED: Final = 10**9  # more steps, or samples between two, than any run has
_PB: Final = 10**15


class Section(BaseModel):
    """Base of the sections: unknown keys are refused, nothing changes after reading."""

    # Validators are built when first used: a command builds only those it needs.
    model_config = ConfigDict(
        extra="forbid", frozen=True, arbitrary_types_allowed=True, defer_build=True
    )


class AdapterSection(Section):
    """Low-rank adapters, with PEFT's names. Only for methods that train adapters."""

    r: Annotated[int | Choice | None, Number(low=1, high=65_536, whole=True, many=True)] = Field(
        None, description="Rank."
    )
    lora_alpha: Annotated[float | None, Number(low=0, high=1e6, open_low=True)] = Field(
        None, description="Scaling numerator; changes neither memory nor time."
    )
    target_modules: Annotated[str | tuple[str, ...] | None, Targets()] = Field(
        None, description="Linear layers that get an adapter: `all-linear` or a list of leaf names."
    )
    modules_to_save: Annotated[tuple[str, ...] | None, Texts(what="module name")] = Field(
        None, description="Modules trained as a full copy beside the frozen original."
    )
    lora_dropout: Annotated[float | None, Number(low=0, high=1, open_high=True)] = Field(
        None, description="Dropout before the adapter; above 0 a mask is kept."
    )
    use_rslora: Annotated[bool | None, Flag()] = Field(None, description="Rank-stabilised scaling.")
    use_dora: Annotated[bool | None, Flag()] = Field(
        None, description="Weight-decomposed adapters; the same as `method: dora` on a plain base."
    )


class QuantizationSection(Section):
    """How the frozen base is stored. Only for `qlora` and `gptq-lora`."""

    bits: Annotated[int | Choice | None, Number(low=2, high=8, whole=True, many=True)] = Field(
        None, description="Bits of a weight."
    )
    type: Annotated[
        str | Choice | None, Word(words=("nf4", "fp4", "int8", "gptq", "awq"), many=True)
    ] = Field(None, description="Format of the stored weights.")
    double_quant: Annotated[bool | Choice | None, Flag(many=True)] = Field(
        None, description="The scales are quantised too."
    )


class DataSection(Section):
    """What is trained on: files, a profile of them, or numbers. Exactly one of the three."""

    path: Annotated[tuple[str, ...] | None, Texts(what="file or folder")] = Field(
        None, description="Files or folders of samples; relative to the job file."
    )
    profile: Annotated[str | None, Text(what="file")] = Field(
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
    tokenizer: Annotated[str | None, Text(what="tokenizer name, file or folder")] = Field(
        None, description="Tokenizer that counts the tokens, where it is not the model's own."
    )
    skip_bad_rows: Annotated[bool | None, Flag()] = Field(
        None, description="Rows of `path` that cannot be used are left out, counted and listed."
    )


class TrainingSection(Section):
    """The training run, with the names of Hugging Face's `TrainingArguments`."""

    dtype: Annotated[
        str | Choice | None, Word(words=_DTYPES, also=_DTYPE_SPELLINGS, auto=True, many=True)
    ] = Field(None, description="Element type of the weights as loaded.")
    precision: Annotated[
        str | Choice | None,
        Word(
            words=("fp32", "tf32", "bf16", "fp16", "none", "fp8"),
            also=(("float32", "fp32"), ("bfloat16", "bf16"), ("float16", "fp16"), ("no", "none")),
            many=True,
        ),
    ] = Field(
        None,
        description="Type of the computation: `bf16` and `fp16` run under autocast, `none` in the "
        "type of the weights.",
    )
    master_weights: Annotated[bool | None, Flag(auto=True)] = Field(
        None, description="An fp32 copy of the trained weights is kept beside them."
    )
    num_train_epochs: Annotated[float | None, Number(low=0, high=100_000, open_low=True)] = Field(
        None, description="Passes over the data. Where `max_steps` is given too, that one counts."
    )
    max_steps: Annotated[int | None, Number(low=1, high=_COUNTED, whole=True)] = Field(
        None, description="Optimizer steps of the whole run."
    )
    max_length: Annotated[
        int | Choice | None, Number(low=1, high=100_000_000, whole=True, many=True)
    ] = Field(None, description="Longest sequence in tokens; longer samples are cut.")
    packing: Annotated[bool | Choice | None, Flag(many=True)] = Field(
        None, description="Several samples share one sequence of `max_length`; `false` = padded."
    )
    padding: Annotated[
        str | Choice | None, Word(words=("longest", "max_length", "grouped", "none"))
    ] = Field(
        None,
        description="Padded batches: to the longest of the batch, to `max_length`, batches of "
        "similar lengths, or samples one behind the other (`none`).",
    )
    per_device_train_batch_size: Annotated[
        int | str | Choice | None,
        Number(low=1, high=1_000_000, whole=True, word="auto", many=True),
    ] = Field(
        None,
        description="Sequences per device and micro-batch; `auto` = the largest that fits with the "
        "head-room.",
    )
    per_device_eval_batch_size: Annotated[int | None, Number(low=1, high=1_000_000, whole=True)] = (
        Field(None, description="Sequences per device in evaluation.")
    )
    gradient_accumulation_steps: Annotated[
        int | str | Choice | None,
        Number(low=1, high=1_000_000, whole=True, word="auto", many=True),
    ] = Field(
        None,
        description="Micro-batches per optimizer step; `auto` = what `global_batch_size` asks for.",
    )
    global_batch_size: Annotated[int | None, Number(low=1, high=_COUNTED, whole=True)] = Field(
        None, description="Sequences per optimizer step over all devices."
    )
    optim: Annotated[str | Choice | None, Text(what="optimizer name", many=True)] = Field(
        None, description="Optimizer, as `TrainingArguments` names it, e.g. `adamw_torch_fused`."
    )
    gradient_checkpointing: Annotated[
        bool | str | Choice | None,
        Word(words=("selective", "offload"), flags=True, many=True),
    ] = Field(
        None,
        description="Activations are recomputed in the backward pass; `selective` = attention "
        "only, `offload` = what is kept lies on the host.",
    )
    use_reentrant: Annotated[bool | None, Flag()] = Field(
        None, description="The reentrant variant of checkpointing."
    )
    attn_implementation: Annotated[
        str | Choice | None,
        Word(
            words=("eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention"),
            also=(("flash_attn_2", "flash_attention_2"), ("fa2", "flash_attention_2")),
            auto=True,
            many=True,
        ),
    ] = Field(None, description="Attention kernel.")
    loss: Annotated[
        str | Choice | None, Word(words=("full", "chunked", "fused"), auto=True, many=True)
    ] = Field(
        None,
        description="From the last hidden state to the loss: all logits at once, in chunks, or "
        "fused with the output head. `auto` = what this framework version does.",
    )
    use_liger_kernel: Annotated[bool | None, Flag()] = Field(
        None, description="Liger's fused kernels."
    )
    torch_compile: Annotated[bool | None, Flag()] = Field(
        None, description="The model is compiled."
    )
    max_grad_norm: Annotated[float | None, Number(low=0, high=1e9)] = Field(
        None, description="Gradients are clipped to this norm; 0 = not clipped."
    )
    eval_strategy: Annotated[str | None, Word(words=("no", "steps", "epoch"))] = Field(
        None, description="When evaluation runs."
    )
    eval_steps: Annotated[int | None, Number(low=1, high=_COUNTED, whole=True)] = Field(
        None, description="Optimizer steps between two evaluations."
    )
    save_strategy: Annotated[str | None, Word(words=("no", "steps", "epoch", "best"))] = Field(
        None, description="When a checkpoint is written."
    )
    save_steps: Annotated[int | None, Number(low=1, high=_COUNTED, whole=True)] = Field(
        None, description="Optimizer steps between two checkpoints."
    )
    save_total_limit: Annotated[int | None, Number(low=1, high=1_000_000, whole=True)] = Field(
        None, description="Checkpoints that are kept."
    )
    trained_layers: Annotated[int | None, Number(low=1, high=100_000, whole=True)] = Field(
        None, description="With `method: freeze`: the last n layers are trained."
    )


class DiskSection(Section):
    """The disk that holds data and checkpoints."""

    bandwidth: Annotated[float | None, Quantity(parse=parse_bytes_per_s, example="7 GB/s")] = Field(
        None, description="Sustained write rate."
    )
    size: Annotated[int | None, Quantity(parse=parse_bytes, example="4 TB")] = Field(
        None, description="Room for checkpoints and data."
    )


class HardwareSection(Section):
    """What it runs on. A list is a choice for `plan`."""

    accelerator: Annotated[tuple[str, ...] | None, Texts(what="accelerator name")] = Field(
        None, description="Catalogue name or alias, e.g. `NVIDIA H100 80GB HBM3`, `H100`."
    )
    num_nodes: Annotated[
        int | Choice | None, Number(low=1, high=100_000, whole=True, many=True)
    ] = Field(None, description="Machines.")
    accelerators_per_node: Annotated[
        int | Choice | None, Number(low=1, high=1024, whole=True, many=True)
    ] = Field(None, description="Accelerators in each machine.")
    interconnect: Annotated[str | None, Word(words=("nvlink", "pcie", "none"), auto=True)] = Field(
        None, description="Link inside a machine; `auto` = that of the accelerator."
    )
    inter_node: Annotated[str | None, InterNode(auto=True)] = Field(
        None,
        description="Link between machines, per machine: `infiniband-400`, `roce-1600`, "
        "`ethernet-100` (Gbit/s), or a rate such as `50 GB/s`.",
    )
    host_memory: Annotated[int | None, Quantity(parse=parse_bytes, example="256 GiB", high=_PB)] = (
        Field(None, description="Main memory of each machine.")
    )
    disk: DiskSection | None = Field(None, description="The disk.")


class ParallelismSection(Section):
    """How the job is spread over the accelerators; the word alone is the strategy."""

    strategy: Annotated[
        str | Choice | None,
        Word(
            words=(
                *("ddp", "zero1", "zero2", "zero3", "fsdp", "fsdp2", "hsdp"),
                *("single", "device_map"),
            ),
            also=(("zero-1", "zero1"), ("zero-2", "zero2"), ("zero-3", "zero3"), ("fsdp1", "fsdp")),
            auto=True,
            many=True,
        ),
    ] = Field(None, description="Who holds what.")
    tensor: Annotated[int | Choice | None, Number(low=1, high=4096, whole=True, many=True)] = Field(
        None, description="Tensor-parallel degree."
    )
    pipeline: Annotated[int | Choice | None, Number(low=1, high=4096, whole=True, many=True)] = (
        Field(None, description="Pipeline stages.")
    )
    context: Annotated[int | Choice | None, Number(low=1, high=4096, whole=True, many=True)] = (
        Field(None, description="Context-parallel degree.")
    )
    expert: Annotated[int | Choice | None, Number(low=1, high=4096, whole=True, many=True)] = Field(
        None, description="Expert-parallel degree."
    )
    offload: Annotated[
        str | Choice | None, Word(words=("none", "optimizer", "params"), many=True)
    ] = Field(None, description="What lies in main memory instead of the accelerator's.")


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
    regions: Annotated[tuple[str, ...] | None, Texts(what="region")] = Field(
        None, description="Preferred regions."
    )
    residency: Annotated[str | None, Text(what="region")] = Field(
        None,
        description="Region that the data must not leave; an offer without a region never does.",
    )
    providers: Annotated[tuple[str, ...] | None, Texts(what="provider")] = Field(
        None, description="Providers that may be used; empty = all."
    )
    max_nodes: Annotated[int | None, Number(low=1, high=100_000, whole=True)] = Field(
        None, description="Most machines."
    )
    allow_interruptible: Annotated[bool | None, Flag()] = Field(
        None, description="Spot and preemptible offers count."
    )


class ProjectSection(Section):
    """The project around the run, for the whole budget."""

    num_experiments: Annotated[int | None, Number(low=1, high=1_000_000, whole=True)] = Field(
        None, description="Runs that are expected before the last one."
    )
    retry_factor: Annotated[tuple[float, float] | None, RetryFactor()] = Field(
        None, description="How often a run is repeated: a number or `[low, high]`."
    )
    runs_in_parallel: Annotated[int | None, Number(low=1, high=1_000_000, whole=True)] = Field(
        None, description="Runs at the same time."
    )


class JobFile(Section):
    """A fine-tuning job."""

    model: Annotated[
        str, Text(what="a model: a catalogue name, a hub id, a folder, config.json or a size")
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
    date: Annotated[str | None, Version(what="a date: 2026-10 or 2026-10-05", dated=True)] = Field(
        None, description="The same as `software: {date: ...}`."
    )
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
    prices: Annotated[tuple[str, ...] | None, Texts(what="price sheet file")] = Field(
        None, description="Your own price sheets (YAML or CSV); they come before the bundled ones."
    )
    accelerators: Annotated[tuple[str, ...] | None, Texts(what="file")] = Field(
        None, description="Your own accelerator files; they come before the bundled ones."
    )
    models: Annotated[tuple[str, ...] | None, Texts(what="file")] = Field(
        None, description="Your own model files; they come before the bundled ones."
    )
    project: ProjectSection | None = Field(None, description="The project around the run.")
    goal: Annotated[str | None, Word(words=("cheapest", "fastest", "balanced"))] = Field(
        None, description="How plans are ranked."
    )


def sections() -> dict[str, type[Section]]:
    """Every section by key path, ``""`` for the top level."""
    found: dict[str, type[Section]] = {"": JobFile}
    for parent in ("", "hardware"):
        for name, field in found[parent].model_fields.items():
            kind = next(
                (a for a in getattr(field.annotation, "__args__", ()) if _is_section(a)), None
            )
            if kind is not None:
                found[f"{parent}.{name}".lstrip(".")] = kind
    return found


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
