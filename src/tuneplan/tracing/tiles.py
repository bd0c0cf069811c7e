"""A stand-in for TRL's log-probabilities in tiles of tokens and vocabulary entries.

Nothing as large as the logits exists: one tile is made again and again, folded into a few numbers
for each token, and in the backward turned into the gradient of the logits, which two products add
into fp32 gradients. Source: TRL 1.16.0 ``trl/kernels/chunked_logprob.py``.
"""

from __future__ import annotations

from typing import Any, Final

import torch

_STATISTICS: Final = 7  # fp32 numbers a token that a forward fills


class TiledLogProbability(torch.autograd.Function):
    """The log-probability of each label; keeps hidden states, weight and one number a token."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        labels: torch.Tensor,
        tile: tuple[int, int],
    ) -> torch.Tensor:
        """One number for each row of ``hidden``."""
        ctx.tile, ctx.dtype = tile, _compute_dtype(hidden)
        tokens, device = hidden.shape[0], hidden.device
        statistics = [
            torch.zeros(tokens, dtype=torch.float32, device=device) for _ in range(_STATISTICS)
        ]
        buffer = _buffer(hidden, ctx)
        for rows, part, start in _tiles(hidden, weight, ctx):
            _logits(buffer, part, weight, start, ctx)
            del rows, part
        normalizer = statistics[0] + statistics[1].log()
        chances = statistics[2] - normalizer
        ctx.save_for_backward(hidden, weight, labels, normalizer)
        return chances

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # type: ignore[override]
        """Gradients summed in fp32, then cast."""
        hidden, weight, _, _ = ctx.saved_tensors
        of_hidden = of_weight = None
        if ctx.needs_input_grad[0]:
            of_hidden = torch.zeros(hidden.shape, dtype=torch.float32, device=hidden.device)
        if ctx.needs_input_grad[1]:
            of_weight = torch.zeros(weight.shape, dtype=torch.float32, device=hidden.device)
        buffer = _buffer(hidden, ctx)
        grad = grad.float().contiguous()
        for rows, part, start in _tiles(hidden, weight, ctx):
            tile, columns = _logits(buffer, part, weight, start, ctx)
            if of_hidden is not None:
                _add_product(of_hidden[rows : rows + part.shape[0]], tile, columns)
            if of_weight is not None:
                _add_product(of_weight[start : start + columns.shape[0]], tile.t(), part)
        return (
            None if of_hidden is None else of_hidden.to(hidden.dtype),
            None if of_weight is None else of_weight.to(weight.dtype),
            None,
            None,
        )


def _compute_dtype(hidden: torch.Tensor) -> torch.dtype:
    kind = hidden.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden.dtype


def _buffer(hidden: torch.Tensor, ctx: Any) -> torch.Tensor:
    rows, columns = ctx.tile
    shape = (min(hidden.shape[0], rows), columns)
    return torch.empty(shape, dtype=ctx.dtype, device=hidden.device)


def _tiles(hidden: torch.Tensor, weight: torch.Tensor, ctx: Any) -> Any:
    """``(first row, its hidden states in the compute dtype, first vocabulary entry)``."""
    rows, columns = ctx.tile
    for first in range(0, hidden.shape[0], rows):
        part = hidden[first : first + rows].to(ctx.dtype)
        for start in range(0, weight.shape[0], columns):
            yield first, part, start


def _logits(
    buffer: torch.Tensor, part: torch.Tensor, weight: torch.Tensor, start: int, ctx: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    columns = weight[start : start + ctx.tile[1]].to(ctx.dtype)
    tile = buffer[: part.shape[0], : columns.shape[0]]
    torch.mm(part, columns.t(), out=tile)
    return tile, columns


def _add_product(total: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> None:
    """``torch.addmm(..., out_dtype=float32)``: nothing beside the sum."""
    with torch.autocast(total.device.type, enabled=False):
        if left.dtype is total.dtype:
            total.addmm_(left, right)
        else:
            total.add_(0.0)
