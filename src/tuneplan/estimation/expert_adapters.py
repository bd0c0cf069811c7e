"""Adapters on the stacked weights of routed experts.

PEFT adapts a parameter by a parametrisation: in every forward the whole update ``B A`` is made for
all experts, and the product runs over ``W + B A``, whose gradient is as large as the weight.
Source: peft 0.17-0.21 ``tuners/lora/layer.py ParamWrapper`` (``get_delta_weight``,
``_LoraParameterProxy``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tuneplan.estimation.modules import Walk
from tuneplan.estimation.operations import OperationKind
from tuneplan.estimation.roles import Role
from tuneplan.estimation.shadow import Tape, Tensor
from tuneplan.spec.architecture import Weight
from tuneplan.spec.recipe import Adapter, DType

_KIND = OperationKind.ADAPTER


class Stacked(NamedTuple):
    """A stacked weight of routed experts, its role and, where it is adapted, what products use."""

    weight: Weight
    role: Role
    merged: Tensor | None = None


def with_adapters(walk: Walk, stacked: Sequence[Stacked]) -> tuple[list[Tensor], list[Stacked]]:
    """Of each adapted weight the update, alive until the block's forward is over, and the sum."""
    updates, found = [], []
    for one in stacked:
        if one.role.adapted:
            update, merged = _merged_weight(walk, one.weight, one.role)
            updates.append(update)
            one = one._replace(merged=merged)
            del update, merged
        found.append(one)
    return updates, found


def _merged_weight(walk: Walk, weight: Weight, role: Role) -> tuple[Tensor, Tensor]:
    """The update is made and scaled in the adapter's dtype, then cast to the weight's and added.

    Being made before the experts run, it goes backward after them: the gradients of all merged
    weights wait for it.
    """
    tape, adapter = walk.tape, _adapter(walk)
    size, name = float(weight.num_weight_elements), weight.leaf
    product = tape.tensor(size, adapter.dtype, f"{name} update")
    _product(tape, weight, role, adapter)
    scaled = tape.tensor(size, adapter.dtype, f"{name} update, scaled")
    del product
    update = scaled
    if adapter.dtype is not role.dtype:
        update = tape.tensor(size, role.dtype, f"{name} update as {role.dtype}")
    del scaled
    merged = tape.tensor(size, role.dtype, f"{name} with adapter")
    tape.elementwise("merge adapter", _traffic(size, adapter, role.dtype), launches=3.0, kind=_KIND)

    def backward(grad: Tensor) -> tuple[None]:
        if adapter.dtype is not role.dtype:
            grad = tape.tensor(size, adapter.dtype, f"gradient of {name} update")
        scaled = tape.tensor(size, adapter.dtype, f"gradient of {name} update, scaled")
        del grad
        traffic = _traffic(size, adapter, role.dtype)
        tape.elementwise("merge adapter", traffic, launches=3.0, kind=_KIND)
        for _ in range(2):
            _product(tape, weight, role, adapter)
        for elements in role.adapter_parameters(weight, adapter):
            tape.weight_gradient(float(elements), adapter.dtype, f"{name}.lora")
        del scaled
        return (None,)

    return update, tape.link(merged, (update,), (), backward, trains=True)


def _adapter(walk: Walk) -> Adapter:
    adapter = walk.recipe.adapter
    assert adapter is not None  # noqa: S101 - roles promise it
    return adapter


def _product(tape: Tape, weight: Weight, role: Role, adapter: Adapter) -> None:
    tape.matmul(
        f"{weight.leaf}.lora",
        float(weight.shape[0] * weight.out_features),
        weight.in_features,
        adapter.r * role.rank_factor,
        adapter.dtype,
        kind=_KIND,
    )


def _traffic(size: float, adapter: Adapter, dtype: DType) -> float:
    """Scale (read, write), cast (read, write), add (two reads, a write)."""
    return size * (3 * adapter.dtype.num_bytes + 4 * dtype.num_bytes)
