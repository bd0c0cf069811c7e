"""What happens between the last hidden state and the loss, by framework and version."""

from __future__ import annotations

from tuneplan.frameworks.context import Context
from tuneplan.spec.recipe import Loss, LossPath

TRL_CHUNK_TOKENS = 256
TRL_TILE_TOKENS = 4096
TRL_TILE_VOCABULARY = 32768
TORCHTUNE_CHUNKS = 8
LITGPT_CHUNK_TOKENS = 128


def full_loss(context: Context, *, output_fp32_copy: bool, extra_copies: int = 0) -> Loss:
    """Hugging Face's own loss: logits in the compute dtype, then PyTorch's cross entropy.

    Before 4.31 the logits stay half; to 4.45 the model returns fp32 logits; from 4.46 the loss
    casts and the model returns half logits, which accelerate's autocast wrapper then copies to
    fp32. Up to 4.48 a shifted contiguous copy is made.

    Args:
        context: Model and versions.
        output_fp32_copy: Whether accelerate wraps the forward in ``ConvertOutputsToFp32``.
        extra_copies: Further fp32 copies the trainer makes of the logits (TRL's token accuracy).
    """
    upcast = context.software.fact("transformers", "logits_upcast", context.model_type).value
    shifted = context.software.fact("transformers", "shifted_logits_copy").value == "true"
    copies = extra_copies + (1 if output_fp32_copy and upcast != "in_model" else 0)
    return Loss(
        path=LossPath.FULL,
        upcast_logits=upcast != "no",
        shifted_copy=shifted,
        output_fp32_copies=copies,
        holds_model_logits=upcast == "in_loss",
    )


def fused_cross_entropy(context: Context, *, output_fp32_copy: bool = False) -> Loss:
    """A fused kernel over full logits: the gradient overwrites the saved logits.

    The callers still make the fp32 and the shifted copy (fms-acceleration foak, K1).
    """
    full = full_loss(context, output_fp32_copy=output_fp32_copy)
    return Loss(
        path=LossPath.FUSED_CROSS_ENTROPY,
        upcast_logits=full.upcast_logits,
        shifted_copy=full.shifted_copy,
        output_fp32_copies=full.output_fp32_copies,
        holds_model_logits=full.holds_model_logits,
    )


def fused_linear() -> Loss:
    """Liger's fused linear cross entropy: the gradient is made in the forward, by chunks.

    Chunk = next power of two of tokens / ceil(vocabulary / hidden size)
    (liger-kernel ops/fused_linear_cross_entropy.py).
    """
    return Loss(path=LossPath.FUSED_LINEAR, upcast_logits=True)


def trl_chunked(*, fp32_head: bool = True) -> Loss:
    """TRL 1.7 to 1.14: 256 valid tokens a chunk, each recomputed in the backward.

    Args:
        fp32_head: Up to 1.12 each chunk casts the head's weight to fp32; from 1.13 it multiplies
            in the hidden states' dtype (``trainer/sft_trainer.py _chunk``).
    """
    return Loss(
        path=LossPath.CHUNKED,
        upcast_logits=True,
        chunk_tokens=TRL_CHUNK_TOKENS,
        skips_masked=True,
        fp32_head=fp32_head,
    )


def trl_fused_head() -> Loss:
    """TRL from 1.15: tiles of 4096 tokens x 32768 entries, recomputed, gradients summed in fp32.

    Source: trl/kernels/chunked_logprob.py at 1.16.0.
    """
    return Loss(
        path=LossPath.CHUNKED,
        upcast_logits=False,
        chunk_tokens=TRL_TILE_TOKENS,
        chunk_vocabulary=TRL_TILE_VOCABULARY,
        skips_masked=True,
        fp32_gradients=True,
    )


def torchtune_loss(kind: str) -> Loss:
    """Torchtune's losses: nothing is recomputed, so every chunk's fp32 log-softmax is kept.

    Args:
        kind: ``full``, ``chunked_output`` (0.3 to 0.6: the head still makes all half logits) or
            ``linear`` (later: the head runs inside the chunks).
    """
    if kind == "full":
        return Loss(path=LossPath.FULL, upcast_logits=False, shifted_copy=False, outside_model=True)
    return Loss(
        path=LossPath.CHUNKED,
        upcast_logits=True,
        num_chunks=TORCHTUNE_CHUNKS,
        holds_model_logits=True,
        keeps_logits=kind == "chunked_output",
        keeps_softmax=True,
        outside_model=True,
    )


def litgpt_loss() -> Loss:
    """LitGPT: the head over 128 tokens at a time; logits and log-softmax of all chunks kept.

    Fabric's precision plugin turns what the model returns into fp32 (``convert_output``).
    Source: litgpt finetune/lora.py lm_head_chunk_size and utils.py chunked_cross_entropy.
    """
    return Loss(
        path=LossPath.CHUNKED,
        upcast_logits=True,
        chunk_tokens=LITGPT_CHUNK_TOKENS,
        keeps_logits=True,
        keeps_softmax=True,
        outside_model=True,
    )


def generic_chunked() -> Loss:
    """A chunked head of the user's own: recomputed chunks of 1024 tokens in fp32."""
    return Loss(path=LossPath.CHUNKED, upcast_logits=True, chunk_tokens=1024)
