"""A whole job replayed through the allocator: load, then training steps at full depth.

The recorded walk of one layer plays once for every layer of its kind, so the stream of requests is
that of the real model: weights as they are loaded, adapters, every activation and temporary of
every layer, recomputation, gradients, optimizer states in the first step, step temporaries.
Reserved memory, fragmentation and "does it fit in N bytes" are read off the allocator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Generic, Protocol, TypeVar

from tuneplan.estimation.allocator import CachingAllocator, OutOfMemory
from tuneplan.estimation.arenas import Arenas
from tuneplan.estimation.blocks import Block
from tuneplan.estimation.recording import Recording, Script, Steps
from tuneplan.estimation.replayed_job import Job, Loading, MicroBatch
from tuneplan.estimation.stretches import Stretch, stretch_of
from tuneplan.estimation.tensors import (
    HALF_BYTES,
    LoadedTensor,
    optimizer_state_sizes,
    step_temporary_sizes,
)
from tuneplan.frozen import dataclass
from tuneplan.spec.recipe import Checkpointing, DType, TrainingRecipe

_HALF = (DType.BFLOAT16, DType.FLOAT16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What the allocator did, in bytes.

    Attributes:
        peak_allocated_bytes, peak_reserved_bytes: Over load, the usual history and two steps.
        reserved_after_history_bytes: Peak reserved where the whole history ran before.
        fragmentation_bytes: At the allocated peak: free, but inside segments that are in use.
    """

    job: Job = field(repr=False)
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    reserved_after_history_bytes: int
    fragmentation_bytes: int

    def fits(self, limit_bytes: int) -> bool:
        """Whether the job runs where the allocator can have so many bytes."""
        return shortage(self.job, limit_bytes) is None


def replay_job(job: Job) -> Replay:
    """Play a job on a card without end: with its usual history, then with the whole one."""
    cut, stretches = _Cut(job.recipe), dict[int, tuple[Steps, Stretch]]()
    usual = Arenas(tracks=True)
    player = _Player(job, _Unlimited(usual, stretches), cut)
    player.load()
    loaded = usual.untracked()
    player.steps((*job.history[-1:], job.batch, job.batch))
    worst = usual.peak_reserved_bytes
    if len(job.history) > 1:
        _Player(job, _Unlimited(loaded, stretches), cut).steps((*job.history, job.batch))
        worst = max(worst, loaded.peak_reserved_bytes)
    return Replay(
        job=job,
        peak_allocated_bytes=usual.peak_allocated_bytes,
        peak_reserved_bytes=usual.peak_reserved_bytes,
        reserved_after_history_bytes=worst,
        fragmentation_bytes=usual.fragmentation_bytes,
    )


def shortage(job: Job, limit_bytes: int, *, expandable: bool = False) -> OutOfMemory | None:
    """Play a job and its history on a card of so many bytes; the request that failed, if any."""
    allocator = CachingAllocator(limit_bytes=limit_bytes, expandable=expandable)
    try:
        player = _Player(job, _Limited(allocator), _Cut(job.recipe))
        player.load()
        player.steps((*job.history, job.batch, job.batch))
    except _FullError:
        return allocator.out_of_memory
    return None


class _FullError(Exception):
    """The allocator had no room."""


B = TypeVar("B")


class _Memory(Protocol[B]):
    """What a job is played on; ``B`` is its handle of a block in use."""

    def take(self, size: int) -> B: ...
    def take_all(self, sizes: Sequence[int]) -> list[B]: ...
    def release(self, block: B) -> None: ...
    def release_all(self, blocks: list[B]) -> None: ...
    def empty_cache(self) -> None: ...
    def play(self, steps: Steps, slots: list[B]) -> None: ...


class _Limited:
    """The allocator with all its rules, on a card that ends."""

    def __init__(self, allocator: CachingAllocator) -> None:
        self.allocator = allocator
        self.release: Callable[[Block], None] = allocator.free
        self.empty_cache: Callable[[], None] = allocator.empty_cache

    def take(self, size: int) -> Block:
        block = self.allocator.malloc(size)
        if block is None:
            raise _FullError
        return block

    def take_all(self, sizes: Sequence[int]) -> list[Block]:
        return [self.take(size) for size in sizes]

    def release_all(self, blocks: list[Block]) -> None:
        for block in blocks:
            self.release(block)

    def play(self, steps: Steps, slots: list[Block]) -> None:
        for slot, size in steps:
            if size:
                slots[slot] = self.take(size)
            else:
                self.release(slots[slot])


class _Unlimited:
    """The default rules on a card without end; ``stretches`` is shared by runs of one job."""

    def __init__(self, arenas: Arenas, stretches: dict[int, tuple[Steps, Stretch]]) -> None:
        self.arenas, self.stretches = arenas, stretches
        self.take: Callable[[int], int] = arenas.take
        self.take_all: Callable[[Sequence[int]], list[int]] = arenas.take_all
        self.release: Callable[[int], None] = arenas.give
        self.release_all: Callable[[list[int]], None] = arenas.give_all
        self.empty_cache: Callable[[], None] = arenas.empty_cache

    def play(self, steps: Steps, slots: list[int]) -> None:
        found = self.stretches.get(id(steps))
        if found is None:
            found = self.stretches[id(steps)] = (steps, stretch_of(steps))
        self.arenas.play(found[1], slots)


