"""The life of every storage on the device, as a list of events."""

from __future__ import annotations

import weakref
from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from torch.utils._python_dispatch import TorchDispatchMode

from tuneplan.tracing.device import DEVICE
from tuneplan.tracing.hidden import CUBLAS_WORKSPACE_BYTES, HIDDEN, PRODUCTS, SUBSTITUTES
from tuneplan.tracing.recording import NEVER, Block, Recording

if TYPE_CHECKING:
    import torch


class Recorder(TorchDispatchMode):
    """Watches every operation below autograd and every storage it makes.

    Storages die when the last tensor on them does: a weak reference on the storage tells. What
    kernels allocate in passing (``hidden``) is added around the operation.
    """

    def __init__(self, *, hopper: bool = False) -> None:
        super().__init__()
        self.recording = Recording()
        self.phase, self.step = "load", 0
        self.modules: list[str] = [""]
        self._alive: dict[int, tuple[Any, int]] = {}
        self._sequence: list[int] = [-1]
        self._sequence_module: list[str] = [""]
        self._workspaces: set[bool] = set()
        self._workspace_bytes = CUBLAS_WORKSPACE_BYTES[hopper]
        self._same: dict[int, int] = {}  # a block to the block it was written over
        self._sum = (-1, -1, -1)
        self._names: dict[Any, str] = {}
        self.recording.marks.append((0, "load", 0))

    def start(self, phase: str, step: int | None = None) -> None:
        """Begin a phase."""
        self.phase = phase
        self.step = self.step if step is None else step
        self.recording.marks.append((len(self.recording.events), phase, self.step))

    def enter(self, module: str) -> None:
        """A module's forward begins."""
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
        """Run the operation and record what it made."""
        del types
        kwargs = kwargs or {}
        name = self._names.get(func)
        if name is None:
            name = self._names[func] = func.__module__.rsplit(".", 1)[-1] + "." + func.__name__
        counts = self.recording.operations
        counts[name] = counts.get(name, 0) + 1
        packet = name.split(".")[1]
        if packet in PRODUCTS:
            self._workspace(args)
        hidden = HIDDEN.get(packet)
        before, after = hidden(args, kwargs) if hidden is not None else ((), ())
        made = [self.allocate(size, f"{packet} (in the kernel)") for size in before]
        substitute = SUBSTITUTES.get(packet)
        out = substitute(func, args, kwargs) if substitute else func(*args, **kwargs)
        self._see(out, packet)
        if packet == "add" and _current_node() is not None:
            self._watch_sum(args)
        made += [self.allocate(size, f"{packet} (in the kernel)") for size in after]
        for block in made:
            self.free(block)
        return out

    def _workspace(self, args: Any) -> None:
        backward = _current_node() is not None
        if backward in self._workspaces:
            return
        if not any(_on_device(tensor) for tensor in args):
            return
        self._workspaces.add(backward)
        block = self.allocate(self._workspace_bytes, "cublas")
        self.recording.blocks[block].kind = "cublas_workspace"

    def _watch_sum(self, args: Any) -> None:
        """Remember a sum that the autograd engine may have made of two arriving gradients.

        The engine adds in place where it holds the last reference, but never for tensors that
        Python handles (``torch/csrc/autograd/input_buffer.cpp can_accumulate_inplace``). Where
        the first summand dies at once, it did hold the last one: ``_died`` puts that right.
        """
        old = args[0]
        if not (_on_device(old) and _on_device(args[1]) and self.recording.events):
            return
        made = self.recording.events[-1]
        known = self._alive.get(old.untyped_storage()._cdata)  # noqa: SLF001
        if known is None or made < 0 or self.recording.blocks[made].operation != "add":
            return
        old_block = self._same.get(known[1], known[1])
        if self.recording.blocks[old_block].size == self.recording.blocks[made].size:
            self._sum = (old_block, made, len(self.recording.events))

    def _see(self, out: Any, operation: str) -> None:
        if isinstance(out, (list, tuple)):
            for one in out:
                self._see(one, operation)
        elif _on_device(out):
            self.track(out, operation)

    def track(self, tensor: torch.Tensor, operation: str) -> int:
        """The block under a tensor, a new one where its storage was not seen before."""
        storage = tensor.untyped_storage()
        key = storage._cdata  # noqa: SLF001
        known = self._alive.get(key)
        if known is not None:
            return self._same.get(known[1], known[1])
        block = self.allocate(
            storage.nbytes(), operation, str(tensor.dtype)[6:], tuple(tensor.shape)
        )

        def died(_: Any, key: int = key, block: int = block) -> None:
            self._alive.pop(key, None)
            self._died(self._same.get(block, block))

        self._alive[key] = (weakref.ref(storage, died), block)
        return block

    def name(self, tensor: torch.Tensor, kind: str, module: str) -> None:
        """Say what a tensor is."""
        block = self.recording.blocks[self.track(tensor, "")]
        block.kind, block.module = kind, module

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


def _on_device(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor) and value.device.type == DEVICE


def _current_node() -> Any:
    import torch

    return torch._C._current_autograd_node()  # noqa: SLF001


def _sequence_number() -> int:
    import torch

    return int(torch._C._autograd._get_sequence_nr())  # type: ignore[attr-defined] # noqa: SLF001
