"""Linears, adapters, norms, activations, rotary positions: as shadow operations.

Each function is the memory of one piece of framework code: what it allocates, what autograd keeps,
what backward allocates. Sources are named at each function; PyTorch's own rules are those of
``derivatives.yaml`` (torch 2.4 to 2.13).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuneplan.estimation.operations import Number, OperationKind
from tuneplan.estimation.roles import Place, Role, role_of
from tuneplan.estimation.shadow import Tape, Tensor
from tuneplan.spec.architecture import Weight
from tuneplan.spec.recipe import DType, QuantizationType, TrainingRecipe


@dataclass(slots=True)
class Walk:
    """What every module needs to know while it runs.

    Attributes:
        tokens: Positions of one micro-batch on this rank (padding included).
        sequences: Independent sequences of ``length`` tokens; their product is ``tokens``.
    """

    tape: Tape
    recipe: TrainingRecipe
    tokens: Number
    sequences: Number
    length: Number
    place: Place = Place.LAYER


def promote(one: DType, other: DType) -> DType:
    """PyTorch's type promotion between floating dtypes."""
    if one is other:
        return one
    if DType.FLOAT32 in (one, other):
        return DType.FLOAT32
    return DType.FLOAT32 if one.num_bytes == other.num_bytes else max(one, other, key=_width)


def _width(dtype: DType) -> int:
    return dtype.num_bytes


def share(tensor: Tensor) -> Tensor:
    """A second name for the same storage (a view)."""
    return Tensor(tensor.storage, tensor.elements, tensor.dtype, tensor.node)


