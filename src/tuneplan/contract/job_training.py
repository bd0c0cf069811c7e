"""The sections that say how a model is trained: adapters, quantisation, the training run."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from tuneplan.contract.section import Section
from tuneplan.contract.values import Choice, Flag, Number, Text, Texts, Word
from tuneplan.contract.written import Occasions, Targets
from tuneplan.language import phrase

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
_COUNTED: Final = 10**9  # more steps or samples than any run has


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
    target_parameters: Annotated[tuple[str, ...] | None, Texts(what=phrase("parameter name"))] = (
        Field(
            None,
            description="Stacked parameters of routed experts that get an adapter, by leaf name "
            "(PEFT's `target_parameters`).",
        )
    )
    modules_to_save: Annotated[tuple[str, ...] | None, Texts(what=phrase("module name"))] = Field(
        None, description="Modules trained as a full copy beside the frozen original."
    )
    lora_dropout: Annotated[float | None, Number(low=0, high=1, open_high=True)] = Field(
        None, description="Dropout before the adapter; above 0 a mask is kept."
    )
    use_rslora: Annotated[bool | None, Flag()] = Field(None, description="Rank-stabilised scaling.")
    fused_kernels: Annotated[bool | None, Flag()] = Field(
        None,
        description="Fused kernels of the adapted linears, where the framework has them (Axolotl's "
        "`lora_*_kernel`).",
    )
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
    quantize_experts: Annotated[bool | None, Flag()] = Field(
        None,
        description="Stacked routed experts are quantised too (Axolotl's `quantize_moe_experts`); "
        "without it transformers 5 leaves them as they are loaded.",
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
    optim: Annotated[str | Choice | None, Text(what=phrase("optimizer name"), many=True)] = Field(
        None, description="Optimizer, as `TrainingArguments` names it, e.g. `adamw_torch_fused`."
    )
    optimizer_in_backward: Annotated[bool | None, Flag()] = Field(
        None,
        description="Each weight is updated inside the backward pass, so that gradients never "
        "lie together (torchtune's `optimizer_in_bwd`).",
    )
    gradient_checkpointing: Annotated[
        bool | str | Choice | None,
        Word(words=("selective", "offload"), flags=True, many=True),
    ] = Field(
        None,
        description="Activations are recomputed in the backward pass; `selective` = all but the "
        "results of attention and of every second product, `offload` = what is kept lies on the "
        "host.",
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
    eval_steps: Annotated[float | None, Occasions()] = Field(
        None, description="Optimizer steps between two evaluations."
    )
    save_strategy: Annotated[str | None, Word(words=("no", "steps", "epoch", "best"))] = Field(
        None, description="When a checkpoint is written."
    )
    save_steps: Annotated[float | None, Occasions()] = Field(
        None, description="Optimizer steps between two checkpoints."
    )
    save_total_limit: Annotated[int | None, Number(low=1, high=1_000_000, whole=True)] = Field(
        None, description="Checkpoints that are kept."
    )
    trained_layers: Annotated[int | None, Number(low=1, high=100_000, whole=True)] = Field(
        None, description="With `method: freeze`: the last n layers are trained."
    )
