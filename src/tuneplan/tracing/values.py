"""Whole numbers on the device that the program reads: told, or computed from what was told.

Tensors on the device have no bytes, but shapes may depend on what they hold: sizes of images, the
places of image tokens, which expert is hit. Such tensors are told their values, and every
operation on told integers and booleans is computed on the host as well, so that no index, size or
branch is guessed.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch
from torch._subclasses.fake_tensor import FakeTensor

from tuneplan.tracing.device import DEVICE, fresh_fake

Call = Callable[[Any, tuple[Any, ...]], Any]

_MOST_VALUES: Final = 2**22
_MOST_FRACTIONS: Final = 2**12  # positions are scaled on the way
_MADE_OF_NUMBERS: Final = frozenset({"arange", "zeros", "ones", "full", "scalar_tensor"})
_MADE_OF_SHAPES: Final = frozenset(
    {"zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"}
)
_DYNAMIC: Final = frozenset(
    {
        "repeat_interleave", "masked_select", "_unique2", "unique_consecutive", "unique_dim",
        "bincount", "equal",
    }
)  # fmt: skip


class KnownValues:
    """What tensors on the device hold, where that is known."""

    ASKS: Final = frozenset(
        {"nonzero", "_local_scalar_dense", "index", "index_put", "index_put_", "topk", *_DYNAMIC}
    )

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Any]] = {}  # a storage's values, and who ends them
        self._makes = False

    @property
    def notes(self) -> dict[str, int]:
        """Counters for a reader."""
        return {}

    def tell(self, tensor: Any, values: Any) -> None:
        """A contiguous tensor holds these values; from now on whole numbers are followed."""
        self._makes = True
        with on_host():
            self._put(tensor, values.contiguous().reshape(-1))

    def may_answer(self, args: Sequence[Any]) -> bool:
        """Whether an operation's tensors are followed: the device's, and the host's if told."""
        return (
            bool(args) and isinstance(args[0], torch.Tensor) and (self._makes or on_device(args[0]))
        )

    def answer(self, func: Any, packet: str, args: Sequence[Any], call: Call) -> Any:
        """What an operation returns; ``NotImplemented`` where PyTorch can tell.

        Args:
            func: The operation.
            packet: Its name without namespace and overload.
            args: Its arguments.
            call: Calls an operation as the program would.
        """
        if packet in ("index", "index_put", "index_put_"):
            return self._index(func, args, call)
        if not all(self._is_known(one) for one in _tensors(args)):
            return self._unknown(packet, args)
        if packet == "topk":
            return NotImplemented
        with on_host():
            found = func(*self._on_host(args))
        if packet == "_local_scalar_dense":
            return found
        if isinstance(found, tuple):
            return tuple(self._with_values(one, args[0].device) for one in found)
        return (
            self._with_values(found, args[0].device) if isinstance(found, torch.Tensor) else found
        )

    def _unknown(self, packet: str, args: Sequence[Any]) -> Any:
        """What is stated of numbers that are not known."""
        del packet, args
        return NotImplemented

    def follow(
        self, func: Any, packet: str, args: Sequence[Any], kwargs: dict[str, Any], out: Any
    ) -> None:
        """Compute on the host what an operation on known values made."""
        if not (self._known or self._makes) or not isinstance(out, torch.Tensor):
            return
        most = _MOST_FRACTIONS if out.is_floating_point() else _MOST_VALUES
        if out.is_complex() or out.numel() > most:
            return
        key = _key(out)
        in_place = bool(args) and out is args[0]
        if key in self._known and not in_place:
            return
        random = torch.Tag.nondeterministic_seeded in func.tags
        values = None if random else self._operands(packet, args)
        if values is None:
            if in_place:
                self._known.pop(key, None)
            return
        kwargs = {name: value for name, value in kwargs.items() if name not in ("device", "layout")}
        with on_host():
            made = func(*values, **kwargs)
            if not in_place:
                self._put(out, made.contiguous().reshape(-1))

    def _operands(self, packet: str, args: Sequence[Any]) -> list[Any] | None:
        """The arguments with their values; None where some are not known."""
        tensors = list(_tensors(args))
        if not tensors:
            return list(args) if self._makes and packet in _MADE_OF_NUMBERS else None
        if packet in _MADE_OF_SHAPES and self._makes:
            first = args[0]
            with on_host():
                return [torch.empty(first.shape, dtype=first.dtype, device="cpu"), *args[1:]]
        if not all(self._is_known(one) for one in tensors):
            return None
        return self._on_host(args)

    def _is_known(self, tensor: Any) -> bool:
        if not isinstance(tensor, FakeTensor):
            return True  # a real one, made on the host a moment ago
        return _key(tensor) in self._known or tensor.constant is not None

    def _on_host(self, args: Any) -> list[Any]:
        return [
            self._values(one)
            if isinstance(one, torch.Tensor)
            else self._on_host(one)
            if isinstance(one, (list, tuple)) and any(True for _ in _tensors(one))
            else one
            for one in args
        ]

    def _values(self, tensor: Any) -> Any:
        if not isinstance(tensor, FakeTensor):
            return tensor
        if tensor.constant is not None:
            return tensor.constant
        flat = self._known[_key(tensor)][0]
        with on_host():
            return flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    def _index(self, func: Any, args: Sequence[Any], call: Call) -> Any:
        """An index by booleans is an index by the places of the true ones."""
        if not any(one is not None and one.dtype is torch.bool for one in args[1]):
            return NotImplemented
        places: list[Any] = []
        for one in args[1]:
            if one is None or one.dtype is not torch.bool:
                places.append(one)
                continue
            if len(args) > 2 and args[2].dim():  # values are put: as many as they are
                shape = (args[2].shape[0], one.dim())
                found = fresh_fake(shape, (shape[1], 1), torch.int64, one.device)
            else:
                found = call(torch.ops.aten.nonzero.default, (one,))
            places.extend(call(torch.ops.aten.unbind.int, (found, 1)))
        return call(func, (args[0], places, *args[2:]))

    def _with_values(self, values: Any, device: Any) -> Any:
        """A tensor on the device that holds ``values``."""
        with on_host():
            values = torch.as_tensor(values).contiguous()
            flat = values.reshape(-1)
        made = fresh_fake(tuple(values.shape), tuple(values.stride()), values.dtype, device)
        self._put(made, flat)
        return made

    def _put(self, tensor: Any, flat: Any) -> None:
        key, known = _key(tensor), self._known

        def ended(_: Any) -> None:
            known.pop(key, None)

        known[key] = (flat, weakref.ref(tensor.untyped_storage(), ended))


def on_host() -> Any:
    """Where tensors are real ones."""
    return torch._C._DisableTorchDispatch()  # type: ignore[attr-defined] # noqa: SLF001


def on_device(value: Any) -> bool:
    """Whether a value is a tensor of the device."""
    return isinstance(value, torch.Tensor) and value.device.type == DEVICE


def _tensors(args: Any) -> Iterator[Any]:
    for one in args:
        if isinstance(one, torch.Tensor):
            yield one
        elif isinstance(one, (list, tuple)):
            yield from _tensors(one)


def _key(tensor: Any) -> int:
    return int(tensor.untyped_storage()._cdata)  # noqa: SLF001
