"""Memory of one rank, by phase: the layers' profiles put together with what stays.

peak = the largest of: forward, loss, backward, optimizer step (and load). Within a group of equal
layers the total changes by the same amount from layer to layer, so the largest is at one of its
ends and one walk per group is exact whatever the depth.
"""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum

import numpy as np

from tuneplan.estimation.backward_memory import (
    backward_through_entry,
    backward_through_layers,
    embedding_gradient,
)
from tuneplan.estimation.operations import Number
from tuneplan.estimation.persistent import Persistent, persistent, shards_of, step_temporary_bytes
from tuneplan.estimation.rank_stack import (
    Largest,
    RankStack,
    attributes_of,
    gradients_of,
    present,
    total_of,
)
from tuneplan.estimation.sharding import gathered
from tuneplan.estimation.standing_memory import (
    host_bytes_of,
    keeps_embeddings,
    mask_bytes,
    standing_memory,
)
from tuneplan.estimation.walking import Walked, walk_model
from tuneplan.frozen import dataclass
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.parallelism import Offload, Parallelism, Strategy
from tuneplan.spec.recipe import Checkpointing, TrainingRecipe


class Phase(StrEnum):
    """Moments of a training step that may hold the most."""

    LOAD = "load"
    FORWARD = "forward"
    LOSS = "loss"
    BACKWARD = "backward"
    OPTIMIZER_STEP = "optimizer_step"
    EVALUATION = "evaluation"  # of a trace only: the formulas count training steps


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCount:
    """Allocated bytes of one rank.

    Attributes:
        by_phase: Most that is alive in each phase.
        base: What is there in every phase, by kind.
        at_phase: What comes on top in each phase, by kind; with ``base`` it sums to ``by_phase``.
        working: For the phase's working set: ``(tensor name, bytes)``, where recorded.
        host_bytes: On the host: offloaded states, parameters and checkpoints.
    """

    by_phase: dict[Phase, Number]
    base: dict[str, Number]
    at_phase: dict[Phase, dict[str, Number]]
    working: dict[Phase, tuple[tuple[str, float], ...]] = field(default_factory=dict)
    held: Persistent = field(default_factory=Persistent)
    host_bytes: Number = 0.0

    @property
    def peak_bytes(self) -> Number:
        """The largest phase."""
        peak: Number = 0.0
        for value in self.by_phase.values():
            peak = np.maximum(peak, value)
        return peak if isinstance(peak, np.ndarray) else float(peak)


def count_memory(
    model: ModelArchitecture,
    recipe: TrainingRecipe,
    parallelism: Parallelism,
    *,
    sequences: Number,
    length: Number,
    compute_capability: float | None = None,
    record: bool = False,
) -> MemoryCount:
    """Allocated memory of one rank for micro-batches of ``sequences x length`` tokens.

    Arguments as for ``walk_model``; ``compute_capability`` decides the size of cuBLAS workspaces.
    """
    walked = walk_model(
        model, recipe, parallelism, sequences=sequences, length=length, record=record
    )
    return assemble(walked, recipe, parallelism, persistent(model, recipe), compute_capability)


def assemble(
    walked: Walked,
    recipe: TrainingRecipe,
    parallelism: Parallelism,
    held: Persistent,
    compute_capability: float | None = None,
    more: dict[str, Number] | None = None,
) -> MemoryCount:
    """Put walked layers and what stays together for one rank; ``more`` is there in every phase."""
    stack = RankStack(
        walked.model,
        recipe,
        parallelism,
        walked,
        held,
        gathered(walked.model, recipe, parallelism, held),
    )
    return _put_together(stack, standing_memory(stack, compute_capability) | present(more or {}))