class _Cut:
    """Parts of scripts, each cut once."""

    def __init__(self, recipe: TrainingRecipe) -> None:
        # Autocast's cache holds copies of fp32 leaves that require grad (autocast_mode.cpp).
        self.caches_casts = recipe.autocast
        self._forwards: dict[int, Steps] = {}
        self._heads: dict[int, tuple[Steps, Steps]] = {}

    def forward(self, script: Script) -> Steps:
        """Of a layer; copies that autocast caches stay alive."""
        if not self.caches_casts or not script.casts:
            return script.steps
        key = id(script)
        if key not in self._forwards:
            casts = set(script.casts)
            self._forwards[key] = tuple(
                step for step in script.steps if step[1] or step[0] not in casts
            )
        return self._forwards[key]

    def head(self, script: Script) -> tuple[Steps, Steps]:
        """The forward of the head before the model returns, and after."""
        key = id(script)
        if key not in self._heads:
            at = script.returned
            self._heads[key] = (script.steps[:at], script.steps[at:])
        return self._heads[key]


class _Player(Generic[B]):
    """Plays the parts of a job on one allocator."""

    def __init__(self, job: Job, memory: _Memory[B], cut: _Cut) -> None:
        self.job = job
        self.recipe = job.recipe
        self.cut = cut
        self.empty_cache, self.play = memory.empty_cache, memory.play
        self.take, self.take_all = memory.take, memory.take_all
        self.release, self.release_all = memory.release, memory.release_all
        self.gradients: list[B] = []
        self.held: B | None = None
        self.left: list[B] = []  # dies with the graph
        self.collected: list[B] = []  # dies with the model's outputs
        self.of_step_before: list[B] = []
        self.workspaces = 0
        self.has_states = False

    # Loading

    def load(self) -> None:
        """Weights, k-bit preparation, adapters, what else stays."""
        job = self.job
        first = warm_up_bytes(job.loaded, job.loading)
        if first:
            self.release(self.take(first))
        upcast = self._load_weights()
        for index, block in enumerate(upcast):
            size = sum(job.loaded[index].sizes)
            if block is not None:
                self.take(size)
                self.release(block)
        if job.loading.empties_cache and any(upcast):
            self.empty_cache()
        self._add_adapters()
        self.take_all(job.others)

    def _load_weights(self) -> list[B | None]:
        """The half-precision forms that preparation will replace, by position."""
        upcast: list[B | None] = []
        staged: list[B] = []
        for tensor in self.job.loaded:
            if tensor.staging:
                staged.append(self.take(tensor.staging))
            block = None
            if tensor.upcast_from:
                block = self.take(tensor.upcast_from)
            else:
                self.take_all(tensor.sizes)
            upcast.append(block)
            if len(staged) >= self.job.loading.threads:
                self.release(staged.pop(0))
        self.release_all(staged)
        return upcast

    def _add_adapters(self) -> None:
        """PEFT gives adapters the base weight's dtype, then turns half ones into fp32.

        Source: peft 0.12-0.21 ``tuners_utils.py`` ``_move_adapter_to_device_of_base_layer``,
        ``cast_adapter_dtype``.
        """
        halves: list[tuple[B, int]] = []
        recast = self.recipe.quantization is None and self.recipe.frozen_dtype in _HALF
        for tensor in self.job.adapters:
            size = tensor.elements * tensor.dtype.num_bytes
            if recast and tensor.dtype is DType.FLOAT32:
                halves.append((self.take(size // 2), size))
            else:
                self.take(size)
        for block, size in halves:
            self.take(size)
            self.release(block)

    # Training

    def steps(self, batches: Sequence[MicroBatch]) -> None:
        """One optimizer step each."""
        for batch in batches:
            self.step(batch)

    def step(self, batch: MicroBatch) -> None:
        """One optimizer step; of many micro-batches the first two (the rest repeat the second)."""
        for index in range(min(self.recipe.gradient_accumulation_steps, 2)):
            self._micro_batch(batch, first=index == 0)
        self._optimizer_step()
        if self.recipe.outputs_die_with_step or self.recipe.longest_first:
            self._drop_outputs()
        if self.recipe.longest_first:  # shorter batches follow: none beside the longest
            self._drop_graph()

    def _drop_outputs(self) -> None:
        """Logits that the loop held die."""
        if self.held is not None:
            self.release(self.held)
            self.held = None

    def _drop_graph(self) -> None:
        """What the graph of the step before held dies."""
        self.release_all(self.of_step_before)
        self.of_step_before = []

    def _micro_batch(self, batch: MicroBatch, *, first: bool) -> None:
        inputs = self.take_all(batch.input_sizes)
        last, kept = self._forward(batch)
        grad = self._head(batch.head, last, first=first)
        for recording, slots in zip(reversed(batch.layers), reversed(kept), strict=True):
            if recording.backward is None or grad is None:
                break
            grad = self._backward(recording, slots, grad, batch, first=first)
        if self.job.embedding_gradient_bytes and grad is not None:
            block = self.take(self.job.embedding_gradient_bytes)
            if first and not self.job.tied and not self.recipe.optimizer.in_backward:
                self.gradients.append(block)
            else:
                self.release(block)
        if grad is not None:
            self.release(grad)
        self.release_all(inputs)
        self.of_step_before, self.left = self.left, []
        if not self.recipe.keeps_graph:
            self._drop_graph()

    def _workspace(self, number: int) -> None:
        """CuBLAS: one workspace for each thread that multiplies, from its first product on."""
        if self.workspaces < number:
            self.take(self.job.workspace_bytes)
            self.workspaces = number

    def _forward(self, batch: MicroBatch) -> tuple[B, list[list[B]]]:
        """The last hidden state, and what each layer keeps (its input first)."""
        hidden = self.take(batch.hidden_bytes)
        self._workspace(1)
        kept: list[list[B]] = []
        casts: list[B] = []
        offloads = self.recipe.gradient_checkpointing is Checkpointing.OFFLOAD
        for recording in batch.layers:
            script = recording.forward
            slots = [hidden] * script.num_slots
            self.play(self.cut.forward(script), slots)
            if self.cut.caches_casts:
                casts += [slots[slot] for slot in script.casts]
            if recording.continues:
                if script.drops_input or recording.backward is None:
                    self.release(hidden)
            elif offloads:
                self.release(hidden)
            self.left += [slots[slot] for slot in script.left]
            self.collected += [slots[slot] for slot in script.collected]
            kept.append(slots)
            assert script.output is not None  # noqa: S101 - a layer has an output
            hidden = slots[script.output]
        self.release_all(casts)
        return hidden, kept

    def _head(self, head: Recording, hidden: B, *, first: bool) -> B | None:
        """Loss and its backward; the gradient of the last hidden state."""
        script = head.forward
        slots = [hidden] * max(script.num_slots, head.backward.num_slots if head.backward else 0)
        model_s, loop_s = self.cut.head(script)
        self.play(model_s, slots)
        self._drop_outputs()
        self.play(loop_s, slots)
        self.held = None if script.held is None else slots[script.held]
        self._drop_graph()
        self.release_all(self.collected)
        self.collected = []
        self._workspace(2)
        script_back = head.backward
        if script_back is None:
            return None
        self.play(script_back.first_steps if first else script_back.steps, slots)
        self._keep_gradients(script_back, slots, first=first)
        self.left += [slots[slot] for slot in script_back.left]
        return None if script_back.output is None else slots[script_back.output]

    def _backward(
        self,
        recording: Recording,
        slots: list[B],
        grad: B,
        batch: MicroBatch,
        *,
        first: bool,
    ) -> B | None:
        """One layer's backward (after its recomputation); the gradient of its input."""
        script = recording.backward
        assert script is not None  # noqa: S101 - the caller looked
        hidden = slots[0]
        if recording.continues:
            slots += [grad] * (script.num_slots - len(slots))
            slots[script.given[0]] = grad
        else:
            if self.recipe.gradient_checkpointing is Checkpointing.OFFLOAD:
                hidden = self.take(batch.hidden_bytes)
            slots = [hidden] * script.num_slots
            slots[script.given[1]] = grad
        self.play(script.first_steps if first else script.steps, slots)
        self._keep_gradients(script, slots, first=first)
        left = [slots[slot] for slot in script.left]
        if recording.continues or not self.recipe.use_reentrant:
            self.left += left
        else:
            self.release_all(left)
        if not (recording.continues and recording.forward.drops_input):
            self.release(hidden)
        return None if script.output is None else slots[script.output]

    def _keep_gradients(self, script: Script, slots: list[B], *, first: bool) -> None:
        """Gradients of weights stay until the step, or go at once where that runs in backward."""
        if not first:
            return
        blocks = [slots[slot] for slot in script.gradients]
        if self.recipe.optimizer.in_backward:
            self.release_all(blocks)
        else:
            self.gradients += blocks

    def _optimizer_step(self) -> None:
        """States in the first step, temporaries, then gradients go (``set_to_none``)."""
        if not self.has_states:
            self.take_all(
                [
                    size
                    for tensor in self.job.trained
                    for size in optimizer_state_sizes(tensor, self.recipe)
                ]
            )
            self.has_states = True
        passing = self.take_all(step_temporary_sizes(list(self.job.trained), self.recipe))
        self.release_all(passing)
        self.release_all(self.gradients)
        self.gradients.clear()


def warm_up_bytes(tensors: Sequence[LoadedTensor], loading: Loading) -> int:
    """Bytes of the one block that the loader asks for and frees."""
    total = 0.0
    for tensor in tensors:
        if tensor.staging:
            total += tensor.staging / HALF_BYTES * loading.reserved_bytes_per_weight
        else:
            whole = tensor.upcast_from or sum(tensor.sizes)
            total += whole * loading.reserved_fraction_of_rest
    return int(total)
