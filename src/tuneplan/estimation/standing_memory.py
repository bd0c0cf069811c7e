"""What one rank holds in every phase of a step, on the card and on the host."""

from __future__ import annotations

from tuneplan.estimation.attention_kernels import masked_share
from tuneplan.estimation.operations import Number
from tuneplan.estimation.persistent import shards_of
from tuneplan.estimation.rank_stack import RankStack, present
from tuneplan.estimation.streams import embeddings_dtype
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.blocks import Attention
from tuneplan.spec.parallelism import Offload, Strategy
from tuneplan.spec.recipe import AttentionKernel, Checkpointing, TrainingRecipe

CUBLAS_WORKSPACE_BYTES = 8_519_680  # torch 2.x, compute capability below 9 (CUDABlas workspaces)
CUBLAS_WORKSPACE_HOPPER_BYTES = 32 * 2**20 + 2**17


def standing_memory(stack: RankStack, compute_capability: float | None) -> dict[str, Number]:
    """What is there in every phase.

    Packed weights are parameters, which FSDP and ZeRO-3 shard and offload; what unpacks them hangs
    on its module (bitsandbytes 0.43 to 0.49 ``nn/modules.py``
    ``fix_4bit_weight_quant_state_from_module``), so each rank keeps all of it on the card.
    """
    recipe, parallelism, held = stack.recipe, stack.parallelism, stack.held
    weights, _, states = shards_of(parallelism)
    offload = parallelism.offload
    on_card = offload is not Offload.PARAMS
    base: dict[str, Number] = {
        "frozen_weights": held.frozen_bytes / weights if on_card else 0.0,
        "quantized_weights": held.quantized_bytes / weights if on_card else 0.0,
        "quantization_constants": held.constants_bytes,
        "trained_weights": held.trained_bytes / weights if on_card else 0.0,
        "adapters": held.adapter_bytes / weights if on_card else 0.0,
        "optimizer_states": held.state_bytes / states if offload is Offload.NONE else 0.0,
        "master_weights": held.master_bytes / states if offload is Offload.NONE else 0.0,
        "communication_buffers": stack.gathered.buffer_bytes,
        "cublas_workspace": workspace_bytes(compute_capability),
    }
    if recipe.reference_model:
        base["reference_model"] = (
            stack.model.total_parameters * recipe.frozen_dtype.num_bytes / weights
        )
    if parallelism.strategy is Strategy.DDP and not recipe.gradient_buffer:
        base["gradient_buckets"] = held.gradient_bytes
    base["mask_buffer"] = float(stack.model.mask_buffer_bytes)
    base["token_ids"] = 3 * 8.0 * stack.tokens
    return present(base)


def mask_bytes(
    model: ModelArchitecture, recipe: TrainingRecipe, sequences: Number, length: Number
) -> Number:
    """The masks that layers share, one for each width of window: the model's forward holds them.

    Boolean for PyTorch's attention function, numbers for eager code, which always has one.
    Source: transformers 5.24 ``masking_utils.py sdpa_mask``, ``eager_mask``.
    """
    mixers = [group.layer.mixer for group in model.groups]
    kinds = {mixer.window: mixer for mixer in mixers if isinstance(mixer, Attention)}
    size = sequences * length * length
    if recipe.attention is AttentionKernel.EAGER:
        return len(kinds) * size * recipe.hidden_dtype.num_bytes
    masked = [masked_share(recipe, mixer, length) for mixer in kinds.values()]
    return sum(masked) * size


def keeps_embeddings(model: ModelArchitecture, recipe: TrainingRecipe) -> bool:
    """Whether the graph keeps the embeddings beside the first layer's input.

    For checkpointing ``enable_input_require_grads`` (transformers ``modeling_utils.py``) makes
    them a leaf, which backward needs; where they are scaled (Granite) the layer's input is another
    tensor. Where they are half and hidden states become fp32 in the first layer, both are half, and
    take what is counted for its input alone.
    """
    half = embeddings_dtype(recipe) is not recipe.hidden_dtype
    checkpoints = recipe.gradient_checkpointing is not Checkpointing.NONE
    return model.embedding_scale and recipe.method.uses_adapter and checkpoints and not half


def workspace_bytes(compute_capability: float | None) -> float:
    """CuBLAS workspaces of the two threads that multiply: the main one and autograd's."""
    hopper = compute_capability is not None and compute_capability >= 9
    return 2.0 * (CUBLAS_WORKSPACE_HOPPER_BYTES if hopper else CUBLAS_WORKSPACE_BYTES)


def host_bytes_of(stack: RankStack) -> Number:
    """On the host: offloaded states, parameters and checkpoints."""
    held, parallelism = stack.held, stack.parallelism
    _, _, states = shards_of(parallelism)
    host: Number = held.paged_state_bytes / states
    if parallelism.offload is not Offload.NONE:
        host = host + (held.state_bytes + held.master_bytes + 4 * held.num_trained) / states
    if parallelism.offload is Offload.PARAMS:
        weights = held.frozen_bytes + held.trained_bytes + held.adapter_bytes
        host = host + (weights + held.quantized_bytes) / states
    if stack.recipe.gradient_checkpointing is Checkpointing.OFFLOAD:
        size = stack.tokens * stack.model.hidden_size * stack.recipe.hidden_dtype.num_bytes
        host = host + stack.model.num_layers * size
    return host
