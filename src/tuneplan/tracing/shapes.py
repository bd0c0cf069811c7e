"""What operations return, asked once for every kind of call.

PyTorch's own shape functions answer in a tenth of a millisecond. The answer depends on the
operation, on its plain arguments, and on the shapes, strides, offsets, dtypes and devices of its
tensors alone, so that the second call with the same ones takes the first one's answer: which
outputs are new storages, which lie on an argument's storage, which are an argument itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch
from torch._subclasses.fake_tensor import FakeTensor

from tuneplan.frozen import dataclass
from tuneplan.tracing.device import device_type, fresh_fake, view_fake

if TYPE_CHECKING:
    from collections.abc import Sequence

_PLAIN: Final = frozenset(
    {
        int, float, bool, str, type(None), complex, torch.dtype, torch.device, torch.layout,
        torch.memory_format,
    }
)  # fmt: skip
# They change what a tensor is, not what it holds; or their answer lies in the values.
_NEVER: Final = frozenset({"set_", "resize_", "resize_as_", "_resize_output_", "set_data"})
_UNPREDICTABLE: Final = frozenset({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape})

Signature = tuple[Any, ...]


@dataclass(slots=True)
class Output:
    """One output of a kind of call.

    Attributes:
        argument: The tensor argument it is (``shape`` is None) or lies on; -1 for a new storage.
        tracked: Whether it is on the device.
        nbytes: Of a new storage.
    """

    argument: int
    shape: tuple[int, ...] | None = None
    stride: tuple[int, ...] = ()
    offset: int = 0
    dtype: Any = None
    device: Any = None
    nbytes: int = 0
    tracked: bool = False
    dtype_name: str = ""


@dataclass(slots=True)
class KnownCall:
    """What a kind of call returns, and how often it was made since last counted.

    Attributes:
        outputs: Of every output; None where the output is None.
        sequence: ``tuple``, ``list`` or None for a single output.
        work: FLOPs and bytes of one call.
    """

    name: str
    outputs: tuple[Output | None, ...]
    sequence: Any
    work: tuple[int, int]
    count: int = 0


def signature(func: Any, args: Any, kwargs: Any, tensors: list[Any]) -> Signature | None:
    """Everything the answer depends on; None where that cannot be said.

    Args:
        func: The operation.
        args: Its arguments.
        kwargs: Its named arguments.
        tensors: Filled with the tensors among the arguments, in order.
    """
    parts: list[Any] = [func, torch.get_default_dtype()]
    if not _sign(args, parts, tensors):
        return None
    for name, value in kwargs.items():
        parts.append(name)
        if not _sign((value,), parts, tensors):
            return None
    return tuple(parts)


def _sign(values: Any, parts: list[Any], tensors: list[Any]) -> bool:
    for value in values:
        kind = type(value)
        if kind is FakeTensor:
            if value.constant is not None:
                return False
            tensors.append(value)
            parts.append(value.shape)
            parts.append(value.stride())
            parts.append(value.storage_offset())
            parts.append(value.dtype)
            parts.append(value._fake_device)  # noqa: SLF001
        elif kind in _PLAIN:
            parts.append(kind)
            parts.append(value)
        elif kind is list or kind is tuple or kind is torch.Size:
            parts.append(len(value))
            if not _sign(value, parts, tensors):
                return False
        else:
            return False
    return True


def knowable(func: Any) -> bool:
    """Whether an operation's answer depends on what a signature holds."""
    return (
        isinstance(func, torch._ops.OpOverload)  # noqa: SLF001
        and func.__name__.split(".")[0] not in _NEVER
        and not _UNPREDICTABLE.intersection(func.tags)
    )


def state_of(tensors: Sequence[Any]) -> list[tuple[Any, ...]]:
    """What an operation must leave as it was to be known."""
    return [
        (t.shape, t.stride(), t.storage_offset(), t.dtype, t.untyped_storage()._cdata)  # noqa: SLF001
        for t in tensors
    ]


def describe(out: Any, tensors: Sequence[Any]) -> tuple[tuple[Output | None, ...], Any] | None:
    """The outputs of a call and the sequence they come in; None where they cannot be remade."""
    sequence = type(out) if isinstance(out, (tuple, list)) else None
    if sequence not in (None, tuple, list):
        return None
    found: list[Output | None] = []
    storages = {t.untyped_storage()._cdata: at for at, t in reversed(list(enumerate(tensors)))}  # noqa: SLF001
    for one in out if sequence else (out,):
        if one is None:
            found.append(None)
            continue
        output = _describe_tensor(one, tensors, storages)
        if output is None:
            return None
        found.append(output)
    return tuple(found), sequence


def _describe_tensor(one: Any, tensors: Sequence[Any], storages: dict[int, int]) -> Output | None:
    """One output; ``storages`` learns new ones as -1, so that two on one are told."""
    for at, tensor in enumerate(tensors):
        if one is tensor:
            return Output(at)
    if type(one) is not FakeTensor or one.constant is not None or one.requires_grad:
        return None
    if one.is_conj() or one.is_neg() or one.layout is not torch.strided:
        return None
    storage = one.untyped_storage()
    at = storages.setdefault(storage._cdata, -1)  # noqa: SLF001
    if at == -1:
        storages[storage._cdata] = -2  # noqa: SLF001
        if one.storage_offset() or storage.nbytes() != _dense_bytes(one):
            return None
    elif at == -2:
        return None
    device = one._fake_device  # noqa: SLF001
    return Output(
        at,
        tuple(one.shape),
        tuple(one.stride()),
        one.storage_offset(),
        one.dtype,
        device,
        storage.nbytes(),
        device.type == device_type(),
        str(one.dtype)[6:],
    )


def _dense_bytes(tensor: Any) -> int:
    """Bytes of the storage that ``empty_strided`` would make."""
    if 0 in tensor.shape:
        return 0
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return int((last + 1) * tensor.element_size())


def remake(output: Output, tensors: Sequence[Any]) -> Any:
    """The output of a known call."""
    if output.argument < 0:
        return fresh_fake(output.shape, output.stride, output.dtype, output.device)
    argument = tensors[output.argument]
    if output.shape is None:
        return argument
    return view_fake(
        argument, output.shape, output.stride, output.offset, output.dtype, output.device
    )
