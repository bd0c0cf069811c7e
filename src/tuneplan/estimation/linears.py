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
from tuneplan.spec.recipe import DType, QuantizationType
from tuneplan.spec.weights import Weight


def linear(walk: Walk, x: Tensor, weight: Weight, *, keeps_input: bool = True) -> Tensor:
    """One linear layer of the model, with its adapter if it has one.

    ``keeps_input`` is False where a fused kernel makes the adapter's input again in its backward.
    """
    role = role_of(weight, walk.recipe, walk.place)
    if role.adapted:
        return _adapted_linear(walk, x, weight, role, keeps_input=keeps_input)
    return base_linear(walk, x, weight, role)


def _adapted_linear(
    walk: Walk, x: Tensor, weight: Weight, role: Role, *, keeps_input: bool
) -> Tensor:
    """A linear and its low-rank adapter as PEFT runs them.

    Source: peft 0.13-0.21 ``tuners/lora/layer.py Linear.forward``, ``tuners/lora/bnb.py
    Linear4bit.forward`` (clones the base output, casts only outside autocast).
    """
    recipe = walk.recipe
    adapter = recipe.adapter
    assert adapter is not None  # noqa: S101 - roles promise it
    if recipe.kernels.fused_adapter:
        return _fused_adapted_linear(walk, x, weight, role, keeps_input=keeps_input)
    kind = OperationKind.ADAPTER
    result = base_linear(walk, x, weight, role)
    by_bitsandbytes = (
        role.quantized
        and recipe.quantization is not None
        and (recipe.quantization.type is not QuantizationType.GPTQ)
    )
    four_bit = recipe.quantization is not None and recipe.quantization.bits == 4
    if by_bitsandbytes and four_bit and adapter.cast_input:
        result = _clone(walk, result, weight.leaf)
    result_dtype = result.dtype
    if adapter.cast_input and not (by_bitsandbytes and recipe.autocast):
        wanted = DType.FLOAT32 if adapter.fp32_input else adapter.dtype
        x = cast(walk, x, wanted, f"{weight.leaf} adapter input", kind)
    dropped = x
    if adapter.lora_dropout > 0:
        dropped = drop_out(walk, x, f"{weight.leaf} adapter input")
    if adapter.use_dora:
        update = _magnitude(walk, dropped, result, weight, role)
        result = add(walk, result, update, f"{weight.leaf} output with adapter", kind)
        del update, dropped, x
        return cast(walk, result, result_dtype, f"{weight.leaf} output", kind)
    update = _low_rank(walk, dropped, weight)
    del dropped
    if by_bitsandbytes and not recipe.autocast:
        update = cast(walk, update, result_dtype, f"{weight.leaf} adapter output", kind)
    result = add(walk, result, update, f"{weight.leaf} output with adapter", kind)
    del update, x  # the layer's forward names its cast input until here
    return cast(walk, result, result_dtype, f"{weight.leaf} output", kind)


def _low_rank(walk: Walk, x: Tensor, weight: Weight) -> Tensor:
    """``lora_B(lora_A(x)) * scaling``."""
    wide = _unscaled(walk, x, weight)
    del x
    return scale(walk, wide, f"{weight.leaf} adapter output", OperationKind.ADAPTER)


