"""Which tokens go to which expert, stated instead of computed.

Loops over experts ask the device which experts are hit, how many tokens each takes and whether two
numbers are equal. Tensors without bytes cannot say; this says it for a routing that is stated:
balanced (every expert takes its share), or the worst for one expert (as few experts as there can
be take every token). What follows from an answer (an index, a comparison) is computed on the host
from the answer, so that no branch is guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, Final

import torch

from tuneplan.spec.architecture import MixtureOfExperts, ModelArchitecture
from tuneplan.tracing.device import device_type, fresh_fake

Call = Callable[[Any, tuple[Any, ...]], Any]

_MOST_VALUES: Final = 4096


class Spread(StrEnum):
    """How tokens are spread over experts."""

    BALANCED = "balanced"
    WORST = "worst"


class Routing:
    """Answers what only data could decide.

    Args:
        num_experts: Routed experts of a layer.
        per_token: Experts that a token visits.
        spread: Over which of them.

    Attributes:
        asked: Experts that were said to be hit.
        answered: Experts for whose tokens was asked: each is a call of an expert.
    """

    ASKS: Final = frozenset(
        {"nonzero", "_local_scalar_dense", "index", "index_put", "index_put_", "bincount", "topk"}
    )

    def __init__(self, num_experts: int, per_token: int, spread: Spread = Spread.BALANCED) -> None:
        self.num_experts, self.per_token, self.spread = num_experts, per_token, spread
        self.asked = self.answered = 0
        self._rows = 0
        self._turn = 0
        self._known: dict[int, Any] = {}  # storage to its values, on the host

    @property
    def notes(self) -> dict[str, int]:
        """Counters for a reader: a loop that passes experts over is seen."""
        found = {"experts_hit": self.asked, "expert_calls": self.answered}
        return {name: count for name, count in found.items() if count}

    def counts(self, rows: int) -> list[int]:
        """Rows of each expert, when ``rows`` pairs of a token and an expert are spread."""
        hit = self.num_experts if self.spread is Spread.BALANCED else self.per_token
        hit = max(1, min(hit, rows))
        each, rest = divmod(rows, hit)
        return [each + (expert < rest) for expert in range(hit)] + [0] * (self.num_experts - hit)

    def forget(self, storage_key: int) -> None:
        """A storage died."""
        self._known.pop(storage_key, None)

    def answer(self, func: Any, packet: str, args: Sequence[Any], call: Call) -> Any:
        """What an operation returns; ``NotImplemented`` where PyTorch can tell.

        Args:
            func: The operation.
            packet: Its name without namespace and overload.
            args: Its arguments.
            call: Calls an operation as the program would.
        """
        if packet == "topk":
            if args[0].shape[-1] == self.num_experts:
                self._rows = args[0][..., 0].numel() * args[1]
            return NotImplemented
        if packet == "_local_scalar_dense":
            return self._scalar(args[0])
        if packet == "nonzero":
            return self._nonzero(args[0])
        if packet == "bincount":
            return self._with_values(self.counts(args[0].numel()), args[0].device)
        return self._index(func, args, call)

    def follow(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> None:
        """Compute on the host what a device tensor holds that is made from known ones alone."""
        if not self._known or not isinstance(out, torch.Tensor) or out.numel() > _MOST_VALUES:
            return
        key = _key(out)
        if key in self._known or out.device.type != device_type():
            return
        tensors = [one for one in args if isinstance(one, torch.Tensor)]
        if not tensors or any(_key(one) not in self._known for one in tensors):
            return
        values = [self._values(one) if isinstance(one, torch.Tensor) else one for one in args]
        kwargs = {name: value for name, value in kwargs.items() if name != "device"}
        with _on_host():
            self._known[key] = func(*values, **kwargs).reshape(-1)

    def _values(self, tensor: Any) -> Any:
        flat = self._known[_key(tensor)]
        with _on_host():
            return flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    def _scalar(self, tensor: Any) -> Any:
        if _key(tensor) in self._known:
            with _on_host():
                return self._values(tensor).item()
        elements = tensor.untyped_storage().nbytes() // tensor.element_size()
        if tensor.dtype in (torch.int64, torch.int32) and elements == self.num_experts:
            return self.counts(self._rows)[tensor.storage_offset()]
        return NotImplemented

    def _nonzero(self, mask: Any) -> Any:
        if _key(mask) in self._known:
            with _on_host():
                found = self._values(mask).nonzero()
            return self._with_values(found, mask.device)
        if mask.dim() == 1 and mask.shape[0] - self.num_experts in (0, 1):
            hit = [n for n, count in enumerate(self.counts(self._rows or mask.shape[0])) if count]
            self.asked += len(hit)
            self._turn = 0
            return self._with_values([[expert] for expert in hit], mask.device)
        rows = self._rows or mask.numel()
        if mask.numel() not in (rows, rows // self.per_token):
            return NotImplemented
        count = self.counts(rows)[self._turn % self.num_experts]
        self._turn += 1
        self.answered += count > 0
        return fresh_fake((count, mask.dim()), (mask.dim(), 1), torch.int64, mask.device)

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
        with _on_host():
            values = torch.as_tensor(values).contiguous()
            flat = values.reshape(-1)
        made = fresh_fake(tuple(values.shape), tuple(values.stride()), values.dtype, device)
        self._known[_key(made)] = flat
        return made


def _on_host() -> Any:
    """Where tensors are real ones."""
    return torch._C._DisableTorchDispatch()  # type: ignore[attr-defined] # noqa: SLF001


def _key(tensor: Any) -> int:
    return int(tensor.untyped_storage()._cdata)  # noqa: SLF001


def routing_of(architecture: ModelArchitecture, spread: Spread) -> Routing | None:
    """The routing of a model's experts; None for a model without."""
    for group in architecture.groups:
        mixture = group.layer.feed_forward
        if isinstance(mixture, MixtureOfExperts):
            return Routing(mixture.num_experts, mixture.num_experts_per_tok, spread)
    return None
