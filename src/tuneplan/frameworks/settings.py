"""The settings of a job, all of them decided; and the defaults a framework offers for them."""

from __future__ import annotations

from tuneplan.frameworks.context import Head
from tuneplan.frameworks.ledger import Default
from tuneplan.frozen import dataclass
from tuneplan.language import message
from tuneplan.spec.parallelism import Offload, Strategy
from tuneplan.spec.recipe import Checkpointing, DType, Method, Objective

NO_TRUNCATION = message("no_truncation", "nothing truncates: the model's own limit counts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What a framework does where the job says nothing; one field a job key.

    Attributes:
        dtype: ``auto`` (as the checkpoint says) or a dtype's name.
        precision: ``fp32``, ``tf32``, ``bf16``, ``fp16`` (autocast) or ``none``.
        target_modules: ``all-linear`` or leaf names.
        checkpointing: ``none``, ``full``, ``selective`` or ``offload``.
        attn_implementation: Hugging Face's word.
        loss: ``full``, ``chunked`` or ``fused``; the details follow from the framework.
    """

    dtype: Default[str]
    precision: Default[str]
    max_length: Default[int]
    packing: Default[bool]
    padding: Default[str]
    per_device_train_batch_size: Default[int]
    per_device_eval_batch_size: Default[int]
    gradient_accumulation_steps: Default[int]
    optim: Default[str]
    gradient_checkpointing: Default[Checkpointing]
    use_reentrant: Default[bool]
    attn_implementation: Default[str]
    loss: Default[str]
    torch_compile: Default[bool]
    use_liger_kernel: Default[bool]
    max_grad_norm: Default[float]
    num_train_epochs: Default[float]
    eval_steps: Default[float]
    save_steps: Default[float]
    save_total_limit: Default[int]
    save_strategy: Default[str] | None = None
    trained_layers: Default[int]
    r: Default[int]
    lora_alpha: Default[float]
    lora_dropout: Default[float]
    target_modules: Default[str | tuple[str, ...]]
    modules_to_save: Default[tuple[str, ...]]
    bits: Default[int]
    quantization_type: Default[str]
    double_quant: Default[bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """What decides the run rather than one step.

    Attributes:
        padding: ``longest``, ``max_length`` or ``grouped``; ``none`` where rows are packed.
        max_steps: Steps of the optimizer; None where epochs decide.
        eval_steps: None = no evaluation during training, unless ``evaluates_each_epoch``; below 1
            it is a share of the run.
        save_steps: None = saved at the end alone, unless ``saves_each_epoch``.
        save_total_limit: None = every checkpoint is kept.
    """

    padding: str
    per_device_eval_batch_size: int
    num_train_epochs: float
    max_steps: int | None
    eval_steps: float | None
    save_steps: float | None
    save_total_limit: int | None
    evaluates_each_epoch: bool = False
    saves_each_epoch: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterSettings:
    """The adapter section, resolved to leaf names of this model.

    Attributes:
        expert_targets: As in ``Adapter``: None = what PEFT makes of the names, () = no experts.
    """

    r: int
    lora_alpha: float
    lora_dropout: float
    target_modules: tuple[str, ...]
    modules_to_save: tuple[str, ...]
    expert_targets: tuple[tuple[str, int], ...] | None = None
    use_rslora: bool
    use_dora: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every job key, decided; what the framework makes of them comes afterwards."""

    head: Head
    dtype: DType
    precision: str
    master_weights: bool | None
    max_length: int
    truncates: bool
    packing: bool
    per_device_train_batch_size: int
    gradient_accumulation_steps: int
    optim: str
    gradient_checkpointing: Checkpointing
    use_reentrant: bool
    attn_implementation: str
    loss: str
    loss_stated: bool
    torch_compile: bool
    use_liger_kernel: bool
    max_grad_norm: float | None
    trained_layers: int
    adapter: AdapterSettings | None
    bits: int
    quantization_type: str
    double_quant: bool
    run: RunSettings

    @property
    def method(self) -> Method:
        """Which parameters are trained."""
        return self.head.method

    @property
    def objective(self) -> Objective:
        """What is trained."""
        return self.head.objective

    @property
    def strategy(self) -> Strategy:
        """Who holds what."""
        return self.head.strategy

    @property
    def offload(self) -> Offload:
        """What lives in host memory."""
        return self.head.offload

    @property
    def half(self) -> DType | None:
        """The 16-bit dtype of autocast or of DeepSpeed's engine; None without one."""
        return {"bf16": DType.BFLOAT16, "fp16": DType.FLOAT16}.get(self.precision)