def _unscaled(walk: Walk, x: Tensor, weight: Weight) -> Tensor:
    """``lora_B(lora_A(x))``."""
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
    return dense(
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


def _fused_adapted_linear(
    walk: Walk, x: Tensor, weight: Weight, role: Role, *, keeps_input: bool
) -> Tensor:
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
    kept = [x] if keeps_input else []
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


def _magnitude(walk: Walk, x: Tensor, result: Tensor, weight: Weight, role: Role) -> Tensor:
    """DoRA: what is added to the base output, base and update rescaled by a trained magnitude.

    The norm of ``W + B A`` is made of matrices: the adapter's product with an identity (in x in),
    the weight and their sum in the input's dtype. With dropout the base product runs again on the
    dropped-out input, and the graph keeps the weight's half copy where autocast made one.
    Source: peft 0.21.2 ``tuners/lora/dora.py DoraLinearLayer.forward, get_lora_weight``,
    ``tuners/lora/variants.py DoraLinearVariant.forward``.
    """
    adapter, name = walk.recipe.adapter, weight.leaf
    assert adapter is not None  # noqa: S101 - roles promise it
    matrices = _matrices_of_norm(walk, x.dtype, weight, role)
    update = _unscaled(walk, x, weight)
    base = _base_again(walk, x, weight) if adapter.lora_dropout > 0 else share(result)
    del result, x
    base = _rescale(walk, base, f"{name} base")
    update = _rescale(walk, update, f"{name} update")
    update = scale(walk, update, f"{name} adapter output", OperationKind.ADAPTER)
    del matrices
    walk.tape.elementwise("magnitude", 0.0, launches=1.0, kind=OperationKind.ADAPTER)
    return add(walk, base, update, f"{name} DoRA output", OperationKind.ADAPTER)


def _matrices_of_norm(walk: Walk, dtype: DType, weight: Weight, role: Role) -> list[Tensor]:
    """The matrices behind the norm of ``W + B A``; those that the rest of the forward holds.

    The product's graph, which no gradient reaches, holds its operand: the identity.
    """
    tape, recipe, adapter, name = walk.tape, walk.recipe, walk.recipe.adapter, weight.leaf
    assert adapter is not None  # noqa: S101 - roles promise it
    operand = recipe.compute_dtype if recipe.autocast else adapter.dtype
    inputs, outputs = float(weight.in_features), float(weight.out_features)
    size = inputs * outputs
    identity = tape.tensor(inputs * inputs, adapter.dtype, f"{name} identity")
    held = [identity]
    if operand is not adapter.dtype:
        held = [tape.tensor(inputs * inputs, operand, f"{name} identity as {operand}")]
    if not tape.grad:
        held.clear()
    product = tape.tensor(size, operand, f"{name} adapter's product with the identity")
    del identity
    if operand is not dtype:
        product = tape.tensor(size, dtype, f"{name} adapter's product as {dtype}")
    held.append(product)
    del product
    if role.quantized:
        held.extend(expanded(walk, weight)[:1])
    elif role.dtype is not dtype:
        held.append(tape.tensor(size, dtype, f"{name} weight as {dtype}"))
    scaled = tape.tensor(size, dtype, f"{name} adapter's product, scaled")
    total = tape.tensor(size, dtype, f"{name} weight with adapter")
    del scaled, total
    kind, rank = OperationKind.ADAPTER, adapter.r
    tape.matmul(f"{name} weight norm", inputs, rank, inputs, operand, kind=kind)
    tape.matmul(f"{name} weight norm", inputs, outputs, rank, operand, kind=kind)
    traffic = (8 * size + 2 * inputs * inputs) * dtype.num_bytes
    tape.elementwise("weight norm", traffic, launches=8.0, kind=kind)
    return held


def _base_again(walk: Walk, x: Tensor, weight: Weight) -> Tensor:
    """The base product of the dropped-out input with the weight in the input's dtype."""
    source = x.dtype
    operand = walk.recipe.compute_dtype if walk.recipe.autocast else source
    x = cast(walk, x, operand, f"{weight.leaf} dropped-out input")
    return dense(
        walk,
        x,
        f"{weight.leaf} again",
        weight.in_features,
        weight.out_features,
        trained=False,
        weight_dtype=source,
        gradient_elements=0.0,
    )


def _rescale(walk: Walk, x: Tensor, name: str) -> Tensor:
    """``magnitude / norm * x``: keeps x; the gradient is made in the product's dtype, then cast."""
    tape, elements, source, adapter = walk.tape, x.elements, x.dtype, walk.recipe.adapter
    assert adapter is not None  # noqa: S101 - roles promise it
    if tape.grad:
        tape.saves()
    dtype = promote(source, adapter.dtype)
    out = tape.tensor(elements, dtype, f"{name}, rescaled")
    kind = OperationKind.ADAPTER
    tape.elementwise("magnitude", x.size + out.size, kind=kind)

    def backward(grad: Tensor) -> tuple[Tensor]:
        product = tape.tensor(elements, dtype, f"gradient of {name} magnitude")
        tape.elementwise("magnitude", 6 * grad.size, launches=4.0, kind=kind)
        del product
        result = tape.tensor(elements, dtype, f"gradient of {name}, rescaled")
        if source is not dtype:
            result = tape.tensor(elements, source, f"gradient of {name}")
        return (result,)

    return tape.link(out, (x,), (x,), backward, trains=True)
