"""Adapters on the stacked weights of routed experts.

PEFT adapts a parameter by a parametrisation: in every forward ``W + B A`` is made for all experts,
and its gradient is as large as the weight. Before 0.21 the whole update ``B A`` was made first.
Source: peft 0.17-0.20 ``tuners/lora/layer.py ParamWrapper`` (``get_delta_weight``,
``_LoraParameterProxy``), 0.21 (``get_delta_factors``, ``_LoraFactorsProxy``: one ``baddbmm``).
"""

from __future__ import annotations

from collections.abc import Sequence

from tuneplan.estimation.modules import Walk
from tuneplan.estimation.operations import OperationKind
from tuneplan.estimation.roles import Role
from tuneplan.estimation.shadow import Tape, Tensor
from tuneplan.spec.architecture import Weight
from tuneplan.spec.recipe import Adapter, DType

_KIND = OperationKind.ADAPTER


def merged_weights(
    walk: Walk, roles: Sequence[tuple[Weight, Role]]
) -> tuple[list[Tensor], list[Tensor]]:
    """Of each adapted weight the update, alive until the block's forward is over, and the sum."""
    updates, merged = [], []
    for weight, role in roles:
        if role.adapted:
            update, total = _merged_weight(walk, weight, role)
            updates.append(update)
            merged.append(total)
            del update, total
    return updates, merged


def stacked_gradients(walk: Walk, roles: Sequence[tuple[Weight, Role]]) -> None:
    """The gradients of stacked weights that are trained or adapted."""
    for weight, role in roles:
        if role.adapted:
            _merged_weight_gradient(walk, weight, role)
        elif role.trained:
            dtype = walk.recipe.gradient_dtype or role.dtype
            walk.tape.weight_gradient(float(weight.num_parameters), dtype, weight.name)


def _merged_weight(walk: Walk, weight: Weight, role: Role) -> tuple[Tensor, Tensor]:
    """The update is made and scaled in the adapter's dtype, then cast to the weight's and added."""
    tape, adapter = walk.tape, _adapter(walk)
    size, name = float(weight.num_weight_elements), weight.leaf
    if adapter.folds_update:
        merged = tape.tensor(size, role.dtype, f"{name} with adapter")
        _product(tape, weight, role, adapter)
        return tape.tensor(0.0, role.dtype, f"{name} update"), merged
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
    return update, merged


def _merged_weight_gradient(walk: Walk, weight: Weight, role: Role) -> None:
    """The gradient of the whole weight, cast and scaled, then that of A and B."""
    tape, adapter = walk.tape, _adapter(walk)
    size, name = float(weight.num_weight_elements), weight.leaf
    whole = tape.tensor(size, role.dtype, f"gradient of {name} with adapter")
    if adapter.folds_update:
        _factor_gradients(tape, weight, role, adapter)
        return
    wide = whole
    if adapter.dtype is not role.dtype:
        wide = tape.tensor(size, adapter.dtype, f"gradient of {name} update")
    del whole
    scaled = tape.tensor(size, adapter.dtype, f"gradient of {name} update, scaled")
    del wide
    tape.elementwise("merge adapter", _traffic(size, adapter, role.dtype), launches=3.0, kind=_KIND)
    _factor_gradients(tape, weight, role, adapter)
    del scaled


def _factor_gradients(tape: Tape, weight: Weight, role: Role, adapter: Adapter) -> None:
    for _ in range(2):
        _product(tape, weight, role, adapter)
    for elements in role.adapter_parameters(weight, adapter):
        tape.weight_gradient(float(elements), adapter.dtype, f"{weight.leaf}.lora")


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