def _put_together(stack: RankStack, base: dict[str, Number]) -> MemoryCount:
    forward, loss, backward = Largest(), Largest(), Largest()
    old = _of_the_step_before(stack)
    entry = stack.walked.entry
    forward.offer({**old, "layer_working_set": entry.forward_peak}, entry.at_forward_peak)
    kept = _forward_through_layers(stack, forward, old)
    unit = stack.gathered.lingering_bytes
    held = {**kept, **old, "layer_unit": unit, "loss_working_set": stack.head.forward_peak}
    loss.offer(held, stack.head.at_forward_peak)
    if np.any(stack.head.loss_peak):
        held = {**held, "held_logits": 0.0, "loss_working_set": stack.head.loss_peak}
        loss.offer(held, stack.head.at_loss_peak)
    activations = kept["kept_activations"]
    backward.offer(
        {
            "kept_activations": activations,
            "layer_unit": unit,
            "loss_working_set": stack.head.backward_peak,
        },
        stack.head.at_backward_peak,
    )
    gradients = backward_through_layers(stack, backward, activations)
    gradients = backward_through_entry(stack, backward, gradients)
    embedding_gradient(stack, backward, gradients)
    step = _step(stack)
    _masks(stack, forward, loss, backward)
    for best in (forward, loss, backward):
        best.add("gathered_units", stack.gathered.always_bytes)
        if keeps_embeddings(stack.model, stack.recipe):
            hidden = stack.model.hidden_size * stack.recipe.hidden_dtype.num_bytes
            best.add("embeddings", stack.tokens * hidden)
        if stack.accumulating:
            best.add("gradients", gradients_of(stack, accumulated=True))
    at_base = total_of(base)
    phases = {
        Phase.FORWARD: forward,
        Phase.LOSS: loss,
        Phase.BACKWARD: backward,
        Phase.OPTIMIZER_STEP: step,
    }
    return MemoryCount(
        by_phase={phase: at_base + best.total for phase, best in phases.items()},
        base=base,
        at_phase={phase: present(best.parts) for phase, best in phases.items()},
        working={phase: best.working for phase, best in phases.items()},
        held=stack.held,
        host_bytes=host_bytes_of(stack),
    )


def _masks(stack: RankStack, forward: Largest, loss: Largest, backward: Largest) -> None:
    """Masks die with the model's forward; checkpointing keeps the arguments of every layer."""
    walked, recipe = stack.walked, stack.recipe
    size = mask_bytes(stack.model, recipe, walked.sequences, walked.length)
    keeps = recipe.gradient_checkpointing is not Checkpointing.NONE
    for best in (forward, loss, backward) if keeps else (forward,):
        best.add("attention_mask", size)


def _of_the_step_before(stack: RankStack) -> dict[str, Number]:
    """What the training loop still names of an earlier batch while the next forward runs."""
    recipe = stack.recipe
    if recipe.longest_first:
        return {}
    return {
        "held_logits": 0.0 if recipe.outputs_die_with_step else stack.head.held_logits,
        "held_inputs": attributes_of(stack) if recipe.keeps_graph else 0.0,
    }


def _forward_through_layers(
    stack: RankStack, forward: Largest, old: dict[str, Number]
) -> dict[str, Number]:
    """Offer the last layer of each group; what is kept when the last one is done."""
    kept: dict[str, Number] = dict.fromkeys(
        ("kept_activations", "key_values", "autocast_weights"), 0.0
    )
    kept["kept_activations"] = stack.walked.entry.kept
    for group, profile in stack.groups:
        # Gathered weights come in half precision: autocast finds nothing to cast.
        cast = 0.0 if stack.parallelism.shards_parameters else profile.cast_weights
        sizes = {
            "kept_activations": profile.kept,
            "key_values": profile.key_values,
            "autocast_weights": cast,
        }
        others = group.count - 1
        forward.offer(
            {
                **{kind: size + others * sizes[kind] for kind, size in kept.items()},
                **old,
                "embeddings": stack.walked.entry.named,
                "layer_unit": stack.gathered.unit_bytes,
                "layer_working_set": profile.forward_peak + cast,
            },
            profile.at_forward_peak,
        )
        kept = {kind: size + group.count * sizes[kind] for kind, size in kept.items()}
    return kept


def _step(stack: RankStack) -> Largest:
    """The optimizer step: the graph and the logits of the last micro-batch may still have names."""
    step = Largest()
    parts: dict[str, Number] = {
        "step_temporary": _step_temporary(stack),
        "held_logits": stack.head.held_logits,
        "held_inputs": attributes_of(stack) if stack.recipe.keeps_graph else 0.0,
    }
    if not stack.recipe.optimizer.in_backward:
        parts["gradients"] = gradients_of(stack, accumulated=False)
    step.offer(parts)
    return step


def _step_temporary(stack: RankStack) -> float:
    _, _, states = shards_of(stack.parallelism)
    if stack.parallelism.offload is not Offload.NONE:
        return 0.0
    zero = (Strategy.ZERO1, Strategy.ZERO2, Strategy.ZERO3)
    # Where gradients are fp32 in a buffer the step reads them there; ZeRO's is among the gathered.
    flat = stack.parallelism.strategy not in zero and not stack.recipe.gradient_buffer
    temporary = step_temporary_bytes(stack.held, stack.recipe, flat_masters=flat)
    return temporary / states + stack.gathered.step_bytes
