"""What a framework makes of the settings: the behaviour that no job key names."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum

from tuneplan.frameworks.ledger import Default
from tuneplan.frozen import dataclass
from tuneplan.spec.recipe import (
    AttentionKernel,
    CheckpointContent,
    DType,
    Kernels,
    Loss,
    OptimizerImplementation,
)


class KbitPreparation(StrEnum):
    """What happens to the unquantised weights of a quantised base before training."""

    NONE = "none"
    ALL = "all to fp32"  # peft prepare_model_for_kbit_training
    ALL_THEN_BF16 = "all to fp32, then embeddings and head back to bf16"  # TRL 0.7.5 to 0.24
    NORMS = "norms to fp32"  # TRL 0.25, LLaMA-Factory's upcast_layernorm


class FsdpUpcast(StrEnum):
    """What accelerate turns into fp32 when it shards under mixed precision."""

    NONE = "none"
    TRAINABLE = "trainable"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Splitting:
    """How a framework runs tensor, pipeline, context and expert ranks.

    Attributes:
        sequence: Whether tensor ranks share the positions between the blocks.
        overlap_tensor, overlap_transfers, overlap_gradients: What runs beside compute.
        pads_vocabulary_to: The vocabulary is padded to a multiple of this times the tensor ranks.
    """

    sequence: Default[bool]
    overlap_tensor: Default[bool]
    overlap_transfers: Default[bool]
    overlap_gradients: Default[bool]
    pads_vocabulary_to: int = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Behaviour of one framework version for one set of settings.

    Attributes:
        adapter_dtype: Before what DeepSpeed or FSDP make of it.
        trains_in_fp32: Trained weights (not adapters) are cast to fp32 after loading.
        half_engine: The framework's own engine holds weights in the compute dtype and updates fp32
            masters (Megatron), whatever the strategy.
        gradient_dtype: Of gradients where it is not that of the weights.
        gradient_buffer, recomputes_attention: As in ``TrainingRecipe``.
        attention_kernel: The kernel, where the framework does not leave it to PyTorch.
        splitting: How tensor, pipeline, context and expert ranks run.
        expand_key_value: The model code repeats keys and values whatever the kernel takes.
        attention: Implementation as the model code understands it, where it is not the job's.
        adapter_sharded: False where the framework keeps the adapters whole on every rank.
        adapter_cast: None = as PEFT does.
        keeps_outputs: The loop holds the logits while the next forward runs.
        outputs_die_with_step: As in ``TrainingRecipe``.
        frozen_gradients: Frozen weights share FSDP1 flat parameters with trained ones.
        query_key_value: Parts of a fused query-key-value projection that are adapted, each for
            itself (``Adapter.query_key_value``).
        gptq_in_one_kernel: A Triton kernel expands GPTQ weights, as in ``Quantization``.
        unties_head, keeps_key_values, keeps_graph, longest_first, empties_cache_steps: As in
            ``TrainingRecipe``.
        optimizer_step: How the framework's own optimizer setting runs, where it says so.
        gathers_for_checkpointing: Checkpointing outside the FSDP unit gathers once more.
        accumulates_unsharded: Gradients stay unsharded between micro-batches under FSDP.
        fp32_norm_math: Whether norms compute in fp32 from a half input.
        fp32_outer: Embeddings, head and norms stay fp32 although the weights are half.
        checkpoint_content: As in ``TrainingRecipe``.
        masks_padding: Whether a padding mask reaches the attention.
        packs_documents: Whether packed documents are kept from seeing each other.
    """

    kbit: Default[KbitPreparation]
    adapter_dtype: Default[DType]
    loss: Default[Loss]
    autocast: bool = True
    half_engine: bool = False
    gradient_dtype: DType | None = None
    gradient_buffer: bool = False
    recomputes_attention: bool = False
    attention_kernel: AttentionKernel | None = None
    splitting: Splitting | None = None
    trains_in_fp32: Default[bool] | None = None
    fsdp_upcast: Default[FsdpUpcast] | None = None
    kernels: Kernels = field(default_factory=Kernels)
    kernels_source: str = ""
    expand_key_value: bool = False
    adapter_sharded: bool = True
    adapter_cast: bool | None = None
    keeps_outputs: bool = False
    outputs_die_with_step: bool = False
    gathers_for_checkpointing: bool = True
    accumulates_unsharded: bool = True
    optimizer_in_backward: bool = False
    frozen_gradients: bool = False
    query_key_value: tuple[str, ...] = ()
    unties_head: bool = False
    keeps_key_values: bool = False
    keeps_graph: bool = False
    longest_first: bool = False
    empties_cache_steps: int = 0
    optimizer_step: Default[OptimizerImplementation] | None = None
    dequantized_dtype: Default[DType] | None = None
    quantizes_head: bool = False
    gptq_in_one_kernel: bool = False
    quantizes_experts: Default[bool] | None = None
    keeps_inputs: Default[bool] | None = None
    fp32_norm_math: bool = True
    fp32_outer: bool = False
    checkpoint_content: CheckpointContent = CheckpointContent.RESUMABLE
    masks_padding: bool = True
    packs_documents: bool = False
    trains_vision: bool = False
    overlap_communication: bool | None = None
    reduce_bucket_elements: int | None = None
