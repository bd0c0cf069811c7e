"""What the optimizer step executes: traffic over the trained parameters, once per step."""

from __future__ import annotations

from typing import Final

from tuneplan.estimation.operations import Operation, OperationKind, Stage
from tuneplan.estimation.persistent import Persistent, shards_of
from tuneplan.spec.parallelism import Offload, Parallelism
from tuneplan.spec.recipe import (
    DType,
    OptimizerFamily,
    OptimizerImplementation,
    TrainingRecipe,
)

# Reads and writes of one element in each list operation of ``_multi_tensor_adamw``
# (torch/optim/adamw.py, 2.1-2.13): decay 2, lerp 3, mul 2, addcmul 3, sqrt 2, divide 2, add 2,
# addcdiv 4.
_FOREACH_ADAMW_ACCESSES: Final = 20
# One pass: parameter and both moments read and written, gradient read.
_FUSED_ADAMW_ACCESSES: Final = 7
_CLIP_ACCESSES: Final = 3  # norm reads each gradient, scaling reads and writes it
_LIST_OPERATIONS: Final = 12  # launches of a foreach step per list of tensors
_TENSORS_PER_LAUNCH: Final = 40  # what one multi-tensor kernel takes (multi_tensor_apply.cuh)


def step_operations(
    held: Persistent, recipe: TrainingRecipe, parallelism: Parallelism
) -> tuple[Operation, ...]:
    """Optimizer, gradient clipping and master copies of one rank's share.

    Nothing for states on the host: that is offload time.
    """
    _, gradient_shards, state_shards = shards_of(parallelism)
    trained = float(held.num_trained)
    if not trained or parallelism.offload is not Offload.NONE:
        return ()
    optimizer = recipe.optimizer
    width = 4 if optimizer.master_weights else optimizer.state_dtype.num_bytes
    own = trained / state_shards
    traffic = own * _bytes_each(recipe, width)
    tensors = max(held.num_trained_tensors, 1)
    lists = max(tensors / _TENSORS_PER_LAUNCH, 1.0)
    launches = {
        OptimizerImplementation.FOREACH: _LIST_OPERATIONS * lists,
        OptimizerImplementation.FUSED: lists,
        OptimizerImplementation.FOR_LOOP: float(_LIST_OPERATIONS * tensors),
    }[optimizer.implementation]
    operations = [_operation(optimizer.name, launches, traffic)]
    if recipe.max_grad_norm:
        size = held.gradient_bytes / gradient_shards
        operations.append(_operation("clip gradients", 4 * lists, _CLIP_ACCESSES * size))
    if optimizer.master_weights:
        copies = own * (4 + recipe.compute_dtype.num_bytes) * 2
        operations.append(_operation("master weights", 2 * lists, copies))
    return tuple(operations)


def _operation(name: str, launches: float, traffic: float) -> Operation:
    return Operation(
        name,
        OperationKind.OPTIMIZER,
        Stage.STEP,
        DType.FLOAT32,
        launches=launches,
        bytes_moved=traffic,
    )


def _bytes_each(recipe: TrainingRecipe, width: int) -> float:
    """HBM bytes per trained parameter of one update."""
    optimizer = recipe.optimizer
    foreach = optimizer.implementation is not OptimizerImplementation.FUSED
    family = optimizer.family
    if family is OptimizerFamily.ADAMW_8BIT:
        return 3.0 * width + 4.0
    if family is OptimizerFamily.LION_8BIT:
        return 3.0 * width + 2.0
    accesses = {
        OptimizerFamily.ADAMW: _FOREACH_ADAMW_ACCESSES if foreach else _FUSED_ADAMW_ACCESSES,
        OptimizerFamily.LION: 12 if foreach else 5,
        OptimizerFamily.SGD: 3,
        OptimizerFamily.SGD_MOMENTUM: 7,
        OptimizerFamily.ADAFACTOR: 16,
        OptimizerFamily.MUON: 30,
    }[family]
    return float(accesses * width)
