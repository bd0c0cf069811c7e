"""Memory of one rank, by phase: the layers' profiles put together with what stays.

peak = the largest of: forward, loss, backward, optimizer step (and load). Within a group of equal
layers the total changes by the same amount from layer to layer, so the largest is at one of its
ends and one walk per group is exact whatever the depth.
"""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum

import numpy as np

from tuneplan.estimation.attention import masked_share
from tuneplan.estimation.layers import LayerProfile
from tuneplan.estimation.losses import HeadProfile
from tuneplan.estimation.operations import Number
from tuneplan.estimation.persistent import (
    Persistent,
    persistent,
    shards_of,
    step_temporary_bytes,
)
from tuneplan.estimation.roles import Place, head_of, role_of
from tuneplan.estimation.sharding import Gathered, gathered
from tuneplan.estimation.walking import Walked, walk_model
from tuneplan.frozen import dataclass
from tuneplan.spec.architecture import Attention, LayerGroup, ModelArchitecture
from tuneplan.spec.parallelism import Offload, Parallelism, Strategy
from tuneplan.spec.recipe import AttentionKernel, Checkpointing, DType, LossPath, TrainingRecipe

CUBLAS_WORKSPACE_BYTES = 8_519_680  # torch 2.x, compute capability below 9 (CUDABlas workspaces)
CUBLAS_WORKSPACE_HOPPER_BYTES = 32 * 2**20 + 2**17
_SORTED_FROM = 3072  # tokens from which an embedding's backward sorts them


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
    stack = _Stack(
        walked.model,
        recipe,
        parallelism,
        walked,
        held,
        gathered(walked.model, recipe, parallelism, held),
    )
    return _put_together(stack, _base(stack, compute_capability) | _present(more or {}))


@dataclass(slots=True)
class _Stack:
    """What ``_put_together`` works on."""

    model: ModelArchitecture
    recipe: TrainingRecipe
    parallelism: Parallelism
    walked: Walked
    held: Persistent
    gathered: Gathered

    @property
    def groups(self) -> tuple[tuple[LayerGroup, LayerProfile], ...]:
        return self.walked.groups

    @property
    def head(self) -> HeadProfile:
        return self.walked.head

    @property
    def accumulating(self) -> bool:
        return self.walked.accumulating

    @property
    def tokens(self) -> Number:
        return self.walked.tokens


