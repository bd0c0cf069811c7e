"""The life of every storage on the device, as a list of events."""

from __future__ import annotations

import contextlib
import weakref
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, Final, Self

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from tuneplan.tracing.device import asked_device, current_stream_id, watched_by
from tuneplan.tracing.hidden import (
    CUBLAS_WORKSPACE_BYTES,
)
from tuneplan.tracing.operation_facts import OperationFacts, on_device
from tuneplan.tracing.recording import NEVER, Block, Recording
from tuneplan.tracing.shapes import (
    KnownCall,
    Output,
    describe,
    remake,
    signature,
    state_of,
)
from tuneplan.tracing.values import KnownValues
from tuneplan.tracing.work import work_of

_PLAIN_TENSORS: Final = frozenset({torch.Tensor, torch.nn.Parameter, FakeTensor})
_WRAPPER: Final = "_fsdp_wrapped_module"
_ASKS_DEVICE: Final = torch.ops.prim.device.default


class _Life(weakref.ref[Any]):
    """A weak reference on a storage that knows its block."""

    __slots__ = ("block", "key")
    block: int
    key: int


class Recorder(TorchDispatchMode):
    """Watches every operation below autograd and every storage it makes.

    Storages die when the last tensor on them does: a weak reference on the storage tells. What
    kernels allocate in passing (``hidden``) is added around the operation. What operations return
    is asked once for each kind of call (``shapes``), unless ``remembers`` is false.
    """

    def __init__(
        self, *, hopper: bool = False, remembers: bool = True, values: KnownValues | None = None
    ) -> None:
        super().__init__()
        self.recording = Recording()
        self.phase, self.step = "load", 0
        self.modules: list[str] = [""]
        self._alive: dict[int, _Life] = {}
        self._ended = self._end
        self._watched = contextlib.ExitStack()
        self._sequence: list[int] = [-1]
        self._sequence_module: list[str] = [""]
        self._workspaces: set[bool] = set()
        self._workspace_bytes = CUBLAS_WORKSPACE_BYTES[hopper]
        self._same: dict[int, int] = {}  # a block to the block it was written over
        self._sum = (-1, -1, -1)
        self._facts: dict[Any, OperationFacts] = {}
        self._known: dict[Any, KnownCall] = {}
        self._remembers = remembers
        self.values = values or KnownValues()
        self._unwatched = 0
        self.recording.marks.append((0, "load", 0))

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here; PyTorch's guard against it costs as much as an operation."""
        return False

    def __enter__(self) -> Self:
        self._watched.enter_context(watched_by(self))
        super().__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        self._watched.close()

    @contextlib.contextmanager
    def unwatched(self) -> Iterator[None]:
        """What happens meanwhile is none of the device's."""
        self._unwatched += 1
        try:
            yield
        finally:
            self._unwatched -= 1

    def cache_emptied(self) -> None:
        """The program gave cached memory back to the card."""
        self.recording.emptied.append(len(self.recording.events))

    def resized(self, storage: Any) -> None:
        """A storage has another size: its block dies, and another takes its place."""
        key = storage._cdata  # noqa: SLF001
        life = self._alive.get(key)
        if life is None:
            return
        old = self.recording.blocks[self._same.get(life.block, life.block)]
        if old.died < 0 and storage.nbytes() == old.size:
            return
        if old.died < 0:
            self.free(self._same.get(life.block, life.block))
        if storage.nbytes():
            life.block = self.allocate(
                storage.nbytes(), old.operation, old.dtype, old.shape if old.size else None
            )
            self.recording.blocks[life.block].kind = old.kind

    def start(self, phase: str, step: int | None = None) -> None:
        """Begin a phase."""
        self.finish()
        self.phase = phase
        self.step = self.step if step is None else step
        self.recording.marks.append((len(self.recording.events), phase, self.step))

    def enter(self, module: str) -> None:
        """A module's forward begins."""
        module = _without_wrappers(module)
        self.modules.append(module)
        self._mark_sequence(module)

    def leave(self) -> None:
        """A module's forward ends."""
        self.modules.pop()
        self._mark_sequence(self.modules[-1])

    def _mark_sequence(self, module: str) -> None:
        number = _sequence_number()
        if self._sequence[-1] == number:
            self._sequence_module[-1] = module
        elif number > self._sequence[-1]:
            self._sequence.append(number)
            self._sequence_module.append(module)

    def where(self) -> str:
        """The module that runs, or whose backward runs."""
        node = _current_node()
        if node is None or len(self.modules) > 1:
            return self.modules[-1]
        at = bisect_right(self._sequence, node._sequence_nr()) - 1  # noqa: SLF001
        return self._sequence_module[max(at, 0)]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation, or what is known of its kind, and record what it made."""
        if func is _ASKS_DEVICE:
            return asked_device(args[0])
        if types and not _PLAIN_TENSORS.issuperset(types):
            return NotImplemented  # a sharded tensor: its local part comes by itself
        kwargs = kwargs or {}
        if self._unwatched:
            return func(*args, **kwargs)
        facts = self._facts.get(func)
        if facts is None:
            facts = self._facts[func] = OperationFacts(func)
        packet = facts.packet
        if facts.is_product:
            self._workspace(args)
        before, after = facts.hidden(args, kwargs) if facts.hidden is not None else ((), ())
        made = [self.allocate(size, f"{packet} (in the kernel)") for size in before]
        out = self._answered(func, facts, args, kwargs)
        if facts.is_sum and _current_node() is not None and not torch.is_grad_enabled():
            self._watch_sum(args)
        made += [self.allocate(size, f"{packet} (in the kernel)") for size in after]
        for block in made:
            self.free(block)
        return out

    def _answered(self, func: Any, facts: OperationFacts, args: Any, kwargs: Any) -> Any:
        """What an operation returns, where only values decide that, or as always."""
        out = NotImplemented
        if facts.asks_values and self.values.may_answer(args):
            out = self.values.answer(func, facts.packet, args, self._call)
        if out is NotImplemented:
            out = self._run(func, facts, args, kwargs)
            self.values.follow(func, facts.packet, args, kwargs, out)
        else:
            self._see(out, facts.packet)
            self._count(facts.name, 1, (0, 0))
        return out

    def _call(self, func: Any, args: tuple[Any, ...]) -> Any:
        return self.__torch_dispatch__(func, (), args)

    def _run(self, func: Any, facts: OperationFacts, args: Any, kwargs: Any) -> Any:
        tensors: list[Any] = []
        key = signature(func, args, kwargs, tensors) if facts.knowable and self._remembers else None
        known = None if key is None else self._known.get(key)
        if known is not None:
            known.count += 1
            if known.sequence is None:
                return self._remake(known.outputs[0], tensors, facts.packet)
            return known.sequence(
                [self._remake(output, tensors, facts.packet) for output in known.outputs]
            )
        before = None if key is None else state_of(tensors)
        out = facts.substitute(func, args, kwargs) if facts.substitute else func(*args, **kwargs)
        if facts.resizes:
            self._resized_by(args)
        self._see(out, facts.packet)
        if facts.is_foreign:
            self.note(f"operation {facts.name}")
        described = None
        if key is not None and before == state_of(tensors):
            described = describe(out, tensors)
        work = work_of(facts.packet, facts.written, args, out)
        if described is None:
            self._count(facts.name, 1, work)
        else:
            self._known[key] = KnownCall(facts.name, *described, work, 1)
        return out

    def _resized_by(self, args: Any) -> None:
        for tensor in args:
            if on_device(tensor):
                self.resized(tensor.untyped_storage())

    def note(self, name: str) -> None:
        """Count something that a reader should know of."""
        self.recording.notes[name] = self.recording.notes.get(name, 0) + 1

    def _remake(self, output: Output | None, tensors: list[Any], operation: str) -> Any:
        if output is None:
            return None
        tensor = remake(output, tensors)
        if not output.tracked:
            return tensor
        storage = tensor.untyped_storage()
        key = storage._cdata  # noqa: SLF001
        if key not in self._alive:
            block = self.allocate(storage.nbytes(), operation, output.dtype_name, output.shape)
            self._watch(storage, key, block)
        return tensor

    def _count(self, name: str, times: int, work: tuple[int, int]) -> None:
        if self.phase == "load":
            return
        counts = self.recording.operations
        calls, flops, moved = counts.get(name, (0, 0, 0))
        counts[name] = (calls + times, flops + times * work[0], moved + times * work[1])

    def finish(self) -> None:
        """Add up what was counted by kind of call in the phase that ends."""
        for known in self._known.values():
            if known.count:
                self._count(known.name, known.count, known.work)
                known.count = 0

    def _workspace(self, args: Any) -> None:
        backward = _current_node() is not None
        if backward in self._workspaces:
            return
        if not any(on_device(tensor) for tensor in args):
            return
        self._workspaces.add(backward)
        block = self.allocate(self._workspace_bytes, "cublas")
        self.recording.blocks[block].kind = "cublas_workspace"

    def _watch_sum(self, args: Any) -> None:
        """Remember a sum that the autograd engine may have made of two arriving gradients.

        The engine adds in place where it holds the last reference, but never for tensors that
        Python handles (``torch/csrc/autograd/input_buffer.cpp can_accumulate_inplace``). Where
        the first summand dies at once, it did hold the last one: ``_died`` puts that right.
        (Gradients are off then, unlike in a forward that checkpointing runs again.) A view never
        is the last reference: the tensor that it is a view of is another.
        """
        old = args[0]
        if old._is_view():  # noqa: SLF001
            return
        if not (on_device(old) and on_device(args[1]) and self.recording.events):
            return
        made = self.recording.events[-1]
        known = self._alive.get(old.untyped_storage()._cdata)  # noqa: SLF001
        if known is None or made < 0 or self.recording.blocks[made].operation != "add":
            return
        old_block = self._same.get(known.block, known.block)
        if self.recording.blocks[old_block].size == self.recording.blocks[made].size:
            self._sum = (old_block, made, len(self.recording.events))

    def _see(self, out: Any, operation: str) -> None:
        if isinstance(out, (list, tuple)):
            for one in out:
                self._see(one, operation)
        elif on_device(out):
            self.track(out, operation)

    def track(self, tensor: torch.Tensor, operation: str) -> int:
        """The block under a tensor, a new one where its storage was not seen before."""
        storage = tensor.untyped_storage()
        key = storage._cdata  # noqa: SLF001
        known = self._alive.get(key)
        if known is not None:
            return self._same.get(known.block, known.block)
        block = self.allocate(
            storage.nbytes(), operation, str(tensor.dtype)[6:], tuple(tensor.shape)
        )

        self._watch(storage, key, block)
        return block

    def _watch(self, storage: Any, key: int, block: int) -> None:
        life = self._alive[key] = _Life(storage, self._ended)
        life.block, life.key = block, key

    def _end(self, life: _Life) -> None:
        self._alive.pop(life.key, None)
        block = self._same.get(life.block, life.block)
        if self.recording.blocks[block].died < 0:
            self._died(block)

    def name(self, tensor: torch.Tensor, kind: str, module: str) -> None:
        """Say what a tensor is; of a sharded one, what this rank holds of it."""
        tensor = getattr(tensor, "_local_tensor", tensor)
        if self._unwatched or not on_device(tensor):
            return
        block = self.recording.blocks[self.track(tensor, "")]
        block.kind, block.module = kind, _without_wrappers(module)

    def allocate(
        self,
        size: int,
        operation: str,
        dtype: str = "uint8",
        shape: tuple[int, ...] | None = None,
    ) -> int:
        """A new block of ``size`` bytes."""
        recording = self.recording
        block = len(recording.blocks)
        recording.blocks.append(
            Block(
                size,
                operation,
                self.where(),
                dtype,
                (size,) if shape is None else shape,
                self.phase,
                len(recording.events),
                self.step,
                stream=current_stream_id(),
            )
        )
        recording.events.append(block)
        return block

    def _died(self, block: int) -> None:
        """A storage died: free its block, unless the engine wrote a sum over it."""
        old, made, at = self._sum
        if block != old or at != len(self.recording.events):
            self.free(block)
            return
        self.recording.events.pop()
        self.recording.blocks[made].born = NEVER
        self._same[made] = old
        self._sum = (-1, -1, -1)

    def free(self, block: int) -> None:
        """A block dies."""
        recording = self.recording
        recording.blocks[block].died = len(recording.events)
        recording.events.append(~block)


def _without_wrappers(module: str) -> str:
    """A module's path as the model knows it."""
    return module.replace(_WRAPPER + ".", "").removesuffix(_WRAPPER).removesuffix(".")


_current_node = torch._C._current_autograd_node  # noqa: SLF001
_sequence_number = torch._C._autograd._get_sequence_nr  # type: ignore[attr-defined] # noqa: SLF001
