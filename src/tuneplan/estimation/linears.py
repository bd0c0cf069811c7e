"""Linears with their low-rank adapters as shadow operations: LoRA, DoRA, fused kernels."""

from __future__ import annotations

from tuneplan.estimation.modules import (
    Walk,
    add,
    base_linear,
    cast,
    dense,
    expanded,
    promote,
    scale,
    share,
)
from tuneplan.estimation.operations import OperationKind
from tuneplan.estimation.roles import Role, role_of
from tuneplan.estimation.shadow import Tensor
from tuneplan.spec.architecture import Weight
from tuneplan.spec.recipe import DType, QuantizationType


def linear(walk: Walk, x: Tensor, weight: Weight) -> Tensor:
    """One linear layer of the model, with its adapter if it has one."""
    role = role_of(weight, walk.recipe, walk.place)
    if role.adapted:
        return _adapted_linear(walk, x, weight, role)
    return base_linear(walk, x, weight, role)


def _adapted_linear(walk: Walk, x: Tensor, weight: Weight, role: Role) -> Tensor:
    """A linear and its low-rank adapter as PEFT runs them.

    Source: peft 0.13-0.21 ``tuners/lora/layer.py Linear.forward``, ``tuners/lora/bnb.py
    Linear4bit.forward`` (clones the base output, casts only outside autocast).
    """
    recipe = walk.recipe
    adapter = recipe.adapter
    assert adapter is not None  # noqa: S101 - roles promise it
    if recipe.kernels.fused_adapter:
        return _fused_adapted_linear(walk, x, weight, role)
    kind = OperationKind.ADAPTER
    result = base_linear(walk, x, weight, role)
    by_bitsandbytes = (
        role.quantized
        and recipe.quantization is not None
        and (recipe.quantization.type is not QuantizationType.GPTQ)
    )
    if by_bitsandbytes and adapter.cast_input:
        result = _clone(walk, result, weight.leaf)
    result_dtype = result.dtype
    if adapter.cast_input and not (by_bitsandbytes and recipe.autocast):
        wanted = DType.FLOAT32 if adapter.fp32_input else adapter.dtype
        x = cast(walk, x, wanted, f"{weight.leaf} adapter input", kind)
    if adapter.lora_dropout > 0:
        x = drop_out(walk, x, f"{weight.leaf} adapter input")
    update = _low_rank(walk, x, weight)
    del x
    if by_bitsandbytes and not recipe.autocast:
        update = cast(walk, update, result_dtype, f"{weight.leaf} adapter output", kind)
    if adapter.use_dora:
        result = _magnitude(walk, result, update, weight)
    else:
        result = add(walk, result, update, f"{weight.leaf} output with adapter", kind)
    del update
    return cast(walk, result, result_dtype, f"{weight.leaf} output", kind)


def _low_rank(walk: Walk, x: Tensor, weight: Weight) -> Tensor:
    """``lora_B(lora_A(x)) * scaling``."""
    recipe, adapter = walk.recipe, walk.recipe.adapter
    assert adapter is not None  # noqa: S101
    operand = recipe.compute_dtype if recipe.autocast else x.dtype
    kind = OperationKind.ADAPTER
    x = cast(walk, x, operand, f"{weight.leaf} adapter input", kind)
    rank = adapter.r
    narrow = dense(
        walk,
        x,
        f"{weight.leaf}.lora_A",
        weight.in_features,
        rank,
        trained=True,
        weight_dtype=adapter.dtype,
        gradient_elements=float(rank * weight.in_features),
        kind=kind,
    )
    del x
    wide = dense(
        walk,
        narrow,
        f"{weight.leaf}.lora_B",
        rank,
        weight.out_features,
        trained=True,
        weight_dtype=adapter.dtype,
        gradient_elements=float(rank * weight.out_features),
        kind=kind,
    )
    del narrow
    return scale(walk, wide, f"{weight.leaf} adapter output", kind)


