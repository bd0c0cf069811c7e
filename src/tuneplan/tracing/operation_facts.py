"""What holds for every call of one operation of PyTorch's, whoever makes it."""

from __future__ import annotations

from typing import Any, Final

import torch

from tuneplan.tracing.device import CPU, device_type
from tuneplan.tracing.hidden import (
    COMPOSED,
    FILLED_IN_PLACE,
    HIDDEN,
    PRODUCTS,
    SUBSTITUTES,
)
from tuneplan.tracing.shapes import (
    knowable,
)
from tuneplan.tracing.values import KnownValues

_OWN_OPERATIONS: Final = frozenset(
    {"aten", "prim", "prims", "profiler", "c10d", "_c10d_functional", "fsdp"}
)


class OperationFacts:
    """What holds for every call of an operation."""

    __slots__ = (
        "asks_values",
        "hidden",
        "is_foreign",
        "is_product",
        "is_sum",
        "knowable",
        "name",
        "packet",
        "resizes",
        "substitute",
        "written",
    )  # fmt: skip

    def __init__(self, func: Any) -> None:
        self.name = func.__module__.rsplit(".", 1)[-1] + "." + func.__name__
        self.packet = self.name.split(".")[1]
        on_cpu = device_type() == CPU  # whose kernels have no such workspaces
        self.is_product = self.packet in PRODUCTS and not on_cpu
        self.asks_values = self.packet in KnownValues.ASKS
        self.is_sum = self.packet == "add"
        self.hidden = COMPOSED.get(self.packet) or (None if on_cpu else HIDDEN.get(self.packet))
        self.substitute = SUBSTITUTES.get(self.packet)
        self.resizes = self.packet in ("resize_", "resize_as_", "_resize_output_", "set_")
        self.is_foreign = self.name.split(".")[0] not in _OWN_OPERATIONS
        fills = self.packet in FILLED_IN_PLACE  # in place or not: that depends on who calls
        self.knowable = knowable(func) and not self.is_foreign and not fills
        schema = getattr(func, "_schema", None)
        in_place = self.packet.startswith("_foreach_") and schema and not schema.returns
        if in_place and not on_cpu:
            self.substitute = _write_in_place
        self.written = tuple(
            bool(argument.alias_info and argument.alias_info.is_write)
            for argument in (schema.arguments if schema else ())
        )


def _write_in_place(func: Any, args: Any, kwargs: Any) -> None:
    """Nothing on the device: what writes over lists of tensors makes none and returns none.

    Step counts on the host are numbers that the optimizer reads.
    """
    if any(not on_device(tensor) for tensor in args[0]):
        func(*args, **kwargs)


def on_device(value: Any) -> bool:
    """Whether a value is a tensor of the device that is traced."""
    return isinstance(value, torch.Tensor) and value.device.type == device_type()
