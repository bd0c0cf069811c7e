"""Shadow tensors: model code that allocates nothing and counts everything.

A ``Tape`` runs the forward and backward pass of a piece of model code on tensors that have a
size and a dtype but no contents. Lifetimes are Python's own: a shadow tensor's bytes count from
its creation until nothing refers to it any more, neither a variable of the model code nor the
autograd graph, exactly as in PyTorch. What each operation keeps for its backward pass follows
PyTorch's ``derivatives.yaml`` and the cited framework code; the sizes come from the architecture.

So a peak is never a formula of its own: it is the largest sum of live tensors, and the same walk
lists the operations that ``step_time`` prices. Sizes may be NumPy arrays, one entry per candidate:
one walk then counts thousands of candidates.

Not counted: tensors of one number per token (means, norms' scales) and the allocator's rounding to
512 bytes, together under 0.1 % for models above 100M parameters.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Final

from tuneplan.estimation.meter import Meter, Storage
from tuneplan.estimation.operations import Number, Operation, OperationKind, Stage
from tuneplan.spec.recipe import DType

_ALONE: Final = 2  # references to a storage: its one tensor and the argument of getrefcount


class Node:
    """One backward step: what it keeps, and how it turns a gradient into gradients.

    ``unpacks`` is true where it asks autograd for something that was kept, a weight included.
    """

    __slots__ = ("backward", "inputs", "saved", "unpacks")

    def __init__(
        self,
        inputs: Sequence[Node | None],
        saved: list[Storage],
        backward: Callable[[Tensor], Sequence[Tensor | None]],
        *,
        unpacks: bool = True,
    ) -> None:
        self.inputs = inputs
        self.saved = saved
        self.backward = backward
        self.unpacks = unpacks


class Tensor:
    """A shadow tensor: ``elements`` of ``dtype`` over a storage, perhaps shared with others.

    ``is_view`` is true where PyTorch keeps another tensor on the same storage behind it: nothing
    is ever added to such a gradient in place.
    """

    __slots__ = ("dtype", "elements", "is_view", "node", "storage")

    def __init__(
        self,
        storage: Storage,
        elements: Number,
        dtype: DType,
        node: Node | None = None,
        *,
        is_view: bool = False,
    ) -> None:
        self.storage = storage
        self.elements = elements
        self.dtype = dtype
        self.node = node
        self.is_view = is_view

    @property
    def size(self) -> Number:
        """Bytes of its elements."""
        return self.elements * self.dtype.num_bytes


class Tape:
    """Runs shadow operations: the autograd graph, the meter and the list of operations.

    Attributes:
        grad: Whether a graph is recorded (False inside a checkpointed forward).
        stage: What new operations are labelled with.
        operations: Everything executed, once per call.
        persistent: Gradients of weights, alive until the tape dies.
        at_last_save: Number of operations, peak and number of recorded events when something was
            last kept.
        packs: Whether something is kept for the node that comes next.
        accumulating: Weight gradients already exist and are added to: new ones are temporary.
        keeps_attributes: Whether the graph outlives its backward, and with it the tensors that
            autograd functions hold as plain attributes.
        attributes: Those tensors: alive until the tape dies.
        key_values: Keys and values that the model's forward collects.
    """

    __slots__ = (
        "accumulating",
        "at_last_save",
        "attributes",
        "grad",
        "keeps_attributes",
        "key_values",
        "meter",
        "nodes",
        "operations",
        "packs",
        "persistent",
        "stage",
    )

    def __init__(self, meter: Meter, *, grad: bool, stage: Stage = Stage.FORWARD) -> None:
        self.meter = meter
        self.grad = grad
        self.stage = stage
        self.nodes: list[Node] = []
        self.operations: list[Operation] = []
        self.persistent: list[Storage] = []
        self.accumulating = False
        self.keeps_attributes = grad
        self.attributes: list[Storage] = []
        self.key_values: list[Storage] = []
        self.at_last_save: tuple[int, Number, int] = (0, 0.0, 0)
        self.packs = False

    def tensor(self, elements: Number, dtype: DType, name: str) -> Tensor:
        """A new tensor with a storage of its own."""
        return Tensor(Storage(self.meter, elements * dtype.num_bytes, name), elements, dtype)

    def leaf(self, elements: Number, dtype: DType, name: str) -> Tensor:
        """A new tensor that wants a gradient: where backward ends."""
        tensor = self.tensor(elements, dtype, name)
        if self.grad:
            tensor.node = Node((), [], lambda _grad: ())
            self.nodes.append(tensor.node)
        return tensor

    def link(
        self,
        out: Tensor,
        inputs: Sequence[Tensor],
        saved: Sequence[Tensor],
        backward: Callable[[Tensor], Sequence[Tensor | None]],
        *,
        trains: bool = False,
    ) -> Tensor:
        """Connect ``out`` to its inputs if any of them (or a trained weight) wants a gradient."""
        nodes = [tensor.node for tensor in inputs]
        packs, self.packs = self.packs, False
        if not self.grad or not (trains or any(node is not None for node in nodes)):
            return out
        kept = [tensor.storage for tensor in saved]
        out.node = Node(nodes, kept, backward, unpacks=packs or bool(kept))
        self.nodes.append(out.node)
        return out

    def saves(self) -> None:
        """Say that a tensor is about to be kept for backward, before its kernel runs.

        A non-reentrant recomputation ends at the last of them (``torch/utils/checkpoint.py``,
        ``_StopRecomputationError``): operations and peak up to here are remembered.
        """
        self.packs = True
        events = self.meter.events
        self.at_last_save = (len(self.operations), self.meter.peak, len(events) if events else 0)

    def keep_attribute(self, tensor: Tensor) -> None:
        """Hold a tensor as an attribute of a graph node (``ctx.tensors``), once.

        Such a tensor passes by checkpointing's hooks: without reentrance that of the first forward
        stays, with it none does.
        """
        storage = tensor.storage
        if self.keeps_attributes and all(storage is not other for other in self.attributes):
            self.attributes.append(storage)

    @property
    def attribute_bytes(self) -> Number:
        """Bytes that stay alive as attributes of the graph."""
        total: Number = 0.0
        for storage in self.attributes:
            total = total + storage.size
        return total

    def weight_gradient(self, elements: Number, dtype: DType, name: str) -> None:
        """The gradient of a trained weight: kept, or added to the one that is there."""
        events = self.meter.events
        if events is not None:
            self.meter.gradients.add(len(events))
        storage = Storage(self.meter, elements * dtype.num_bytes, f"gradient of {name}")
        if not self.accumulating:
            self.persistent.append(storage)

    def run_backward(self, out: Tensor, grad: Tensor) -> Tensor | None:
        """Run the graph backward from ``out``; the gradient that reaches the leaf, if any."""
        assert out.node is not None  # noqa: S101 - our own bug, not the user's
        pending: dict[Node, Tensor] = {out.node: grad}
        out.node = None
        del grad, out
        result: Tensor | None = None
        for position in range(len(self.nodes) - 1, -1, -1):
            node = self.nodes.pop()
            arriving = pending.pop(node, None)
            if arriving is None:
                continue
            if not node.inputs and position == 0:
                result = arriving
                break
            holder = [arriving]
            del arriving
            grads = node.backward(holder.pop())
            node.saved.clear()
            deposits = list(zip(node.inputs, grads, strict=True))
            del grads
            while deposits:
                target, gradient = deposits.pop(0)
                if target is not None and gradient is not None:
                    self._deposit(pending, target, gradient)
                del gradient
        return result

    def before_unpacking(self, out: Tensor, elements: Number, dtype: DType) -> Number:
        """Bytes of gradients that are made of one that arrives, before anything kept is asked for.

        Without reentrance that is when a recomputation begins (``torch/utils/checkpoint.py
        unpack_hook``): the gradient has gone through sums, casts and scales by then. Nothing of
        the tape changes.
        """
        own, operations = self.meter, self.operations
        self.meter, self.operations = Meter(), []
        assert out.node is not None  # noqa: S101 - our own bug, not the user's
        pending = {out.node: self.tensor(elements, dtype, "arriving gradient")}
        before = self.meter.current
        for node in reversed(self.nodes):
            arriving = pending.get(node)
            if arriving is None:
                continue
            if node.unpacks or not node.inputs:
                break
            del pending[node]
            holder = [arriving]
            del arriving
            grads = list(node.backward(holder.pop()))
            for target in node.inputs:
                gradient = grads.pop(0)
                if target is not None and gradient is not None:
                    self._deposit(pending, target, gradient)
                del gradient
        made = self.meter.current - before
        pending.clear()
        self.meter, self.operations = own, operations
        return made

    def _deposit(self, pending: dict[Node, Tensor], target: Node, gradient: Tensor) -> None:
        """Add to what has arrived, in place when nobody else holds it.

        Source: ``torch/csrc/autograd/input_buffer.cpp can_accumulate_inplace`` (use counts of
        tensor and storage are one; a view's base is a second user of the storage).
        """
        old = pending.get(target)
        if old is None:
            pending[target] = gradient
            return
        self.elementwise("accumulate", 3 * old.size)
        if old.is_view or sys.getrefcount(old.storage) > _ALONE:
            pending[target] = self.tensor(old.elements, old.dtype, "accumulated gradient")

    def elementwise(
        self,
        name: str,
        bytes_moved: Number,
        *,
        launches: float = 1.0,
        kind: OperationKind = OperationKind.ELEMENTWISE,
        dtype: DType = DType.BFLOAT16,
        casting: Number = 0.0,
        strided: Number = 0.0,
    ) -> None:
        """Record a memory-bound operation.

        ``casting`` and ``strided`` are the parts of ``bytes_moved`` that such kernels move
        (``Operation.cast_bytes``, ``Operation.strided_bytes``).
        """
        self.operations.append(
            Operation(
                name,
                kind,
                self.stage,
                dtype,
                launches=launches,
                bytes_moved=bytes_moved,
                cast_bytes=casting,
                strided_bytes=strided,
            )
        )

    def matmul(
        self,
        name: str,
        m: Number,
        n: Number,
        k: Number,
        dtype: DType,
        *,
        kind: OperationKind = OperationKind.MATMUL,
        num_groups: int = 1,
    ) -> None:
        """Record a matrix product (m x k) times (k x n)."""
        size = dtype.num_bytes
        self.operations.append(
            Operation(
                name,
                kind,
                self.stage,
                dtype,
                flops=2.0 * m * n * k,
                bytes_moved=size * (m * k + k * n * num_groups + m * n),
                m=m,
                n=n,
                k=k,
                num_groups=num_groups,
            )
        )