def _fused_adapted_linear(walk: Walk, x: Tensor, weight: Weight, role: Role) -> Tensor:
    """Base product and adapter in one autograd function.

    Keeps X and, with dropout, the dropped-out X, but no mask (dropout runs inside the function,
    where no graph is recorded); the update is accumulated into the output in place.
    Source: unsloth ``kernels/fast_lora.py`` LoRA_W, LoRA_QKV; fms-acceleration's fused ops.
    """
    recipe, adapter, tape = walk.recipe, walk.recipe.adapter, walk.tape
    assert adapter is not None  # noqa: S101
    name, kind, operand = weight.leaf, OperationKind.ADAPTER, recipe.compute_dtype
    elements, rank = x.elements, adapter.r
    rows = elements / weight.in_features
    if tape.grad:
        tape.saves()
    kept = [x]
    if adapter.lora_dropout > 0:
        kept.append(tape.tensor(elements, x.dtype, f"{name} adapter input, dropped out"))
        tape.elementwise("dropout", 2 * x.size + elements, kind=kind)
    recording = tape.grad
    tape.grad = False
    result = base_linear(walk, share(x), weight, role)
    tape.grad = recording
    narrow = tape.tensor(rows * rank, operand, f"{name} adapter")
    tape.matmul(f"{name}.lora_A", rows, rank, weight.in_features, operand, kind=kind)
    tape.matmul(f"{name}.lora_B", rows, weight.out_features, rank, operand, kind=kind)
    tape.elementwise("add", 3 * result.size, kind=kind)
    del narrow

    def backward(grad: Tensor) -> tuple[Tensor]:
        matrix = expanded(walk, weight) if role.quantized else None
        result = tape.tensor(elements, operand, f"gradient of {name} input")
        tape.matmul(name, rows, weight.in_features, weight.out_features, operand)
        # Gradients of A and B take two thin products each, that of the input two more.
        for _ in range(3):
            tape.matmul(f"{name}.lora", rows, rank, weight.out_features, operand, kind=kind)
            tape.matmul(f"{name}.lora", rows, weight.in_features, rank, operand, kind=kind)
        tape.elementwise("add", 3 * result.size, kind=kind)
        tape.weight_gradient(
            float(rank * (weight.in_features + weight.out_features)), adapter.dtype, name
        )
        del matrix, grad
        return (result,)

    return tape.link(result, (x,), kept, backward, trains=True)


def _clone(walk: Walk, x: Tensor, name: str) -> Tensor:
    tape, elements, dtype = walk.tape, x.elements, x.dtype
    out = tape.tensor(elements, dtype, f"{name} output, cloned")
    tape.elementwise("clone", 2 * x.size, kind=OperationKind.ADAPTER)
    return tape.link(out, (x,), (), lambda grad: (grad,))


def drop_out(walk: Walk, x: Tensor, name: str) -> Tensor:
    """``native_dropout``: keeps a mask of one byte per element."""
    tape, elements, dtype = walk.tape, x.elements, x.dtype
    if tape.grad:
        tape.saves()
    out = tape.tensor(elements, dtype, f"{name}, dropped out")
    mask = tape.tensor(elements, DType.UINT8, f"{name} dropout mask")
    tape.elementwise("dropout", 2 * x.size + elements, kind=OperationKind.ADAPTER)

    def backward(grad: Tensor) -> tuple[Tensor]:
        tape.elementwise("dropout", 2 * grad.size + elements, kind=OperationKind.ADAPTER)
        return (tape.tensor(elements, dtype, f"gradient of {name}"),)

    return tape.link(out, (x,), (mask,), backward)


def _magnitude(walk: Walk, result: Tensor, update: Tensor, weight: Weight) -> Tensor:
    """DoRA: the sum of base and update, rescaled by a trained magnitude per output.

    The norm of ``W + B A`` needs the adapter's product with an identity, the (dequantised) weight
    and their sum: three weight-sized temporaries in the adapter's dtype; base output and update
    are kept for the magnitude's gradient.
    Source: peft 0.13-0.21 ``tuners/lora/dora.py DoraLinearLayer.forward``.
    """
    tape, elements = walk.tape, result.elements
    adapter = walk.recipe.adapter
    assert adapter is not None  # noqa: S101
    size = float(weight.num_weight_elements)
    temporaries = [tape.tensor(size, adapter.dtype, f"{weight.leaf} weight norm") for _ in range(3)]
    tape.matmul(
        f"{weight.leaf} weight norm",
        float(weight.in_features),
        weight.out_features,
        adapter.r,
        adapter.dtype,
        kind=OperationKind.ADAPTER,
    )
    tape.elementwise(
        "weight norm", 8 * size * adapter.dtype.num_bytes, launches=8.0, kind=OperationKind.ADAPTER
    )
    del temporaries
    if tape.grad:
        tape.saves()
    dtype = promote(result.dtype, update.dtype)
    rescaled = tape.tensor(elements, dtype, f"{weight.leaf} DoRA base part")
    scaled = tape.tensor(elements, dtype, f"{weight.leaf} DoRA update part")
    out = tape.tensor(elements, dtype, f"{weight.leaf} output with adapter")
    tape.elementwise("magnitude", 9 * out.size, launches=5.0, kind=OperationKind.ADAPTER)
    del rescaled, scaled

    def backward(grad: Tensor) -> tuple[Tensor, Tensor]:
        product = tape.tensor(elements, dtype, f"gradient of {weight.leaf} magnitude")
        tape.weight_gradient(float(weight.out_features), adapter.dtype, f"{weight.leaf} magnitude")
        tape.elementwise("magnitude", 10 * grad.size, launches=8.0, kind=OperationKind.ADAPTER)
        del product
        one = tape.tensor(elements, dtype, f"gradient of {weight.leaf} base")
        other = tape.tensor(elements, dtype, f"gradient of {weight.leaf} update")
        return one, other

    return tape.link(out, (result, update), (result, update), backward, trains=True)