def split(walk: Walk, fused: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """Views of one tensor along its features; backward joins their gradients in a new tensor."""
    tape, elements, dtype = walk.tape, fused.elements, fused.dtype
    held: list[Tensor] = []

    def backward(grad: Tensor) -> tuple[Tensor | None]:
        held.append(grad)
        del grad
        if len(held) < len(sizes):
            return (None,)
        joined = tape.tensor(elements, dtype, "gradients, joined")
        tape.elementwise("join gradients", 2 * joined.size)
        held.clear()
        return (joined,)

    return [
        tape.link(Tensor(fused.storage, walk.tokens * size, dtype), (fused,), (), backward)
        for size in sizes
    ]


def cast(
    walk: Walk,
    x: Tensor,
    dtype: DType,
    name: str,
    kind: OperationKind = OperationKind.ELEMENTWISE,
) -> Tensor:
    """``x.to(dtype)``: nothing if it has that dtype already, else a copy."""
    if x.dtype is dtype:
        return x
    tape, source, elements = walk.tape, x.dtype, x.elements
    traffic = elements * (source.num_bytes + dtype.num_bytes)
    out = tape.tensor(elements, dtype, f"{name} as {dtype}")
    tape.elementwise("cast", traffic, kind=kind)

    def backward(grad: Tensor) -> tuple[Tensor]:
        del grad
        tape.elementwise("cast", traffic, kind=kind)
        return (tape.tensor(elements, source, f"gradient of {name}"),)

    return tape.link(out, (x,), (), backward)


def add(
    walk: Walk,
    x: Tensor,
    y: Tensor,
    name: str,
    kind: OperationKind = OperationKind.ELEMENTWISE,
) -> Tensor:
    """``x + y`` into a new tensor; backward hands the gradient on, cast where dtypes differ."""
    tape = walk.tape
    dtype = promote(x.dtype, y.dtype)
    kinds = (x.dtype, y.dtype)
    elements = x.elements
    out = tape.tensor(elements, dtype, name)
    tape.elementwise("add", x.size + y.size + out.size, kind=kind)

    def backward(grad: Tensor) -> tuple[Tensor, ...]:
        grads = []
        for source in kinds:
            if source is grad.dtype:
                grads.append(Tensor(grad.storage, elements, source))
            else:
                tape.elementwise("cast", elements * (grad.dtype.num_bytes + source.num_bytes))
                grads.append(tape.tensor(elements, source, f"gradient of {name}"))
        return tuple(grads)

    return tape.link(out, (x, y), (), backward)


def linear(walk: Walk, x: Tensor, weight: Weight) -> Tensor:
    """One linear layer of the model, with its adapter if it has one."""
    role = role_of(weight, walk.recipe, walk.place)
    if role.adapted:
        return _adapted_linear(walk, x, weight, role)
    return _base_linear(walk, x, weight, role)


def _base_linear(walk: Walk, x: Tensor, weight: Weight, role: Role) -> Tensor:
    if role.quantized:
        return _quantized_linear(walk, x, weight)
    recipe = walk.recipe
    operand = recipe.compute_dtype if recipe.autocast else role.dtype
    x = cast(walk, x, operand, f"{weight.leaf} input")
    return dense(
        walk,
        x,
        weight.leaf,
        weight.in_features,
        weight.out_features,
        trained=role.trained or role.copied,
        weight_dtype=role.dtype,
        gradient_elements=weight.num_parameters,
    )


def dense(
    walk: Walk,
    x: Tensor,
    name: str,
    in_features: int,
    out_features: int,
    *,
    trained: bool,
    weight_dtype: DType,
    gradient_elements: float,
    kind: OperationKind = OperationKind.MATMUL,
) -> Tensor:
    """``F.linear``: keeps its input where the weight is trained, and a weight's cast copy.

    Under autocast a weight of another dtype is copied to the compute dtype; the copy lives as long
    as the graph that needs it for the input gradient.
    """
    tape, operand = walk.tape, x.dtype
    rows = x.elements / in_features
    wanted = x.node is not None
    if tape.grad and (trained or wanted):
        tape.saves()
    saved = [x] if trained else []
    if weight_dtype is not operand:
        copy = tape.tensor(
            float(in_features * out_features), operand, f"{name} weight as {operand}"
        )
        tape.elementwise(
            "cast weight", copy.elements * (weight_dtype.num_bytes + operand.num_bytes)
        )
        saved.append(copy)
        del copy
    out = tape.tensor(rows * out_features, operand, f"{name} output")
    tape.matmul(name, rows, out_features, in_features, operand, kind=kind)
    gradient_dtype = walk.recipe.gradient_dtype or weight_dtype

    def backward(grad: Tensor) -> tuple[Tensor | None]:
        result = None
        if wanted:
            result = tape.tensor(rows * in_features, operand, f"gradient of {name} input")
            tape.matmul(name, rows, in_features, out_features, operand, kind=kind)
        if trained:
            tape.matmul(f"{name} weight", out_features, in_features, rows, operand, kind=kind)
            if gradient_dtype is not operand:
                half = tape.tensor(gradient_elements, operand, f"gradient of {name} as {operand}")
                tape.weight_gradient(gradient_elements, gradient_dtype, name)
                del half
            else:
                tape.weight_gradient(gradient_elements, gradient_dtype, name)
        del grad
        return (result,)

    return tape.link(out, (x,), saved, backward, trains=trained)


def _quantized_linear(walk: Walk, x: Tensor, weight: Weight) -> Tensor:
    """A linear over 4-bit (or GPTQ) weights: expanded to half precision for every product.

    Source: bitsandbytes 0.43.3-0.50 ``autograd/_functions.py MatMul4Bit``, ``nn/modules.py
    Linear4bit.forward`` (casts in, casts out), ``functional.py dequantize_4bit``. Up to 0.43.1 the
    input was kept for backward (commit 9e753741).
    """
    recipe, tape = walk.recipe, walk.tape
    quantization = recipe.quantization
    assert quantization is not None  # noqa: S101 - roles promise it
    compute, source = recipe.compute_dtype, x.dtype
    x = cast(walk, x, compute, f"{weight.leaf} input")
    name, rows = weight.leaf, x.elements / weight.in_features
    if tape.grad:
        tape.saves()
    temporaries = _expanded(walk, weight)
    out = tape.tensor(rows * weight.out_features, compute, f"{name} output")
    tape.matmul(name, rows, weight.out_features, weight.in_features, compute)
    del temporaries

    def backward(grad: Tensor) -> tuple[Tensor]:
        result = tape.tensor(rows * weight.in_features, compute, f"gradient of {name} input")
        temporaries = _expanded(walk, weight)
        tape.matmul(name, rows, weight.in_features, weight.out_features, compute)
        del temporaries, grad
        return (result,)

    saved = [x] if quantization.keeps_inputs else []
    out = tape.link(out, (x,), saved, backward)
    del x, saved
    return cast(walk, out, source, f"{name} output")


def _expanded(walk: Walk, weight: Weight) -> list[Tensor]:
    """A quantised matrix in half precision, for one product.

    With double quantisation its scales too; a second copy where the compute dtype is not the one
    it was quantised from.
    """
    recipe, tape, name = walk.recipe, walk.tape, weight.leaf
    quantization, compute = recipe.quantization, recipe.compute_dtype
    assert quantization is not None  # noqa: S101 - roles promise it
    elements = float(weight.num_weight_elements)
    half = tape.tensor(elements, quantization.dequantized_dtype, f"{name} dequantised")
    temporaries = [half]
    if half.dtype is not compute:
        temporaries.append(tape.tensor(elements, compute, f"{name} dequantised, cast"))
        tape.elementwise("cast", elements * (half.dtype.num_bytes + compute.num_bytes))
    if quantization.double_quant:
        temporaries.append(
            tape.tensor(elements / quantization.block_size, DType.FLOAT32, f"{name} scales")
        )
    stored = elements * (0.5 if quantization.bits == 4 else 1.0)
    tape.elementwise(
        name,
        stored + half.size,
        kind=OperationKind.DEQUANTIZE,
        launches=3.0 if quantization.double_quant else 1.0,
    )
    return temporaries


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
    result = _base_linear(walk, x, weight, role)
    by_bitsandbytes = (
        role.quantized
        and recipe.quantization is not None
        and (recipe.quantization.type is not QuantizationType.GPTQ)
    )
    if by_bitsandbytes and adapter.cast_input:
        result = _clone(walk, result, weight.leaf)
    result_dtype = result.dtype
    if adapter.cast_input and not (by_bitsandbytes and recipe.autocast):
        x = cast(walk, x, adapter.dtype, f"{weight.leaf} adapter input", kind)
    if adapter.lora_dropout > 0:
        x = _dropout(walk, x, f"{weight.leaf} adapter input")
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
    return _scale(walk, wide, f"{weight.leaf} adapter output")


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
    result = _base_linear(walk, share(x), weight, role)
    tape.grad = recording
    narrow = tape.tensor(rows * rank, operand, f"{name} adapter")
    tape.matmul(f"{name}.lora_A", rows, rank, weight.in_features, operand, kind=kind)
    tape.matmul(f"{name}.lora_B", rows, weight.out_features, rank, operand, kind=kind)
    del narrow

    def backward(grad: Tensor) -> tuple[Tensor]:
        expanded = _expanded(walk, weight) if role.quantized else None
        result = tape.tensor(elements, operand, f"gradient of {name} input")
        tape.matmul(name, rows, weight.in_features, weight.out_features, operand)
        for _ in range(2):
            tape.matmul(f"{name}.lora", rows, rank, weight.out_features, operand, kind=kind)
            tape.matmul(f"{name}.lora", rows, weight.in_features, rank, operand, kind=kind)
        tape.weight_gradient(
            float(rank * (weight.in_features + weight.out_features)), adapter.dtype, name
        )
        del expanded, grad
        return (result,)

    return tape.link(result, (x,), kept, backward, trains=True)


def _clone(walk: Walk, x: Tensor, name: str) -> Tensor:
    tape, elements, dtype = walk.tape, x.elements, x.dtype
    out = tape.tensor(elements, dtype, f"{name} output, cloned")
    tape.elementwise("clone", 2 * x.size, kind=OperationKind.ADAPTER)
    return tape.link(out, (x,), (), lambda grad: (grad,))


def _scale(walk: Walk, x: Tensor, name: str) -> Tensor:
    tape, elements, dtype = walk.tape, x.elements, x.dtype
    out = tape.tensor(elements, dtype, f"{name}, scaled")
    tape.elementwise("scale", 2 * x.size, kind=OperationKind.ADAPTER)

    def backward(grad: Tensor) -> tuple[Tensor]:
        tape.elementwise("scale", 2 * grad.size, kind=OperationKind.ADAPTER)
        return (tape.tensor(elements, dtype, f"gradient of {name}"),)

    return tape.link(out, (x,), (), backward)


def _dropout(walk: Walk, x: Tensor, name: str) -> Tensor:
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
