"""Towers that attend within windows: one call of the kernel for all windows of a length.

Without flash attention such a tower calls SDPA once for each window (transformers 5.24
``qwen2_5_vl/modeling_qwen2_5_vl.py Qwen2_5_VLVisionAttention.forward``). Here the windows are
put in the order of their lengths, and those of one length are the batch of one call: the same
products, and the bytes that the loop leaves, less what it rounds up for each window.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch

from tuneplan.tracing.device import fake_device
from tuneplan.tracing.hidden import ONE_BY_ONE
from tuneplan.tracing.recorder import Recorder
from tuneplan.tracing.values import on_host

SOURCE = (
    "one call for all windows of a length, whose backward takes the temporaries of one; what the "
    "loop would round up for each window is not counted, and reserved memory has fewer small blocks"
)
_LOOPS = "cu_seqlens"


class Windows:
    """Folds windows of one length into the batch of one call."""

    def __init__(self, recorder: Recorder) -> None:
        ONE_BY_ONE.clear()
        self._recorder = recorder
        self._next: list[tuple[int, int]] = []

    def watch(self, model: torch.nn.Module) -> bool:
        """Fold in every module that loops over windows with SDPA; whether there is any."""
        found = False
        for module in model.modules():
            config = getattr(module, "config", None)
            loops = _LOOPS in inspect.signature(module.forward).parameters
            attends = loops and hasattr(module, "is_causal") and hasattr(module, "qkv")
            if attends and getattr(config, "_attn_implementation", None) == "sdpa":
                module.register_forward_pre_hook(self._enter, with_kwargs=True)
                module.register_forward_hook(self._leave, always_call=True)
                found = True
        return found

    def _enter(self, module: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        del module
        self._next = []
        ends = kwargs.get(_LOOPS)
        if ends is None:
            return None
        known = ends.tolist()
        lengths = Counter(b - a for a, b in pairwise(known))
        if lengths.total() == len(lengths):
            return None
        self._next = [(count, length) for length, count in sorted(lengths.items())]
        with on_host():
            sizes = torch.tensor([0, *(count * length for count, length in self._next)])
            real = sizes.cumsum(0).to(torch.int32)
        with self._recorder.unwatched():
            folded = torch.empty(tuple(real.shape), dtype=real.dtype, device=fake_device())
        self._recorder.values.tell(folded, real)
        return args, {**kwargs, _LOOPS: folded}

    def _leave(self, module: Any, args: Any, out: Any) -> None:
        del module, args, out
        self._next = []

    def attend(self, run: Callable[..., Any], query: Any, key: Any, value: Any) -> Any:
        """``run`` on windows as a batch, or on what was given where there is nothing to fold."""
        if not self._next:
            return run(query, key, value)
        count, length = self._next.pop(0)
        if count == 1:
            return run(query, key, value)
        apart = [_apart(one, count, length) for one in (query, key, value)]
        ONE_BY_ONE.add(tuple(apart[0].shape))
        out = run(*apart)
        return out.transpose(0, 1).flatten(1, 2).unsqueeze(0)


def _apart(tensor: Any, count: int, length: int) -> Any:
    return tensor.squeeze(0).unflatten(1, (count, length)).transpose(0, 1)
