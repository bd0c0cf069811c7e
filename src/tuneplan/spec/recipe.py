"""How a model is trained: every setting that decides memory or time, all of them resolved.

A ``TrainingRecipe`` has no blanks: ``frameworks`` fills them from what the framework's version
really does, and lists each as an assumption.
"""

from __future__ import annotations

from enum import StrEnum

from tuneplan.frozen import dataclass


class DType(StrEnum):
    """Element types, named as PyTorch names them; ``num_bytes`` of one element."""

    num_bytes: int

    def __new__(cls, name: str) -> DType:
        """A member with its size, which is asked for too often to be looked up."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.num_bytes = {"float32": 4, "bfloat16": 2, "float16": 2}.get(name, 1)
        return member

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    FLOAT8 = "float8"
    INT8 = "int8"
    UINT8 = "uint8"


class Objective(StrEnum):
    """What is trained."""

    SFT = "sft"
    PRETRAIN = "pretrain"
    DPO = "dpo"
    KTO = "kto"
    ORPO = "orpo"
    SIMPO = "simpo"
    RM = "rm"


class Method(StrEnum):
    """Which parameters are trained, and how the rest is held."""

    FULL = "full"
    FREEZE = "freeze"
    LORA = "lora"
    DORA = "dora"
    QLORA = "qlora"
    GPTQ_LORA = "gptq-lora"

    @property
    def uses_adapter(self) -> bool:
        """Whether low-rank adapters are trained beside a frozen base."""
        return self not in (Method.FULL, Method.FREEZE)

    @property
    def quantized(self) -> bool:
        """Whether the frozen base is quantised."""
        return self in (Method.QLORA, Method.GPTQ_LORA)


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """Low-rank adapters, with PEFT's names.

    Attributes:
        target_modules: Leaf names of the adapted linears (already resolved, never "all-linear").
        modules_to_save: Leaf names that are trained as a full copy beside the frozen original.
        dtype: Of the adapter's weights.
        cast_input: Whether the layer input is cast to ``dtype`` for the adapter (PEFT does; a
            fused kernel does not).
        fp32_input: Whether the input is cast to fp32 first, whatever ``dtype`` is.
        sharded: False where the adapters stay whole on every rank although the base is sharded.
        expert_targets: Stacked parameters of routed experts (and their router) that are adapted,
            each with what its rank is multiplied by; None = those that PEFT 0.21 makes of
            ``target_modules``.
        folds_update: One kernel adds the low-rank product to stacked experts (PEFT from 0.21);
            before, the whole update was made first.
        query_key_value: Of a fused query-key-value projection, the parts that LitGPT adapts
            (``query``, ``key``, ``value``), each with a rank of its own; empty = all as one.
    """

    r: int
    lora_alpha: float
    target_modules: tuple[str, ...]
    modules_to_save: tuple[str, ...] = ()
    lora_dropout: float = 0.0
    use_rslora: bool = False
    use_dora: bool = False
    dtype: DType = DType.FLOAT32
    cast_input: bool = True
    fp32_input: bool = False
    sharded: bool = True
    expert_targets: tuple[tuple[str, int], ...] | None = None
    folds_update: bool = True
    query_key_value: tuple[str, ...] = ()


class QuantizationType(StrEnum):
    """How the frozen base is stored."""

    NF4 = "nf4"
    FP4 = "fp4"
    INT8 = "int8"
    GPTQ = "gptq"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """A quantised frozen base.

    Attributes:
        block_size: Weights that share one scale.
        dequantized_dtype: dtype that a matrix is expanded to (the load dtype for bitsandbytes).
        keeps_inputs: bitsandbytes up to 0.43.1 keeps the input of every 4-bit linear.
        quantizes_head: Lightning (LitGPT) quantises the output head, Hugging Face does not.
        one_kernel: Whether one kernel expands a matrix (bitsandbytes; AutoGPTQ's Triton kernel).
            False for AutoGPTQ's PyTorch code, which training runs without Triton: it unpacks in
            five steps, and autograd keeps the expanded matrix.
        quantizes_subclasses: Whether linears of a class of their own are quantised (transformers 5
            asks for ``nn.Linear`` itself, ``integrations/bitsandbytes.py``).
        quantizes_experts: Whether routed experts are quantised (not with transformers 5's
            stacked experts, unless that is asked for).
        expands_experts: Whether they are stacked, so that all experts of a layer are expanded at
            once, each time one of their weights is used.
    """

    bits: int = 4
    type: QuantizationType = QuantizationType.NF4
    double_quant: bool = False
    block_size: int = 64
    dequantized_dtype: DType = DType.BFLOAT16
    keeps_inputs: bool = False
    quantizes_head: bool = False
    one_kernel: bool = True
    quantizes_experts: bool = True
    expands_experts: bool = False
    quantizes_subclasses: bool = True
    storage_dtype: DType = DType.UINT8


class OptimizerFamily(StrEnum):
    """What the optimizer keeps per trainable parameter."""

    ADAMW = "adamw"
    ADAMW_8BIT = "adamw_8bit"
    ADAFACTOR = "adafactor"
    LION = "lion"
    LION_8BIT = "lion_8bit"
    SGD = "sgd"
    SGD_MOMENTUM = "sgd_momentum"
    MUON = "muon"


class OptimizerImplementation(StrEnum):
    """How the step runs, which decides its temporary and its launches."""

    FOREACH = "foreach"
    FUSED = "fused"
    FOR_LOOP = "for_loop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """The optimizer as it really runs.

    Attributes:
        name: As the user or framework writes it (TrainingArguments ``optim``).
        state_dtype: Of the moments (ignored by the 8-bit families).
        paged: States live in unified memory and leave the allocator.
        in_backward: The step runs inside backward, so gradients never accumulate.
        follows_weights: Each tensor's moments have its own dtype (PyTorch's optimizers), where
            not all trained tensors have the same one; else all have ``state_dtype``.
        master_weights: An fp32 copy of the trainable weights is kept beside them.
    """

    name: str
    family: OptimizerFamily
    implementation: OptimizerImplementation
    state_dtype: DType = DType.FLOAT32
    paged: bool = False
    in_backward: bool = False
    master_weights: bool = False
    follows_weights: bool = False


class Checkpointing(StrEnum):
    """Activation checkpointing."""

    NONE = "none"
    FULL = "full"
    SELECTIVE = "selective"
    OFFLOAD = "offload"  # full, with the kept layer inputs on the host


class CheckpointContent(StrEnum):
    """What one checkpoint on disk holds."""

    RESUMABLE = "resumable"  # what trains (or the whole model) and optimizer states
    WEIGHTS = "weights"  # what trains alone
    MERGED = "merged"  # the whole model, adapters beside it; one file of states, written over


class AttentionKernel(StrEnum):
    """The attention kernel that really runs."""

    EAGER = "eager"
    SDPA_MATH = "sdpa_math"
    SDPA_EFFICIENT = "sdpa_efficient"
    SDPA_FLASH = "sdpa_flash"
    FLASH_2 = "flash_attention_2"
    FLASH_3 = "flash_attention_3"
    FLEX = "flex_attention"
    CUDNN = "sdpa_cudnn"
    FUSED_SOFTMAX = "fused_softmax"  # Megatron's scale, mask and softmax in one kernel
    TRITON = "triton"  # the 2022 Triton flash attention of MPT and llm-foundry

    @property
    def keeps_scores(self) -> bool:
        """Whether a length x length score matrix is materialised."""
        return self in (
            AttentionKernel.EAGER,
            AttentionKernel.SDPA_MATH,
            AttentionKernel.FUSED_SOFTMAX,
        )


class LossPath(StrEnum):
    """What happens between the last hidden state and the loss."""

    FULL = "full"  # logits in the compute dtype, then PyTorch's cross entropy
    CHUNKED = "chunked"  # head and loss over chunks of tokens, each recomputed or kept small
    FUSED_LINEAR = "fused_linear"  # Liger / cut cross entropy: gradient made in the forward
    FUSED_CROSS_ENTROPY = "fused_cross_entropy"  # a fused kernel over full logits


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """The loss path as this framework version runs it.

    Attributes:
        upcast_logits: Logits are copied to fp32 before the loss.
        shifted_copy: A shifted contiguous copy of the (fp32) logits is made.
        output_fp32_copies: fp32 copies of the logits the trainer makes around the model
            (accelerate's ``ConvertOutputsToFp32`` under autocast).
        chunk_tokens: Tokens per chunk where chunked; 0 = the kernel's own rule.
        num_chunks: Fixed number of chunks where the framework splits so (torchtune: 8).
        trained_fraction: Share of tokens whose logits are computed (``logits_to_keep``), usually 1.
        holds_model_logits: The model's own half-precision logits stay alive during the loss
            (transformers 4.46 and later upcast inside the loss function; earlier versions
            replaced the half copy by the fp32 one).
        chunk_vocabulary: Vocabulary entries per tile where the head is tiled too; 0 = all of it.
        keeps_logits: Where chunked: the compute-dtype logits of all chunks live at once.
        keeps_softmax: Where chunked: autograd keeps every chunk's log-softmax (fp32 where
            ``upcast_logits``) until the backward, because no chunk is recomputed.
        skips_masked: Only tokens whose label counts reach the head (the data says which share).
        fp32_gradients: The loss accumulates the gradient of the last hidden state (and of the
            head, where it is trained) in fp32 buffers during the backward.
        fp32_head: Where chunked: the head's weight is cast to fp32 for every chunk (and from there
            to half under autocast).
        outside_model: The training loop computes the loss on what the model returned, so logits
            of the step before are gone by then.
    """

    path: LossPath
    upcast_logits: bool = True
    shifted_copy: bool = False
    output_fp32_copies: int = 0
    chunk_tokens: int = 0
    num_chunks: int = 0
    trained_fraction: float = 1.0
    holds_model_logits: bool = False
    chunk_vocabulary: int = 0
    keeps_logits: bool = False
    keeps_softmax: bool = False
    skips_masked: bool = False
    fp32_gradients: bool = False
    fp32_head: bool = False
    outside_model: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """Which parts run as fused kernels instead of eager PyTorch, and how fast kernels launch.

    Attributes:
        host_launch_s: Host time of one operation, from Python to the card's queue.
        blocking_launches: The host waits for every kernel before it launches the next
            (``CUDA_LAUNCH_BLOCKING=1``).
    """

    fused_norm: bool = False
    fused_rope: bool = False
    fused_mlp: bool = False
    fused_adapter: bool = False
    compiled: bool = False
    host_launch_s: float = 12e-6
    blocking_launches: bool = False
    model_code: str = "transformers"  # as the framework names it, e.g. litgpt


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRecipe:
    """Every resolved setting of one training job on one rank.

    Attributes:
        frozen_dtype: dtype of frozen, unquantised layer weights.
        outer_dtype: dtype of frozen embeddings, norms and head (fp32 after k-bit preparation).
        trainable_dtype: dtype of trained weights (not adapters) and of their gradients.
        compute_dtype: dtype of matrix products.
        autocast: Whether products run under autocast with weights of another dtype.
        hidden_dtype: dtype of the residual stream between layers.
        norm_dtype: dtype of the norms' weights.
        fp32_norm_math: Hugging Face's norms compute in fp32 from a half input.
        expand_key_value: Keys and values are repeated to the query heads before attention.
        attention_mask: Whether a padding mask is passed (decides the SDPA kernel).
        use_reentrant: Of checkpointing.
        trained_layers: For ``freeze``: the last n layers are trained.
        reference_model: A frozen copy is resident (preference objectives without an adapter).
        sequences_per_sample: 2 for preference pairs that run concatenated, else 1.
        max_grad_norm: None where gradients are not clipped.
        keeps_outputs: The training loop holds logits of the last step while the next forward runs.
        outputs_die_with_step: It holds them through the backward, but the next step finds none.
        upcast_under_fsdp: accelerate turns trainables into fp32 when sharding with mixed precision
            (``trainable_dtype`` and the adapter's dtype already say fp32 then).
        frozen_gradients: Frozen weights share FSDP1 flat parameters with trained ones, so gradient
            memory of the whole flat parameter exists (unsharded while accumulating).
        tf32: fp32 products run on tensor cores in TF32.
        unties_head: The framework's own model holds a head of its own where the published one is
            tied (LitGPT).
        keeps_key_values: The model's forward collects every layer's keys and values until its
            outputs die, also while checkpointing (GPT-BigCode never turns ``use_cache`` off).
        keeps_graph: The training loop names ``loss`` until the next one exists, so what autograd
            functions of the step before hold as attributes is alive in the next forward.
        truncates: Whether longer samples are cut at ``max_length``; where not, that is but the
            model's own limit.
        longest_first: The longest batch is the first one: nothing of an earlier one stands beside
            it.
        gradient_buffer: Gradients live in one buffer from the start, to which each backward adds.
        recomputes_attention: The attention kernel alone runs again in the backward (Megatron's
            selective recomputation); a kernel without scores keeps no less for it.
        empties_cache_steps: The loop empties PyTorch's cache after every so many steps, before the
            gradients die; 0 = never.
    """

    framework: str
    framework_version: str
    objective: Objective
    method: Method
    adapter: Adapter | None
    quantization: Quantization | None
    frozen_dtype: DType
    outer_dtype: DType
    trainable_dtype: DType
    compute_dtype: DType
    autocast: bool
    hidden_dtype: DType
    norm_dtype: DType
    optimizer: Optimizer
    gradient_checkpointing: Checkpointing
    use_reentrant: bool
    attention: AttentionKernel
    loss: Loss
    kernels: Kernels
    per_device_train_batch_size: int
    gradient_accumulation_steps: int
    max_length: int
    packing: bool
    gradient_dtype: DType | None = None  # None: that of the weight
    fp32_norm_math: bool = True
    expand_key_value: bool = False
    attention_mask: bool = False
    trained_layers: int = 0
    reference_model: bool = False
    sequences_per_sample: int = 1
    max_grad_norm: float | None = 1.0
    keeps_outputs: bool = False
    outputs_die_with_step: bool = False
    upcast_under_fsdp: bool = False
    gradients_unsharded_while_accumulating: bool = False
    trains_vision: bool = False
    frozen_gradients: bool = False
    tf32: bool = False
    unties_head: bool = False
    keeps_key_values: bool = False
    keeps_graph: bool = False
    truncates: bool = True
    checkpoint_content: CheckpointContent = CheckpointContent.RESUMABLE
    longest_first: bool = False
    gradient_buffer: bool = False
    recomputes_attention: bool = False
    empties_cache_steps: int = 0