def _base(stack: _Stack, compute_capability: float | None) -> dict[str, Number]:
    """What is there in every phase."""
    recipe, parallelism, held = stack.recipe, stack.parallelism, stack.held
    weights, _, states = shards_of(parallelism)
    offload = parallelism.offload
    on_card = offload is not Offload.PARAMS
    base: dict[str, Number] = {
        "frozen_weights": held.frozen_bytes / weights if on_card else 0.0,
        "quantized_weights": held.quantized_bytes / weights,
        "quantization_constants": held.constants_bytes / weights,
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
    return _present(base)


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
    tensor. After k-bit preparation, where both are fp32, published peaks do not show it.
    """
    upcast = recipe.hidden_dtype is not recipe.compute_dtype
    checkpoints = recipe.gradient_checkpointing is not Checkpointing.NONE
    return model.embedding_scale and recipe.method.uses_adapter and checkpoints and not upcast


def _present(sizes: dict[str, Number]) -> dict[str, Number]:
    return {kind: size for kind, size in sizes.items() if _is_there(size)}


def _is_there(size: Number) -> bool:
    return bool(size.any()) if isinstance(size, np.ndarray) else bool(size)


def workspace_bytes(compute_capability: float | None) -> float:
    """CuBLAS workspaces of the two threads that multiply: the main one and autograd's."""
    hopper = compute_capability is not None and compute_capability >= 9
    return 2.0 * (CUBLAS_WORKSPACE_HOPPER_BYTES if hopper else CUBLAS_WORKSPACE_BYTES)


def _gradients(stack: _Stack, *, accumulated: bool) -> float:
    """Gradients of all that is trained: between micro-batches, or as the optimizer sees them.

    FSDP keeps them whole between micro-batches (``no_sync``) and scatters them in the last one.
    """
    recipe = stack.recipe
    if stack.parallelism.offload is Offload.PARAMS:
        return 0.0
    _, shards, _ = shards_of(stack.parallelism)
    if accumulated and recipe.gradients_unsharded_while_accumulating:
        shards = 1
    return (stack.held.gradient_bytes + stack.gathered.frozen_gradient_bytes) / shards


def _total(sizes: dict[str, Number]) -> Number:
    total: Number = 0.0
    for size in sizes.values():
        total = total + size
    return total


@dataclass(slots=True)
class _Best:
    """The largest total of a phase and what it is made of."""

    total: Number = 0.0
    parts: dict[str, Number] = field(default_factory=dict)
    working: tuple[tuple[str, float], ...] = ()

    def offer(self, parts: dict[str, Number], working: tuple[tuple[str, float], ...] = ()) -> None:
        """Keep these parts where they sum to more than the best so far."""
        total = _total(parts)
        if isinstance(total, np.ndarray) or isinstance(self.total, np.ndarray):
            wins = np.asarray(total > self.total)
            kinds = set(parts) | set(self.parts)
            self.parts = {
                kind: np.where(wins, parts.get(kind, 0.0), self.parts.get(kind, 0.0))
                for kind in kinds
            }
            self.total = np.maximum(total, self.total)
        elif total > self.total:
            self.total, self.parts, self.working = total, parts, working

    def add(self, kind: str, size: Number) -> None:
        """Add what every alternative of the phase has."""
        if _is_there(size):
            self.parts[kind] = self.parts.get(kind, 0.0) + size
            self.total = self.total + size


def _put_together(stack: _Stack, base: dict[str, Number]) -> MemoryCount:
    forward, loss, backward = _Best(), _Best(), _Best()
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
    gradients = _backward_through_layers(stack, backward, activations)
    gradients = _backward_through_entry(stack, backward, gradients)
    _embedding_gradient(stack, backward, gradients)
    step = _step(stack)
    _masks(stack, forward, loss, backward)
    for best in (forward, loss, backward):
        best.add("gathered_units", stack.gathered.always_bytes)
        if keeps_embeddings(stack.model, stack.recipe):
            hidden = stack.model.hidden_size * stack.recipe.hidden_dtype.num_bytes
            best.add("embeddings", stack.tokens * hidden)
        if stack.accumulating:
            best.add("gradients", _gradients(stack, accumulated=True))
    at_base = _total(base)
    phases = {
        Phase.FORWARD: forward,
        Phase.LOSS: loss,
        Phase.BACKWARD: backward,
        Phase.OPTIMIZER_STEP: step,
    }
    return MemoryCount(
        by_phase={phase: at_base + best.total for phase, best in phases.items()},
        base=base,
        at_phase={phase: _present(best.parts) for phase, best in phases.items()},
        working={phase: best.working for phase, best in phases.items()},
        held=stack.held,
        host_bytes=_host_bytes(stack),
    )


def _masks(stack: _Stack, forward: _Best, loss: _Best, backward: _Best) -> None:
    """Masks die with the model's forward; checkpointing keeps the arguments of every layer."""
    walked, recipe = stack.walked, stack.recipe
    size = mask_bytes(stack.model, recipe, walked.sequences, walked.length)
    keeps = recipe.gradient_checkpointing is not Checkpointing.NONE
    for best in (forward, loss, backward) if keeps else (forward,):
        best.add("attention_mask", size)


def _attributes(stack: _Stack) -> Number:
    """What the graph of one micro-batch holds as attributes until it dies."""
    total = stack.head.attributes
    for group, profile in stack.groups:
        total = total + group.count * profile.attributes
    return total


def _of_the_step_before(stack: _Stack) -> dict[str, Number]:
    """What the training loop still names of an earlier batch while the next forward runs."""
    recipe = stack.recipe
    if recipe.longest_first:
        return {}
    return {
        "held_logits": 0.0 if recipe.outputs_die_with_step else stack.head.held_logits,
        "held_inputs": _attributes(stack) if recipe.keeps_graph else 0.0,
    }


def _forward_through_layers(
    stack: _Stack, forward: _Best, old: dict[str, Number]
) -> dict[str, Number]:
    """Offer the last layer of each group; what is kept when the last one is done."""
    kept: dict[str, Number] = dict.fromkeys(
        ("kept_activations", "key_values", "autocast_weights"), 0.0
    )
    kept["kept_activations"] = stack.walked.entry.kept
    for group, profile in stack.groups:
        sizes = {
            "kept_activations": profile.kept,
            "key_values": profile.key_values,
            "autocast_weights": profile.cast_weights,
        }
        others = group.count - 1
        forward.offer(
            {
                **{kind: size + others * sizes[kind] for kind, size in kept.items()},
                **old,
                "embeddings": stack.walked.entry.named,
                "layer_unit": stack.gathered.unit_bytes,
                "layer_working_set": profile.forward_peak + profile.cast_weights,
            },
            profile.at_forward_peak,
        )
        kept = {kind: size + group.count * sizes[kind] for kind, size in kept.items()}
    return kept


def _step(stack: _Stack) -> _Best:
    """The optimizer step: the graph and the logits of the last micro-batch may still have names."""
    step = _Best()
    parts: dict[str, Number] = {
        "step_temporary": _step_temporary(stack),
        "held_logits": stack.head.held_logits,
        "held_inputs": _attributes(stack) if stack.recipe.keeps_graph else 0.0,
    }
    if not stack.recipe.optimizer.in_backward:
        parts["gradients"] = _gradients(stack, accumulated=False)
    step.offer(parts)
    return step


def _backward_through_layers(stack: _Stack, backward: _Best, kept: Number) -> Number:
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


def _backward_through_entry(stack: _Stack, backward: _Best, done: Number) -> Number:
    """Offer the backward of what stands before the layers; the gradients after it."""
    entry = stack.walked.entry
    if not np.any(entry.backward_peak):
        return done
    share = 0.0 if stack.accumulating or stack.recipe.optimizer.in_backward else 1.0
    backward.offer(
        {
            "kept_activations": _attributes(stack),
            "gradients": done,
            "held_logits": stack.head.held_logits,
            "layer_working_set": entry.backward_peak,
        },
        entry.at_backward_peak,
    )
    return done + entry.gradients * share * stack.gathered.gradient_share


def _head_gradient(stack: _Stack, share: float) -> Number:
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


def _embedding_gradient(stack: _Stack, backward: _Best, done: Number) -> None:
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


def _embedding_buffers(stack: _Stack, rows: int) -> Number:
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


def _sums_tied_gradients(stack: _Stack, dtype: DType) -> bool:
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


def _step_temporary(stack: _Stack) -> float:
    _, _, states = shards_of(stack.parallelism)
    if stack.parallelism.offload is not Offload.NONE:
        return 0.0
    zero = (Strategy.ZERO1, Strategy.ZERO2, Strategy.ZERO3)
    # Where gradients are fp32 in a buffer the step reads them there; ZeRO's is among the gathered.
    flat = stack.parallelism.strategy not in zero and not stack.recipe.gradient_buffer
    temporary = step_temporary_bytes(stack.held, stack.recipe, flat_masters=flat)
    return temporary / states + stack.gathered.step_bytes


def _host_bytes(stack: _Stack) -> Number:
    held, parallelism = stack.held, stack.parallelism
    _, _, states = shards_of(parallelism)
    host: Number = held.paged_state_bytes / states
    if parallelism.offload is not Offload.NONE:
        host = host + (held.state_bytes + held.master_bytes + 4 * held.num_trained) / states
    if parallelism.offload is Offload.PARAMS:
        host = host + (held.frozen_bytes + held.trained_bytes + held.adapter_bytes) / states
    if stack.recipe.gradient_checkpointing is Checkpointing.OFFLOAD:
        size = stack.tokens * stack.model.hidden_size * stack.recipe.hidden_dtype.num_bytes
        host = host + stack.model.num_layers * size
    return host
