"""What is alive while gradients are made: through the layers, and of the embeddings."""

from __future__ import annotations

import numpy as np

from tuneplan.estimation.operations import Number
from tuneplan.estimation.rank_stack import Largest, RankStack, attributes_of
from tuneplan.estimation.roles import Place, head_of, role_of
from tuneplan.spec.recipe import DType, LossPath

_SORTED_FROM = 3072  # tokens from which an embedding's backward sorts them


def backward_through_layers(stack: RankStack, backward: Largest, kept: Number) -> Number:
    """Offer the backward of the last and the first layer of each group; the gradients so far."""
    in_backward = stack.recipe.optimizer.in_backward
    share = 0.0 if stack.accumulating or in_backward else stack.gathered.gradient_share
    logits = stack.head.held_logits
    done = _head_gradient(stack, share)
    retained: Number = stack.head.attributes
    growing = stack.walked.entry.input_gradient
    retains = stack.gathered.retains_recomputed
    # The output that the last layer computes again is not among what FSDP1's hooks hold.
    spared: Number = 0.0
    for group, profile in reversed(stack.groups):
        if not np.any(profile.backward_peak):
            continue
        below = kept - group.count * profile.kept
        first = group is stack.groups[0][0]
        lasting = profile.attributes + (profile.kept + profile.hidden if retains else 0.0)
        frozen = 0.0 if stack.accumulating else stack.gathered.frozen_unit_gradient_bytes
        for index in {group.count - 1, 0}:
            above = group.count - 1 - index
            backward.offer(
                {
                    "kept_activations": below
                    + index * profile.kept
                    + retained
                    + growing
                    + above * lasting
                    - (profile.hidden if retains and above else spared),
                    "gradients": done + above * (profile.gradients + frozen) * share,
                    "held_logits": logits,
                    "layer_unit": stack.gathered.unit_backward_bytes
                    - (stack.gathered.prefetched_bytes if first and index == 0 else 0.0),
                    "layer_working_set": profile.backward_peak,
                },
                profile.at_backward_peak,
            )
        retained = retained + group.count * lasting
        spared = profile.hidden if retains else 0.0
        kept = below
        done = done + group.count * (profile.gradients + frozen) * share
    return done


def backward_through_entry(stack: RankStack, backward: Largest, done: Number) -> Number:
    """Offer the backward of what stands before the layers; the gradients after it."""
    entry = stack.walked.entry
    if not np.any(entry.backward_peak):
        return done
    share = 0.0 if stack.accumulating or stack.recipe.optimizer.in_backward else 1.0
    backward.offer(
        {
            "kept_activations": attributes_of(stack),
            "gradients": done,
            "held_logits": stack.head.held_logits,
            "layer_working_set": entry.backward_peak,
        },
        entry.at_backward_peak,
    )
    return done + entry.gradients * share * stack.gathered.gradient_share


def _head_gradient(stack: RankStack, share: float) -> Number:
    """What stays of the head's gradient while the layers run backward.

    A tied weight steps (``optimizer.in_backward``) when both of its gradients are there; a sharded
    root unit is reduced when all of its gradients are.
    """
    model, recipe = stack.model, stack.recipe
    waits = stack.gathered.root_gradient_bytes or recipe.optimizer.in_backward
    head = head_of(model, recipe)
    if not waits or (recipe.optimizer.in_backward and head is not None):
        return stack.head.gradients * share
    role = role_of(model.head_weight, recipe, Place.HEAD)
    width = (recipe.gradient_dtype or recipe.compute_dtype).num_bytes
    return float(model.head_weight.num_parameters * width) if role.trained or role.copied else 0.0


def embedding_gradient(stack: RankStack, backward: Largest, done: Number) -> None:
    """The dense gradient of a trained token embedding; beside the head's where they are tied."""
    weight = stack.model.token_embedding
    role = role_of(weight, stack.recipe, Place.OUTER)
    if not (role.trained or role.copied):
        return
    dtype = stack.recipe.gradient_dtype or role.used_dtype
    size = float(weight.num_parameters * dtype.num_bytes)
    third = size if _sums_tied_gradients(stack, role.used_dtype) else 0.0
    for beside in (third, _embedding_buffers(stack, weight.shape[0])):
        backward.offer(
            {
                "gradients": done,
                "held_logits": stack.head.held_logits,
                "embedding_gradient": size + beside + stack.gathered.root_gradient_bytes,
            }
        )


def _embedding_buffers(stack: RankStack, rows: int) -> Number:
    """What the embedding's backward holds: the arriving gradient; beyond 3072 tokens fp32 sums.

    Equal tokens are sorted together, and runs of ten of them are summed in a buffer with a row for
    every tenth token and one for every token that occurs (here: as many as can). Source: PyTorch
    ``aten/src/ATen/native/cuda/EmbeddingBackwardKernel.cu embedding_backward_cuda_kernel``.
    """
    hidden, tokens = stack.model.hidden_size, np.asarray(stack.tokens, dtype=float)
    sums = (tokens / 10 + np.minimum(tokens, rows)) * hidden * 4.0
    arriving = tokens * hidden * stack.recipe.hidden_dtype.num_bytes
    found = arriving + np.where(tokens > _SORTED_FROM, sums, 0.0)
    return found if isinstance(stack.tokens, np.ndarray) else float(found)


def _sums_tied_gradients(stack: RankStack, dtype: DType) -> bool:
    """Whether a tied embedding's two gradients are added into a third matrix.

    The head's is a view (a transposed product), to which nothing is added in place
    (``torch/csrc/autograd/input_buffer.cpp can_accumulate_inplace``); a sum over chunks or a copy
    in another dtype is none.
    """
    recipe = stack.recipe
    if head_of(stack.model, recipe) is not None or stack.gathered.root_gradient_bytes:
        return False
    whole = recipe.loss.path in (LossPath.FULL, LossPath.FUSED_CROSS_ENTROPY)
    return whole and not (recipe.autocast and dtype is not recipe.compute_dtype)
