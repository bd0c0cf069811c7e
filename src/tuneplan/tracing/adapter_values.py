"""What PEFT's other methods read on the way, stated instead of computed.

LoHa and LoKr draw one number a call to decide whether a module is dropped; BOFT shuffles its
blocks by numbers it makes; VB-LoRA looks for infinite weights; SHiRA and WaveFT look for the places
of the weights that they train. None of these decides how much memory a step takes: nothing is
dropped, no weight is infinite, and as many places are found as the method trains. (PEFT 0.21.2
``tuners/{loha,lokr,boft,vblora,shira,waveft}/layer.py``.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

from tuneplan.tracing.device import fresh_fake
from tuneplan.tracing.values import KnownValues, on_host

_HIGHEST: Final = 0.999999  # drawn of [0, 1): above any share that is dropped


class AdapterValues(KnownValues):
    """Answers for a method of PEFT; whole numbers are followed from the beginning.

    Args:
        config: PEFT's configuration.
    """

    def __init__(self, config: object) -> None:
        super().__init__()
        self._makes = True
        self._rank = int(getattr(config, "r", 0) or 0)
        self._trains_places = type(config).__name__ == "ShiraConfig"

    def follow(
        self, func: Any, packet: str, args: Sequence[Any], kwargs: dict[str, Any], out: Any
    ) -> None:
        """As for any number, and what is stated of those that are drawn or compared."""
        if isinstance(out, torch.Tensor) and out.numel() and packet in _STATED:
            stated = _STATED[packet]
            if packet == "isinf" or out.numel() == 1:
                with on_host():
                    values = torch.full((out.numel(),), stated, dtype=out.dtype, device="cpu")
                self._put(out, values)
                return
        super().follow(func, packet, args, kwargs, out)

    def _unknown(self, packet: str, args: Sequence[Any]) -> Any:
        """As many places as a method trains; all of those that are checked for a border."""
        if packet != "nonzero" or args[0].dtype is not torch.bool:
            return NotImplemented
        mask = args[0]
        count = mask.numel()
        if self._trains_places and mask.dim() == 2:
            count = self._rank * sum(mask.shape)
        return fresh_fake((count, mask.dim()), (mask.dim(), 1), torch.int64, mask.device)


# Packet of the operation to what it gives.
_STATED: Final = {"rand": _HIGHEST, "randint": 0, "isinf": False}
