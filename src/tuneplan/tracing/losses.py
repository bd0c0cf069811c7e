"""What happens between the last hidden state and the loss: the paths of ``spec.recipe.LossPath``.

The full path is the model's own code. Others take the place of the model's forward or of its loss
function, as the libraries that bring them do.
"""

from __future__ import annotations

import inspect
import math
import sys
import types
from collections.abc import Callable
from typing import Any, Final

import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tuneplan.spec.recipe import Loss, LossPath, TrainingRecipe
from tuneplan.tracing.fused import LIGER, FusedCrossEntropy, FusedLinearCrossEntropy
from tuneplan.tracing.recording import Recording
from tuneplan.tracing.tiles import TiledLogProbability

Head = Callable[[torch.Tensor], torch.Tensor]
_FUSED_CE: Final = "unsloth kernels/cross_entropy_loss.py"
_TILES: Final = "TRL 1.16.0 trl/kernels/chunked_logprob.py"


def causal_model(model: Any) -> Any:
    """The model with the head, without the wrappers of FSDP and PEFT around it."""
    model = getattr(model, "_fsdp_wrapped_module", model)
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def install_loss(model: torch.nn.Module, recipe: TrainingRecipe, recording: Recording) -> None:
    """Give the model the recipe's way from hidden states to the loss.

    Args:
        model: Perhaps wrapped by PEFT.
        recipe: Says the path.
        recording: Told which stand-ins run.
    """
    loss, causal = recipe.loss, causal_model(model)
    if loss.path is LossPath.FUSED_CROSS_ENTROPY:
        recording.stand_ins["fused cross entropy"] = _FUSED_CE
        _install_fused(causal, loss)
        return
    if loss.path is LossPath.FULL and (loss.outside_model or loss.trained_fraction >= 1):
        return
    if loss.path is LossPath.FUSED_LINEAR:
        source = f"{LIGER} ops/fused_linear_cross_entropy.py"
        recording.stand_ins["fused linear cross entropy"] = source
    if loss.chunk_vocabulary:
        recording.stand_ins["tiled log-probabilities"] = _TILES
    causal.forward = types.MethodType(_forward_of(loss), causal)


def _install_fused(causal: Any, loss: Loss) -> None:
    """The kernel in place of the loss function; unsloth's soft-caps in its kernel too."""
    if not loss.upcast_logits and getattr(causal.config, "final_logit_softcapping", None):
        causal.config.final_logit_softcapping = None

    def fused(logits: torch.Tensor, labels: torch.Tensor, *size: Any, **how: Any) -> torch.Tensor:
        del size, how
        if loss.upcast_logits:
            logits = logits.float()
        if loss.shifted_copy:
            logits, labels = logits[..., :-1, :].contiguous(), labels[..., 1:].contiguous()
        else:
            labels = shifted(labels)
        return _fused_sum(logits, labels)

    _replace_loss(causal, fused)


def _replace_loss(causal: Any, fused: Callable[..., torch.Tensor]) -> None:
    """Put a kernel where the model's code finds its loss.

    Before 4.46 (some models later) a forward names PyTorch's ``CrossEntropyLoss``, and casts and
    shifts by itself; then ``loss_function`` is what it asks for, first a property without setter.
    """
    kind = type(causal)
    if "CrossEntropyLoss" in inspect.unwrap(kind.forward).__code__.co_names:
        named: Any = sys.modules[kind.__module__]
        named.CrossEntropyLoss = _FusedLoss
        return
    found = getattr(kind, "loss_function", None)
    if isinstance(found, property) and found.fset is None:
        members = {"loss_function": staticmethod(fused), "__module__": kind.__module__}
        causal.__class__ = type(kind.__name__, (kind,), members)
    else:
        causal.loss_function = fused


