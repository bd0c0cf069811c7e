"""A job as stated: what the user (or a measured row, or a foreign file) says, blanks left blank.

``None`` means "not stated". A tuple where a single value would do is a choice for ``plan``.
Names follow the job file (``docs/reference/job.md``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import date
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from tuneplan.frozen import dataclass
from tuneplan.spec.answer import Notice


def _empty() -> Mapping[str, str]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedAdapter:
    """The ``adapter`` section."""

    r: int | None = None
    lora_alpha: float | None = None
    target_modules: str | tuple[str, ...] | None = None  # "all-linear" or leaf names
    target_parameters: tuple[str, ...] | None = None
    modules_to_save: tuple[str, ...] | None = None
    lora_dropout: float | None = None
    use_rslora: bool | None = None
    use_dora: bool | None = None
    fused_kernels: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedQuantization:
    """The ``quantization`` section."""

    bits: int | None = None
    type: str | None = None
    double_quant: bool | None = None
    quantize_experts: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedTraining:
    """The ``training`` section. Strings are the job file's own words."""

    dtype: str | None = None
    precision: str | None = None
    master_weights: bool | None = None
    num_train_epochs: float | None = None
    max_steps: int | None = None
    max_length: int | None = None
    packing: bool | None = None
    padding: str | None = None
    per_device_train_batch_size: int | str | tuple[int, ...] | None = None
    per_device_eval_batch_size: int | None = None
    gradient_accumulation_steps: int | str | None = None
    global_batch_size: int | None = None
    optim: str | None = None
    optimizer_in_backward: bool | None = None
    gradient_checkpointing: bool | str | tuple[bool | str, ...] | None = None
    use_reentrant: bool | None = None
    attn_implementation: str | None = None
    loss: str | None = None
    torch_compile: bool | None = None
    max_grad_norm: float | None = None
    eval_strategy: str | None = None
    eval_steps: float | None = None  # below 1: a share of the run
    save_strategy: str | None = None
    save_steps: float | None = None  # below 1: a share of the run
    save_total_limit: int | None = None
    trained_layers: int | None = None
    use_liger_kernel: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedParallelism:
    """The ``parallelism`` section; ``strategy`` None = automatic.

    The keys below ``offload`` are DeepSpeed's; None = as its engine or the framework sets them.
    """

    strategy: str | None = None
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    offload: str | None = None

    @property
    def splits_model(self) -> bool:
        """Whether a degree is above 1."""
        return max(self.tensor, self.pipeline, self.context, self.expert) > 1

    reduce_bucket_elements: int | None = None
    allgather_bucket_elements: int | None = None
    overlap_communication: bool | None = None
    max_live_parameters: int | None = None
    persistence_threshold: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedRecipe:
    """Everything that ``frameworks`` turns into a ``TrainingRecipe``.

    Attributes:
        framework: ``trl``, ``llamafactory``, ...; None = newest ``trl``.
        framework_version: As stated, or None for the newest known.
        software: Library name to version (``torch``, ``transformers``, ``peft``, ``bitsandbytes``,
            ``accelerate``), as far as stated.
        date: ``2024-03`` or ``2024-03-18``: the software of that day, where versions are blank.
        facts: Facts of a measured row that no job key says (``kbit_prep``, ``kernels``,
            ``loss``...), by name; see ``frameworks``.
    """

    framework: str | None = None
    framework_version: str | None = None
    software: Mapping[str, str] = field(default_factory=_empty)
    date: str | None = None
    objective: str | None = None
    method: str | None = None
    adapter: StatedAdapter = field(default_factory=StatedAdapter)
    quantization: StatedQuantization = field(default_factory=StatedQuantization)
    training: StatedTraining = field(default_factory=StatedTraining)
    parallelism: StatedParallelism = field(default_factory=StatedParallelism)
    facts: Mapping[str, str] = field(default_factory=_empty)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedData:
    """The ``data`` section: a path, a profile, or numbers."""

    path: tuple[str, ...] = ()
    profile: str | None = None
    num_samples: int | None = None
    mean_tokens: float | None = None
    total_tokens: int | None = None
    quantiles: Mapping[float, float] = field(default_factory=lambda: MappingProxyType({}))
    eval_fraction: float | None = None
    tokenizer: str | None = None
    skip_bad_rows: bool | None = None

    @property
    def given(self) -> bool:
        """Whether anything is said about the data."""
        return bool(self.path or self.profile or self.num_samples or self.total_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedHardware:
    """The ``hardware`` section; several accelerators or counts are a choice for ``plan``."""

    accelerator: tuple[str, ...] = ()
    num_nodes: int | None = None
    accelerators_per_node: tuple[int, ...] = ()
    interconnect: str | None = None
    inter_node: str | None = None
    host_memory_bytes: int | None = None
    disk_bytes_per_s: float | None = None
    disk_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The ``limits`` section. ``budget`` is in ``budget_currency``."""

    deadline_s: float | None = None
    budget: Decimal | None = None
    budget_currency: str = "USD"
    headroom_fraction: float = 0.2
    headroom_stated: bool = False
    regions: tuple[str, ...] = ()
    residency: str | None = None
    providers: tuple[str, ...] = ()
    certifications: tuple[str, ...] = ()
    single_tenant: bool | None = None
    max_nodes: int | None = None
    allow_interruptible: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedProject:
    """The ``project`` section: what is done around the run. Ranges are (low, high), times seconds.

    ``network`` is in bytes per second, ``storage`` in bytes; prices are (amount, currency): of a
    GB that leaves, and of a GB and month.
    """

    num_experiments: int | None = None
    experiment_fraction: tuple[float, float] | None = None
    num_sweep_runs: int | None = None
    sweep_fraction: tuple[float, float] | None = None
    data_iterations: int | None = None
    retry_factor: tuple[float, float] | None = None
    failure_fraction: tuple[float, float] | None = None
    evaluation_time: tuple[float, float] | None = None
    setup_time: tuple[float, float] | None = None
    idle_fraction: tuple[float, float] | None = None
    runs_in_parallel: int | None = None
    start: date | None = None
    duration: float | None = None
    proof_of_concept_time: float | None = None
    main_time: float | None = None
    hand_over_time: float | None = None
    network: float | None = None
    egress_price: tuple[Decimal, str] | None = None
    storage: int | None = None
    storage_price: tuple[Decimal, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedLint:
    """The ``lint`` section: rules that are silenced."""

    ignore: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedJob:
    """A whole job file, validated but with its blanks.

    Attributes:
        choices: Key path to the values of a list, for every key that holds one value elsewhere
            (``{"method": ("lora", "qlora")}``); the field itself is then None, unless it is
            declared as a tuple, in which case it holds the list too.
        notices: What reading the job has to tell (keys left aside, which of two keys counts).
        stated: Every key path that was written, in the order of the file.
        places: Key path to file and line, for what a file says and no flag overrides.
    """

    model: str
    recipe: StatedRecipe = field(default_factory=StatedRecipe)
    data: StatedData = field(default_factory=StatedData)
    hardware: StatedHardware = field(default_factory=StatedHardware)
    limits: Limits = field(default_factory=Limits)
    prices: tuple[str, ...] = ()
    accelerators: tuple[str, ...] = ()  # the user's own chip files
    models: tuple[str, ...] = ()  # the user's own model files
    project: StatedProject = field(default_factory=StatedProject)
    lint: StatedLint = field(default_factory=StatedLint)
    goal: str = "cheapest"
    base_path: str = "."  # folder that relative paths refer to
    choices: Mapping[str, tuple[Any, ...]] = field(default_factory=lambda: MappingProxyType({}))
    notices: tuple[Notice, ...] = ()
    stated: tuple[str, ...] = ()
    places: Mapping[str, tuple[str, int]] = field(
        default_factory=lambda: MappingProxyType({}), compare=False, repr=False
    )
