"""AdamW in a low-rank space: GaLore and APOLLO, written after what their packages hold and make.

GaLore (Zhao et al. 2024, galore-torch 1.0 ``adamw.py``, ``galore_projector.py``): the gradient of a
matrix is projected with singular vectors that are made anew every 200 steps; moments have the
projected shape; the update is projected back. APOLLO (Zhu et al. 2024, apollo-torch 1.0.3
``apollo.py``): the projection is random, and moments only scale the raw gradient by channel.
"""

from __future__ import annotations

from typing import Any, Final

import torch

RANK: Final = 128  # transformers trainer_optimizer.py: rank of optim_args, 128 without


class LowRankAdamW(torch.optim.Optimizer):
    """AdamW one tensor at a time, matrices between embedding and head in rank 128."""

    def __init__(
        self,
        trained: list[tuple[str, torch.nn.Parameter]],
        *,
        apollo: bool,
        learning_rate: float,
    ) -> None:
        super().__init__([parameter for _, parameter in trained], {"lr": learning_rate})
        self.apollo = apollo
        self.projected = {
            id(parameter)
            for name, parameter in trained
            if parameter.dim() == 2 and "embed" not in name
        }

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        del closure
        with torch.no_grad():
            for parameter in self.param_groups[0]["params"]:
                if parameter.grad is not None:
                    self._update(parameter, self.state[parameter])

    def _update(self, parameter: torch.nn.Parameter, state: dict[str, Any]) -> None:
        gradient = parameter.grad
        assert gradient is not None  # noqa: S101 - the caller asks
        low_rank = id(parameter) in self.projected
        if low_rank:
            gradient = self._project(gradient, state)
        if "exp_avg" not in state:
            state["exp_avg"] = torch.zeros_like(gradient)
            state["exp_avg_sq"] = torch.zeros_like(gradient)
        first, second = state["exp_avg"], state["exp_avg_sq"]
        first.mul_(0.9).add_(gradient, alpha=0.1)
        second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        root = second.sqrt().add_(1e-6)
        update = first / root
        if low_rank and self.apollo:
            update = self._scaled(parameter, update, gradient, state)
        elif low_rank:
            update = self._project_back(update, state)
        parameter.add_(update, alpha=-self.param_groups[0]["lr"])

    def _project(self, gradient: torch.Tensor, state: dict[str, Any]) -> torch.Tensor:
        tall = gradient.shape[0] >= gradient.shape[1]
        if "projection" not in state:
            make = _random if self.apollo else _singular
            state["projection"] = make(gradient, tall=tall)
        projection = state["projection"]
        return gradient @ projection.t() if tall else projection.t() @ gradient

    def _project_back(self, update: torch.Tensor, state: dict[str, Any]) -> torch.Tensor:
        projection = state["projection"]
        tall = update.shape[0] >= update.shape[1]
        whole = update @ projection if tall else projection @ update
        return whole * 0.25

    def _scaled(
        self,
        parameter: torch.nn.Parameter,
        update: torch.Tensor,
        gradient: torch.Tensor,
        state: dict[str, Any],
    ) -> torch.Tensor:
        """The raw gradient scaled by channel, its growth limited from the second step on."""
        raw = parameter.grad
        assert raw is not None  # noqa: S101 - the caller asks
        dim = 0 if raw.shape[0] < raw.shape[1] else 1
        factor = update.norm(dim=dim, keepdim=True) / (gradient.norm(dim=dim, keepdim=True) + 1e-8)
        scaled = raw * factor
        norm = scaled.norm()
        if "scaled_grad" in state:
            scaled = scaled / norm
        state["scaled_grad"] = norm
        return scaled.mul_(1.0)


def _singular(gradient: torch.Tensor, *, tall: bool) -> torch.Tensor:
    """Singular vectors of the fp32 gradient, in its own dtype (a copy of their first rows)."""
    left, _, right = torch.linalg.svd(gradient.float(), full_matrices=False)
    part = right[:RANK, :] if tall else left[:, :RANK]
    return part.to(gradient.dtype)


def _random(gradient: torch.Tensor, *, tall: bool) -> torch.Tensor:
    shape = (RANK, gradient.shape[1]) if tall else (gradient.shape[0], RANK)
    return torch.empty(shape, dtype=gradient.dtype, device=gradient.device)
