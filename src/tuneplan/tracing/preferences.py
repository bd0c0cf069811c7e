"""Losses of preference training: log-probabilities of labels, and a reference to compare with.

After TRL: ``trainer/dpo_trainer.py concatenated_forward, compute_ref_log_probs,
get_batch_loss_metrics`` (0.8 to 0.28), ``kto_trainer.py forward``, ``orpo_trainer.py``,
``cpo_trainer.py`` (SimPO), ``reward_trainer.py compute_loss``. The policy's graph is there while
the reference runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
from torch.nn import functional

from tuneplan.errors import NotSupported
from tuneplan.language import message
from tuneplan.spec.recipe import LossPath, Objective, TrainingRecipe

Logits = Callable[[Any], torch.Tensor]
_LANGUAGE: Final = (Objective.SFT, Objective.PRETRAIN)


def is_preference(recipe: TrainingRecipe) -> bool:
    """Whether another loss than the next token's is trained."""
    return recipe.objective not in _LANGUAGE


def refuse_preference(recipe: TrainingRecipe) -> None:
    """Refuse loss paths that TRL's preference trainers take by kernels of their own.

    Raises:
        NotSupported: names path and objective.
    """
    if is_preference(recipe) and recipe.loss.path is not LossPath.FULL:
        raise NotSupported(
            message(
                "trace_preference_loss",
                "the loss path {path} is not traced with the objective {objective}",
                path=str(recipe.loss.path),
                objective=str(recipe.objective),
            )
        )


def preference_loss(
    model: Any, reference: Any, recipe: TrainingRecipe, labels: torch.Tensor, run: Logits
) -> torch.Tensor:
    """The loss of one batch; the first half of its rows is preferred.

    Args:
        model: The policy.
        reference: A frozen copy; None where the policy without its adapters is the reference.
        recipe: Says the objective and how log-probabilities are taken.
        labels: A token for each position.
        run: Runs a model on the batch and returns its logits as the trainer sees them.
    """
    if recipe.objective is Objective.RM:
        preferred, other = run(model).squeeze(-1).chunk(2)
        return -functional.logsigmoid(preferred - other).mean()
    if recipe.objective is Objective.KTO:
        with torch.no_grad():  # the mismatched pairs that estimate the divergence
            _chances(run(model), labels, recipe)
    scores, extra = _policy(run(model), labels, recipe)
    if recipe.objective in (Objective.DPO, Objective.KTO):
        with torch.no_grad(), _without_adapters(model, reference):
            compared = _chances(run(reference or model), labels, recipe)
            if recipe.objective is Objective.KTO:
                _chances(run(reference or model), labels, recipe)
        scores = scores - compared
    if recipe.objective is Objective.KTO:
        return (1 - torch.sigmoid(0.1 * scores)).mean()
    preferred, other = scores.chunk(2)
    loss = -functional.logsigmoid(0.1 * (preferred - other)).mean()
    return loss if extra is None else loss + extra


@contextlib.contextmanager
def _without_adapters(model: Any, reference: Any) -> Iterator[None]:
    with model.disable_adapter() if reference is None else contextlib.nullcontext():
        yield


def _policy(
    logits: torch.Tensor, labels: torch.Tensor, recipe: TrainingRecipe
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Log-probabilities, the preferred rows' own loss (ORPO); mean logits are taken as metrics."""
    extra = None
    half = logits.shape[0] // 2
    if recipe.objective is Objective.ORPO:
        rows = logits[:half, :-1, :].contiguous().view(-1, logits.shape[-1])
        extra = functional.cross_entropy(rows, labels[:half, 1:].reshape(-1))
    scores = _chances(logits, labels, recipe)
    if recipe.objective is Objective.DPO:
        for part in (logits[:half], logits[half:]):
            rows = part.reshape(-1, part.shape[-1])
            index = torch.empty(rows.shape[0], dtype=torch.int64, device=rows.device)
            rows[index].mean()
    return scores, extra


def _chances(logits: torch.Tensor, labels: torch.Tensor, recipe: TrainingRecipe) -> torch.Tensor:
    """The log-probability of every label, summed by row.

    Up to TRL 0.14 ``log_softmax`` of all logits, later ``selective_log_softmax``: fp32 logits row
    by row through ``logsumexp``, half ones through ``log_softmax``.
    """
    index = labels.unsqueeze(-1)
    if recipe.loss.upcast_logits:
        chances = logits.log_softmax(-1).gather(-1, index).squeeze(-1)
    elif logits.dtype is torch.float32:
        picked = logits.gather(-1, index).squeeze(-1)
        chances = picked - torch.stack([torch.logsumexp(row, dim=-1) for row in logits])
    else:
        rows = zip(logits, index, strict=True)
        found = [functional.log_softmax(row, dim=-1).gather(-1, at).squeeze(-1) for row, at in rows]
        chances = torch.stack(found)
    return chances.sum(-1)
