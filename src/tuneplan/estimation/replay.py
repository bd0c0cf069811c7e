"""A whole job replayed through the allocator: load, then training steps at full depth.

The recorded walk of one layer plays once for every layer of its kind, so the stream of requests is
that of the real model: weights as they are loaded, adapters, every activation and temporary of
every layer, recomputation, gradients, optimizer states in the first step, step temporaries.
Reserved memory, fragmentation and "does it fit in N bytes" are read off the allocator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

from tuneplan.estimation.allocator import CachingAllocator, OutOfMemory
from tuneplan.estimation.blocks import Block
from tuneplan.estimation.recording import Recording, Script, Steps
from tuneplan.estimation.replayed_job import Job, Loading, MicroBatch
from tuneplan.estimation.tensors import (
    HALF_BYTES,
    LoadedTensor,
    optimizer_state_sizes,
    step_temporary_sizes,
)
from tuneplan.frozen import dataclass
from tuneplan.spec.recipe import Checkpointing, DType

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
    usual = CachingAllocator()
    _play(job, usual, (*job.history[-1:], job.batch, job.batch))
    worst = usual.peak_reserved_bytes
    if len(job.history) > 1:
        allocator = CachingAllocator()
        _play(job, allocator, (*job.history, job.batch))
        worst = max(worst, allocator.peak_reserved_bytes)
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
        _play(job, allocator, (*job.history, job.batch, job.batch))
    except _FullError:
        return allocator.out_of_memory
    return None


class _FullError(Exception):
    """The allocator had no room."""


def _play(job: Job, allocator: CachingAllocator, batches: Sequence[MicroBatch]) -> None:
    player = _Player(job, allocator)
    player.load()
    for batch in batches:
        player.step(batch)


class _Player:
    """Plays the parts of a job on one allocator."""

    def __init__(self, job: Job, allocator: CachingAllocator) -> None:
        self.job = job
        self.recipe = job.recipe
        self.allocator = allocator
        self.release: Callable[[Block], None] = allocator.free
        self.gradients: list[Block] = []
        self.held: Block | None = None
        self.left: list[Block] = []  # dies with the graph
        self.collected: list[Block] = []  # dies with the model's outputs
        self.of_step_before: list[Block] = []
        self.workspaces = 0
        self.has_states = False
        self.kept_casts: dict[int, Steps] = {}
        # Autocast's cache holds copies of fp32 leaves that require grad (autocast_mode.cpp).
        self.caches_casts = job.recipe.autocast

    def take(self, size: int) -> Block:
        block = self.allocator.malloc(size)
        if block is None:
            raise _FullError
        return block

    def play(self, steps: Steps, slots: list[Block]) -> None:
        malloc, free = self.allocator.malloc, self.allocator.free
        for slot, size in steps:
            if size:
                block = malloc(size)
                if block is None:
                    raise _FullError
                slots[slot] = block
            else:
                free(slots[slot])

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
            self.allocator.empty_cache()
        self._add_adapters()
        for size in job.others:
            self.take(size)

    def _load_weights(self) -> list[Block | None]:
        """The half-precision forms that preparation will replace, by position."""
        upcast: list[Block | None] = []
        staged: list[Block] = []
        for tensor in self.job.loaded:
            if tensor.staging:
                staged.append(self.take(tensor.staging))
            block = None
            if tensor.upcast_from:
                block = self.take(tensor.upcast_from)
            else:
                for size in tensor.sizes:
                    self.take(size)
            upcast.append(block)
            if len(staged) >= self.job.loading.threads:
                self.release(staged.pop(0))
        for block in staged:
            self.release(block)
        return upcast

    def _add_adapters(self) -> None:
        """PEFT gives adapters the base weight's dtype, then turns half ones into fp32.

        Source: peft 0.12-0.21 ``tuners_utils.py`` ``_move_adapter_to_device_of_base_layer``,
        ``cast_adapter_dtype``.
        """
        halves: list[tuple[Block, int]] = []
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
        for block in self.of_step_before:
            self.release(block)
        self.of_step_before = []

    def _micro_batch(self, batch: MicroBatch, *, first: bool) -> None:
        inputs = [self.take(size) for size in batch.input_sizes]
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
        for block in inputs:
            self.release(block)
        self.of_step_before, self.left = self.left, []
        if not self.recipe.keeps_graph:
            self._drop_graph()

    def _workspace(self, number: int) -> None:
        """CuBLAS: one workspace for each thread that multiplies, from its first product on."""
        if self.workspaces < number:
            self.take(self.job.workspace_bytes)
            self.workspaces = number

    def _forward(self, batch: MicroBatch) -> tuple[Block, list[list[Block]]]:
        """The last hidden state, and what each layer keeps (its input first)."""
        hidden = self.take(batch.hidden_bytes)
        self._workspace(1)
        kept: list[list[Block]] = []
        casts: list[Block] = []
        offloads = self.recipe.gradient_checkpointing is Checkpointing.OFFLOAD
        for recording in batch.layers:
            script = recording.forward
            slots = [hidden] * script.num_slots
            self.play(self._steps_of(script), slots)
            if self.caches_casts:
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
        for block in casts:
            self.release(block)
        return hidden, kept

    def _steps_of(self, script: Script) -> Steps:
        """The forward of a script; copies that autocast caches stay alive."""
        if not self.caches_casts or not script.casts:
            return script.steps
        key = id(script)
        if key not in self.kept_casts:
            casts = set(script.casts)
            self.kept_casts[key] = tuple(
                step for step in script.steps if step[1] or step[0] not in casts
            )
        return self.kept_casts[key]

    def _head(self, head: Recording, hidden: Block, *, first: bool) -> Block | None:
        """Loss and its backward; the gradient of the last hidden state."""
        script = head.forward
        slots = [hidden] * max(script.num_slots, head.backward.num_slots if head.backward else 0)
        self.play(script.steps[: script.returned], slots)
        self._drop_outputs()
        self.play(script.steps[script.returned :], slots)
        self.held = None if script.held is None else slots[script.held]
        self._drop_graph()
        for block in self.collected:
            self.release(block)
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
        slots: list[Block],
        grad: Block,
        batch: MicroBatch,
        *,
        first: bool,
    ) -> Block | None:
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
            for block in left:
                self.release(block)
        if not (recording.continues and recording.forward.drops_input):
            self.release(hidden)
        return None if script.output is None else slots[script.output]

    def _keep_gradients(self, script: Script, slots: list[Block], *, first: bool) -> None:
        """Gradients of weights stay until the step, or go at once where that runs in backward."""
        if not first:
            return
        blocks = [slots[slot] for slot in script.gradients]
        if self.recipe.optimizer.in_backward:
            for block in blocks:
                self.release(block)
        else:
            self.gradients += blocks

    def _optimizer_step(self) -> None:
        """States in the first step, temporaries, then gradients go (``set_to_none``)."""
        if not self.has_states:
            for tensor in self.job.trained:
                for size in optimizer_state_sizes(tensor, self.recipe):
                    self.take(size)
            self.has_states = True
        passing = [
            self.take(size) for size in step_temporary_sizes(list(self.job.trained), self.recipe)
        ]
        for block in passing:
            self.release(block)
        for block in self.gradients:
            self.release(block)
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
