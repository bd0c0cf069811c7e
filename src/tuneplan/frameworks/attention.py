"""The attention kernel that really runs: what was asked, the model, the chip, the versions.

PyTorch's ``scaled_dot_product_attention`` chooses among flash, memory-efficient, cuDNN and math:
flash takes half precision, no mask, compute capability 8 or more and head sizes up to 256;
memory-efficient takes masks and fp32 but no grouped keys; what neither takes is math, which holds
length x length scores (aten/native/transformers/cuda/sdp_utils.cpp, torch 2.13).
"""

from __future__ import annotations

from tuneplan.frameworks.context import Context
from tuneplan.frozen import dataclass
from tuneplan.language import Message, message
from tuneplan.spec.blocks import Attention
from tuneplan.spec.recipe import AttentionKernel, DType

_FLASH_HEAD_DIM = 256
_SOURCE = "torch aten/native/transformers/cuda/sdp_utils.cpp (2.13)"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionChoice:
    """The kernel, what is fed to it, and why.

    Attributes:
        mask: Whether a mask tensor reaches the kernel.
        expand_key_value: Whether keys and values are repeated to the query heads first.
    """

    kernel: AttentionKernel
    mask: bool
    expand_key_value: bool
    reason: Message
    source: str


def default_implementation(context: Context) -> tuple[str, str]:
    """The implementation Hugging Face picks for this model and version, and where that stands."""
    fact = context.software.fact("transformers", "attention", context.model_type)
    return fact.value, fact.citation


def choose_kernel(
    context: Context,
    *,
    implementation: str,
    dtype: DType,
    padded: bool,
    packed_documents: bool,
    expand_always: bool = False,
) -> AttentionChoice:
    """The kernel behind ``attn_implementation``.

    Args:
        context: Model, chip and versions.
        implementation: ``eager``, ``sdpa``, ``flash_attention_2``, ``flash_attention_3``,
            ``flex_attention`` or ``triton``.
        dtype: Of queries and keys when they reach the kernel.
        padded: Whether rows of one batch differ in length.
        packed_documents: Whether several documents stand in one row and must not see each other.
        expand_always: The model code repeats keys whatever the kernel could take.
    """
    grouped = _has_grouped_keys(context)
    if implementation == "eager":
        reason = message("attention_eager", "eager attention keeps the scores")
        return AttentionChoice(
            kernel=AttentionKernel.EAGER,
            mask=True,
            expand_key_value=grouped,
            reason=reason,
            source="transformers models/llama eager_attention_forward: repeat_kv",
        )
    if implementation == "sdpa":
        return _sdpa(
            context,
            dtype=dtype,
            padded=padded,
            packed_documents=packed_documents,
            grouped=grouped,
            expand_always=expand_always,
        )
    kernel = {
        "flash_attention_2": AttentionKernel.FLASH_2,
        "flash_attention_3": AttentionKernel.FLASH_3,
        "flex_attention": AttentionKernel.FLEX,
        "triton": AttentionKernel.TRITON,
    }[implementation]
    expanded = (
        kernel is AttentionKernel.FLASH_2
        and grouped
        and context.model_type == "mistral"
        and context.software.fact("transformers", "flash_key_value", "mistral").value == "expanded"
    )
    return AttentionChoice(
        kernel=kernel,
        mask=False,
        expand_key_value=expanded,
        reason=message("attention_stated_kernel", "{name} runs as asked", name=implementation),
        source="transformers integrations (flash attention takes grouped keys as stored)",
    )


def _sdpa(
    context: Context,
    *,
    dtype: DType,
    padded: bool,
    packed_documents: bool,
    grouped: bool,
    expand_always: bool,
) -> AttentionChoice:
    software = context.software
    if context.model_type == "falcon":
        return _falcon(context, dtype=dtype)
    mask = padded or software.fact("transformers", "sdpa_mask").value == "always"
    if packed_documents and software.fact("transformers", "packed_mask").value == "block":
        mask = True
    keys = software.fact("transformers", "sdpa_key_value")
    takes_grouped = (
        keys.value == "enable_gqa_without_mask"
        and software.fact("torch", "enable_gqa").value == "true"
        and not mask
        and not expand_always
    )
    expanded = grouped and not takes_grouped
    kernel, reason = _sdpa_kernel(
        context, dtype=dtype, mask=mask, grouped_at_kernel=grouped and takes_grouped
    )
    return AttentionChoice(
        kernel=kernel,
        mask=mask,
        expand_key_value=expanded,
        reason=reason,
        source=f"{_SOURCE}; {keys.citation}",
    )


def _falcon(context: Context, *, dtype: DType) -> AttentionChoice:
    """Falcon always makes a mask; one shared key head is left to broadcasting, so math runs."""
    del dtype
    shared = any(mixer.num_key_value_heads == 1 for mixer in _mixers(context))
    if shared:
        kernel = AttentionKernel.SDPA_MATH
        reason = message(
            "attention_broadcast",
            "one key head is broadcast to all query heads, which only PyTorch's math attention "
            "does: length x length scores",
        )
    else:
        kernel = AttentionKernel.SDPA_EFFICIENT
        reason = message(
            "attention_masked", "a mask is passed, so the memory-efficient kernel runs"
        )
    return AttentionChoice(
        kernel=kernel,
        mask=True,
        expand_key_value=_has_grouped_keys(context) and not shared,
        reason=reason,
        source="transformers 4.44-5.24 models/falcon/modeling_falcon.py FalconAttention.forward",
    )


def _sdpa_kernel(
    context: Context, *, dtype: DType, mask: bool, grouped_at_kernel: bool
) -> tuple[AttentionKernel, Message]:
    half = dtype is not DType.FLOAT32
    # Layers with wider heads (Gemma 4) take the memory-efficient kernel, each by itself.
    small_heads = _smallest_head(context) <= _FLASH_HEAD_DIM
    if half and not mask and context.has_flash_attention_2 and small_heads:
        if _prefers_cudnn(context):
            text = message("attention_cudnn", "this torch prefers cuDNN attention on this chip")
            return AttentionKernel.CUDNN, text
        return AttentionKernel.SDPA_FLASH, message(
            "attention_flash", "half precision without a mask: PyTorch's flash kernel"
        )
    if grouped_at_kernel:
        return AttentionKernel.SDPA_MATH, message(
            "attention_math",
            "grouped keys are passed on and flash cannot run, so PyTorch falls back to math: "
            "length x length scores",
        )
    if mask:
        text = message("attention_masked", "a mask is passed, so the memory-efficient kernel runs")
    elif not half:
        text = message("attention_fp32", "fp32 queries: the memory-efficient kernel runs")
    else:
        text = message("attention_no_flash", "flash cannot run here: the memory-efficient kernel")
    return AttentionKernel.SDPA_EFFICIENT, text


def _prefers_cudnn(context: Context) -> bool:
    capability = context.compute_capability
    if capability is None or int(capability) not in (9, 10):
        return False
    return context.software.fact("torch", "cudnn_attention").value == "true"


def _mixers(context: Context) -> list[Attention]:
    mixers = (group.layer.mixer for group in context.architecture.groups)
    return [mixer for mixer in mixers if isinstance(mixer, Attention)]


def _has_grouped_keys(context: Context) -> bool:
    return any(
        mixer.num_key_value_heads != mixer.num_attention_heads and mixer.latent is None
        for mixer in _mixers(context)
    )


def _smallest_head(context: Context) -> int:
    return min((max(mixer.head_dim, mixer.v_head_dim) for mixer in _mixers(context)), default=0)
