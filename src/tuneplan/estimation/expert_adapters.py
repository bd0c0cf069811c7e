"""Adapters on the stacked weights of routed experts.

PEFT adapts a parameter by a parametrisation: in every forward the product runs over ``W + B A`` of
all experts, whose gradient is as large as the weight. Since 0.21 one kernel adds ``B A`` to a copy
of the weight (``baddbmm``); before, the whole update was made first. PyTorch runs each
parametrisation once more when it is registered, which PEFT does in every forward.
Source: peft 0.17-0.21 ``tuners/lora/layer.py ParamWrapper`` (``get_delta_weight``,
``_LoraParameterProxy``, ``_LoraFactorsProxy``); torch ``nn/utils/parametrize.py
ParametrizationList``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tuneplan.estimation.modules import Walk
from tuneplan.estimation.operations import OperationKind
from tuneplan.estimation.roles import Role
from tuneplan.estimation.shadow import Tensor
from tuneplan.spec.recipe import Adapter, DType
from tuneplan.spec.weights import Weight

_KIND = OperationKind.ADAPTER


class Stacked(NamedTuple):
    """A stacked weight of routed experts, its role and, before PEFT 0.21, its update."""

    weight: Weight
    role: Role
    update: Tensor | None = None


def with_updates(walk: Walk, stacked: Sequence[Stacked]) -> list[Stacked]:
    """The weights with their updates, alive until the block's forward is over."""
    return [
        one._replace(update=_update(walk, one.weight, one.role))
        if one.role.adapted and not _adapter(walk).folds_update
        else one
        for one in stacked
    ]


def merged_weight(walk: Walk, one: Stacked) -> Tensor | None:
    """What the product over an adapted weight uses, alive until the block's forward is over."""
    if not one.role.adapted:
        return None
    if one.update is None:
        return _folded(walk, one.weight, one.role)
    tape, dtype = walk.tape, one.role.dtype
    merged = tape.tensor(one.update.elements, dtype, f"{one.weight.leaf} with adapter")
    for _ in range(2):
        tape.elementwise("merge adapter", 3 * merged.size, kind=_KIND)
    return tape.link(merged, (one.update,), (), lambda grad: (grad,))


def _folded(walk: Walk, weight: Weight, role: Role) -> Tensor:
    """``baddbmm`` in the weight's dtype: keeps A and B in it; their gradients are as small."""
    tape, adapter = walk.tape, _adapter(walk)
    size, name = float(weight.num_weight_elements), weight.leaf
    parameters = role.adapter_parameters(weight, adapter)
    kept = []
    if adapter.dtype is not role.dtype:
        kept.append(tape.tensor(float(sum(parameters)), role.dtype, f"{name}.lora as {role.dtype}"))
    merged = tape.tensor(size, role.dtype, f"{name} with adapter")
    for _ in range(2):
        tape.elementwise("merge adapter", 3 * merged.size, kind=_KIND)
        _product(walk, weight, role, role.dtype)

    def backward(grad: Tensor) -> tuple[None]:
        for elements in parameters:
            half = tape.tensor(float(elements), role.dtype, f"gradient of {name}.lora")
            _product(walk, weight, role, role.dtype)
            tape.weight_gradient(float(elements), adapter.dtype, f"{name}.lora")
            del half
        del grad
        return (None,)

    return tape.link(merged, (merged,), kept, backward, trains=True)


def _update(walk: Walk, weight: Weight, role: Role) -> Tensor:
    """``B A`` made and scaled in the adapter's dtype (autocast's, where on), cast to the weight's.

    Being made before the experts run, it goes backward after them: the gradients of all merged
    weights wait for it.
    """
    tape, adapter = walk.tape, _adapter(walk)
    size, name = float(weight.num_weight_elements), weight.leaf
    dtype = walk.recipe.compute_dtype if walk.recipe.autocast else adapter.dtype
    traffic = size * (3 * dtype.num_bytes + role.dtype.num_bytes)
    product = tape.tensor(size, dtype, f"{name} update")
    _product(walk, weight, role, dtype)
    update = tape.tensor(size, dtype, f"{name} update, scaled")
    del product
    if dtype is not role.dtype:
        narrow = tape.tensor(size, role.dtype, f"{name} update as {role.dtype}")
        del update
        update = narrow
        del narrow
    tape.elementwise("scale update", traffic, launches=2.0, kind=_KIND)

    def backward(grad: Tensor) -> tuple[None]:
        if dtype is not role.dtype:
            grad = tape.tensor(size, dtype, f"gradient of {name} update")
        scaled = tape.tensor(size, dtype, f"gradient of {name} update, scaled")
        del grad
        tape.elementwise("scale update", traffic, launches=2.0, kind=_KIND)
        for elements in role.adapter_parameters(weight, adapter):
            _product(walk, weight, role, dtype)
            tape.weight_gradient(float(elements), adapter.dtype, f"{name}.lora")
        del scaled
        return (None,)

    return tape.link(update, (update,), (), backward, trains=True)


def _adapter(walk: Walk) -> Adapter:
    adapter = walk.recipe.adapter
    assert adapter is not None  # noqa: S101 - roles promise it
    return adapter


def _product(walk: Walk, weight: Weight, role: Role, dtype: DType) -> None:
    walk.tape.matmul(
        f"{weight.leaf}.lora",
        float(weight.shape[0] * weight.out_features),
        weight.in_features,
        _adapter(walk).r * role.rank_factor,
        dtype,
        kind=_KIND,
    )