class _FusedLoss:
    """In place of ``torch.nn.CrossEntropyLoss`` in a model's code."""

    def __call__(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return _fused_sum(logits, labels)


def _fused_sum(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    rows = logits.view(-1, logits.shape[-1])
    out: torch.Tensor = FusedCrossEntropy.apply(rows, labels.view(-1))  # type: ignore[no-untyped-call]
    return out.sum()


def shifted(labels: torch.Tensor) -> torch.Tensor:
    """Labels moved by one position (``loss_utils.py ForCausalLMLoss`` pads them)."""
    return functional.pad(labels, (0, 1), value=-100)[..., 1:].contiguous()


def _forward_of(loss: Loss) -> Callable[..., Any]:
    """The forward of a model with a head that is not called as a whole."""

    def forward(
        self: Any,
        input_ids: Any = None,
        attention_mask: Any = None,
        labels: Any = None,
        **rest: Any,
    ) -> Any:
        from transformers.modeling_outputs import CausalLMOutputWithPast

        inner = getattr(self, self.base_model_prefix or "model", None) or self.model
        outputs = inner(input_ids=input_ids, attention_mask=attention_mask, **rest)
        hidden, head = outputs[0], self.get_output_embeddings()
        transform = _transform_of(self.config)
        if loss.outside_model:
            return CausalLMOutputWithPast(logits=_chunks(hidden, head, transform, loss))
        value = _inside(hidden, head, transform, labels, loss)
        return CausalLMOutputWithPast(loss=value)

    return forward


def _transform_of(config: Any) -> Head:
    """What a model does to its logits: Granite divides, Cohere multiplies, Gemma soft-caps."""
    text = config.get_text_config()
    divide = getattr(text, "logits_scaling", None)
    multiply = getattr(text, "logit_scale", None)
    cap = getattr(text, "final_logit_softcapping", None)

    def transform(logits: torch.Tensor) -> torch.Tensor:
        if divide and divide != 1:
            logits = logits / divide
        if multiply and multiply != 1:
            logits = logits * multiply
        return torch.tanh(logits / cap) * cap if cap else logits

    return transform


def _inside(
    hidden: torch.Tensor, head: Any, transform: Head, labels: torch.Tensor, loss: Loss
) -> torch.Tensor:
    """The loss of hidden states, computed before the model returns."""
    hidden = hidden.reshape(-1, hidden.shape[-1])
    labels = shifted(labels).view(-1)
    if loss.trained_fraction < 1:
        kept = math.ceil(hidden.shape[0] * loss.trained_fraction)
        index = torch.empty(kept, dtype=torch.int64, device=hidden.device)
        hidden, labels = hidden.index_select(0, index), labels.index_select(0, index)
    if loss.path is LossPath.FUSED_LINEAR:
        value: torch.Tensor = FusedLinearCrossEntropy.apply(hidden, head.weight, labels)  # type: ignore[no-untyped-call]
        return value
    if loss.path is LossPath.FULL:
        logits = transform(head(hidden))
        return functional.cross_entropy(logits.float() if loss.upcast_logits else logits, labels)
    if loss.chunk_vocabulary:
        return _tiled(hidden, head, labels, loss)
    if loss.skips_masked:
        return _trl_chunks(hidden, head, transform, labels, loss)
    return _recomputed_chunks(hidden, head, transform, labels, loss)


def _tiled(hidden: torch.Tensor, head: Any, labels: torch.Tensor, loss: Loss) -> torch.Tensor:
    """TRL 1.15 and later; source of the copies: ``trainer/utils.py add_fused_lm_head``."""
    tile = (loss.chunk_tokens, loss.chunk_vocabulary)
    hidden, labels = _valid_first(hidden, labels)
    chances: torch.Tensor = TiledLogProbability.apply(hidden, head.weight, labels, tile)  # type: ignore[no-untyped-call]
    return -chances.sum()


def _recomputed_chunks(
    hidden: torch.Tensor, head: Any, transform: Head, labels: torch.Tensor, loss: Loss
) -> torch.Tensor:
    """Head and cross entropy over chunks of tokens, each computed again in the backward."""

    def one(part: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        logits = transform(head(part))
        logits = logits.float() if loss.upcast_logits else logits
        return functional.cross_entropy(logits, wanted, reduction="sum")

    total = hidden.new_zeros((), dtype=torch.float32)
    size = loss.chunk_tokens or 1024
    for part, wanted in zip(hidden.split(size), labels.split(size), strict=True):
        total = total + checkpoint(one, part, wanted, use_reentrant=False)
    return total


def _trl_chunks(
    hidden: torch.Tensor, head: Any, transform: Head, labels: torch.Tensor, loss: Loss
) -> torch.Tensor:
    """The same with TRL's metrics, up to 1.12 with the head's weight made fp32 for every chunk.

    Valid tokens come first in a copy of the hidden states. Source: TRL 1.7 to 1.14
    ``trainer/sft_trainer.py _chunked_cross_entropy_loss, _chunk``.
    """
    weight, size = head.weight, loss.chunk_tokens

    def one(part: torch.Tensor, matrix: torch.Tensor, wanted: torch.Tensor) -> Any:
        if loss.fp32_head:
            logits = part.float() @ matrix.float().t()
        else:
            logits = (part @ matrix.to(part.dtype).t()).float()
        logits = transform(logits)
        chances = functional.log_softmax(logits, dim=-1)
        value = functional.nll_loss(chances, wanted, reduction="sum")
        valid = wanted != -100
        right = ((logits.argmax(dim=-1) == wanted) & valid).sum().float()
        entropy = (-(chances.exp() * chances).sum(dim=-1) * valid).sum()
        return value, right, entropy

    hidden, labels = _valid_first(hidden, labels)
    totals = [hidden.new_zeros((), dtype=torch.float32) for _ in range(3)]
    for start in range(0, hidden.shape[0], size):
        part, wanted = hidden[start : start + size], labels[start : start + size]
        found = checkpoint(one, part, weight, wanted, use_reentrant=False)
        totals = [total + value for total, value in zip(totals, found, strict=True)]
    return totals[0]


def _valid_first(hidden: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Copies of what has labels, all of it here (by position: a mask's number is unknown)."""
    order = (labels != -100).to(torch.int8).argsort(descending=True, stable=True)
    return hidden[order], labels[order]


def _chunks(
    hidden: torch.Tensor, head: Any, transform: Head, loss: Loss
) -> tuple[torch.Tensor, ...]:
    """What a model returns whose loss is computed outside: logits, or hidden states, by chunk."""
    parts = (
        hidden.chunk(loss.num_chunks, dim=1)
        if loss.num_chunks
        else hidden.split(loss.chunk_tokens or 1024, dim=1)
    )
    if not loss.keeps_logits:
        return tuple(parts)
    logits = tuple(transform(head(part)) for part in parts)
    if loss.upcast_logits and not loss.holds_model_logits:
        logits = tuple(one.float() for one in logits)
    return logits


def outside_loss(model: Any, outputs: Any, labels: torch.Tensor, loss: Loss) -> torch.Tensor:
    """The loss that a training loop computes on what the model returned.

    Source: torchtune 0.4 to 0.6 ``modules/loss/ce_chunked_output_loss.py``, recipes ``_loss_step``;
    LitGPT ``utils.py chunked_cross_entropy``.
    """
    logits, labels = outputs["logits"], shifted(labels)
    if loss.path is LossPath.FULL:
        rows = logits.reshape(-1, logits.shape[-1])
        rows = rows.float() if loss.upcast_logits else rows
        return functional.cross_entropy(rows, labels.reshape(-1))
    head = causal_model(model).get_output_embeddings()
    total: Any = 0.0
    start = 0
    for part in logits:
        wanted = labels[:, start : start + part.shape[1]].reshape(-1)
        start += part.shape[1]
        total = total + _of_chunk(part if loss.keeps_logits else head(part), wanted, loss)
    value: torch.Tensor = total
    return value


def _of_chunk(logits: torch.Tensor, labels: torch.Tensor, loss: Loss) -> torch.Tensor:
    rows = logits.reshape(-1, logits.shape[-1])
    if not loss.keeps_softmax:
        return _fused_sum(rows, labels)
    rows = rows.float() if loss.upcast_logits else rows
    return functional.cross_entropy(rows, labels, reduction="sum")
