"""Casts, sums, views and matrix products as shadow operations.

Each function is the memory of one piece of framework code: what it allocates, what autograd keeps,
what backward allocates. Sources are named at each function; PyTorch's own rules are those of
``derivatives.yaml`` (torch 2.4 to 2.13).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tuneplan.estimation.operations import Number, OperationKind
from tuneplan.estimation.roles import Place, Role
from tuneplan.estimation.shadow import Tape, Tensor
from tuneplan.frozen import dataclass
from tuneplan.spec.recipe import DType, QuantizationType, TrainingRecipe
from tuneplan.spec.weights import Weight

# Two broadcast kernels that expand AutoGPTQ's weights: two operands and a result each.
_BROADCASTS: Final = 2
_ACCESSES_OF_A_BROADCAST: Final = 3
# The rate of strided kernels was read off accesses of two bytes; one byte takes as long.
_BYTES_OF_AN_ACCESS: Final = 2


@dataclass(slots=True)
class Walk:
    """What every module needs to know while it runs.

    Attributes:
        tokens: Positions of one micro-batch on this rank (padding included).
        sequences: Independent sequences of ``length`` tokens; their product is ``tokens``.
        chunked: Linears run over chunks of tokens: a second weight gradient stands beside the
            first one while they are summed.
        returned: What the meter said when the model returned, where the loss comes after.
        sequence_ranks: Ranks that share the positions between blocks (``sequence_parallel``).
    """

    tape: Tape
    recipe: TrainingRecipe
    tokens: Number
    sequences: Number
    length: Number
    place: Place = Place.LAYER
    chunked: bool = False
    returned: tuple[Number, tuple[tuple[str, float], ...]] | None = None
    sequence_ranks: int = 1


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


def split(
    walk: Walk, fused: Tensor, sizes: Sequence[int], rows: Number | None = None
) -> list[Tensor]:
    """Views of one tensor along its features; backward joins their gradients in a new tensor.

    The tensor has one row a token unless ``rows`` says otherwise.
    """
    tape, elements, dtype = walk.tape, fused.elements, fused.dtype
    rows = walk.tokens if rows is None else rows
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
        tape.link(Tensor(fused.storage, rows * size, dtype), (fused,), (), backward)
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
    fused = walk.recipe.kernels.compiled  # part of the kernel before or after it
    traffic = 0.0 if fused else elements * (source.num_bytes + dtype.num_bytes)
    launches = 0.0 if fused else 1.0
    out = tape.tensor(elements, dtype, f"{name} as {dtype}")
    tape.elementwise("cast", traffic, kind=kind, casting=traffic, launches=launches)

    def backward(grad: Tensor) -> tuple[Tensor]:
        del grad
        tape.elementwise("cast", traffic, kind=kind, casting=traffic, launches=launches)
        return (tape.tensor(elements, source, f"gradient of {name}"),)

    return tape.link(out, (x,), (), backward)


def scale(
    walk: Walk, x: Tensor, name: str, kind: OperationKind = OperationKind.ELEMENTWISE
) -> Tensor:
    """``x * number``: a new tensor forward and backward, nothing kept."""
    tape, elements, dtype = walk.tape, x.elements, x.dtype
    out = tape.tensor(elements, dtype, f"{name}, scaled")
    moved = 0 if walk.recipe.kernels.compiled else 2  # compiled: part of the kernel after it
    tape.elementwise("scale", moved * x.size, kind=kind, launches=moved / 2)

    def backward(grad: Tensor) -> tuple[Tensor]:
        tape.elementwise("scale", moved * grad.size, kind=kind, launches=moved / 2)
        return (tape.tensor(elements, dtype, f"gradient of {name}"),)

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
    traffic = x.size + y.size + out.size
    mixed = traffic if x.dtype is not y.dtype else 0.0
    tape.elementwise("add", traffic, kind=kind, casting=mixed)

    def backward(grad: Tensor) -> tuple[Tensor, ...]:
        grads = []
        for source in kinds:
            if source is grad.dtype:
                grads.append(Tensor(grad.storage, elements, source, is_view=grad.is_view))
            else:
                traffic = elements * (grad.dtype.num_bytes + source.num_bytes)
                tape.elementwise("cast", traffic, casting=traffic)
                grads.append(tape.tensor(elements, source, f"gradient of {name}"))
        return tuple(grads)

    return tape.link(out, (x, y), (), backward)


def base_linear(walk: Walk, x: Tensor, weight: Weight, role: Role) -> Tensor:
    """A linear without its adapter: dense or quantised."""
    if role.quantized:
        return _quantized_linear(walk, x, weight)
    recipe = walk.recipe
    operand = recipe.compute_dtype if recipe.autocast else role.used_dtype
    x = cast(walk, x, operand, f"{weight.leaf} input")
    return dense(
        walk,
        x,
        weight.leaf,
        weight.in_features,
        weight.out_features,
        trained=role.trained or role.copied,
        weight_dtype=role.used_dtype,
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
        traffic = copy.elements * (weight_dtype.num_bytes + operand.num_bytes)
        tape.elementwise("cast weight", traffic, casting=traffic)
        saved.append(copy)
        del copy
    out = tape.tensor(rows * out_features, operand, f"{name} output")
    tape.matmul(name, rows, out_features, in_features, operand, kind=kind)
    gradient_dtype = walk.recipe.gradient_dtype or weight_dtype
    chunked = walk.chunked

    def backward(grad: Tensor) -> tuple[Tensor | None]:
        result = None
        if wanted:
            result = tape.tensor(rows * in_features, operand, f"gradient of {name} input")
            result.is_view = True  # tokens x features, seen as batch x length x features
            tape.matmul(name, rows, in_features, out_features, operand, kind=kind)
        if trained:
            tape.matmul(f"{name} weight", out_features, in_features, rows, operand, kind=kind)
            addend = None
            if chunked:
                addend = tape.tensor(gradient_elements, operand, f"gradient of {name}, one chunk")
            if gradient_dtype is not operand:
                half = tape.tensor(gradient_elements, operand, f"gradient of {name} as {operand}")
                traffic = gradient_elements * (operand.num_bytes + gradient_dtype.num_bytes)
                tape.elementwise("cast gradient", traffic, casting=traffic)
                tape.weight_gradient(gradient_elements, gradient_dtype, name)
                del half
            else:
                tape.weight_gradient(gradient_elements, gradient_dtype, name)
            del addend
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
    if quantization.type is QuantizationType.INT8:
        return _int8_linear(walk, x, weight)
    compute, source = recipe.compute_dtype, x.dtype
    x = cast(walk, x, compute, f"{weight.leaf} input")
    name, rows = weight.leaf, x.elements / weight.in_features
    if tape.grad:
        tape.saves()
    temporaries = expanded(walk, weight)
    out = tape.tensor(rows * weight.out_features, compute, f"{name} output")
    tape.matmul(name, rows, weight.out_features, weight.in_features, compute)
    kept = temporaries[:1]
    del temporaries
    if quantization.one_kernel:
        kept.clear()

    def backward(grad: Tensor) -> tuple[Tensor]:
        result = tape.tensor(rows * weight.in_features, compute, f"gradient of {name} input")
        temporaries = expanded(walk, weight) if quantization.one_kernel else []
        tape.matmul(name, rows, weight.in_features, weight.out_features, compute)
        del temporaries, grad
        return (result,)

    if quantization.keeps_inputs and (x.node is not None or not tape.grad):
        tape.keep_attribute(x)  # ``ctx.needs_input_grad``; a checkpointed forward asks later
    out = tape.link(out, (x,), kept, backward)
    del x, kept
    return cast(walk, out, source, f"{name} output")


def _int8_linear(walk: Walk, x: Tensor, weight: Weight) -> Tensor:
    """A linear over int8 weights: its input is quantised by row, the product made in int32.

    Forward: an fp16 copy of the input (for its bytes and the mask of outliers), the product in
    int32 and in fp16, the output in the input's dtype. The input stays an attribute of the graph's
    node in every version. Backward: the weight in the gradient's dtype, scaled in place.
    Source: bitsandbytes 0.43-0.50 ``autograd/_functions.py MatMul8bitLt``, ``backends/cuda/ops.py
    int8_vectorwise_quant, int8_scaled_mm``.
    """
    tape, name, source, elements = walk.tape, weight.leaf, x.dtype, x.elements
    rows = elements / weight.in_features
    size = rows * weight.out_features
    half = DType.FLOAT16
    if tape.grad:
        tape.saves()
    copies = [tape.tensor(elements, half, f"{name} input as {half}")]
    if source is half:
        copies.clear()
    stored = tape.tensor(elements, DType.INT8, f"{name} input in int8")
    copies.append(tape.tensor(elements, half, f"{name} input without sign"))
    copies.append(tape.tensor(elements, DType.INT8, f"{name} outliers"))
    del copies
    wide = tape.tensor(size, DType.FLOAT32, f"{name} output in int32")
    out = tape.tensor(size, half, f"{name} output as {half}")
    tape.elementwise(f"{name} input", elements * (2 * source.num_bytes + 8), launches=3.0)
    tape.matmul(name, rows, weight.out_features, weight.in_features, walk.recipe.compute_dtype)
    tape.elementwise(f"{name} output", size * (6 + 2 + source.num_bytes), launches=2.0)
    if source is not half:
        out = tape.tensor(size, source, f"{name} output")
    del stored, wide
    matrix = float(weight.num_weight_elements)

    def backward(grad: Tensor) -> tuple[Tensor]:
        expanded = tape.tensor(matrix, source, f"{name} dequantised")
        traffic = matrix * (1 + 3 * source.num_bytes)
        tape.elementwise(
            name, traffic, kind=OperationKind.DEQUANTIZE, launches=2.0, strided=traffic
        )
        result = tape.tensor(elements, source, f"gradient of {name} input")
        tape.matmul(name, rows, weight.in_features, weight.out_features, source)
        del expanded, grad
        return (result,)

    if x.node is not None or not tape.grad:
        tape.keep_attribute(x)
    return tape.link(out, (x,), (), backward)


def expanded(walk: Walk, weight: Weight) -> list[Tensor]:
    """A quantised matrix in half precision, for one product.

    With double quantisation its scales too; a second copy where the compute dtype is not the one
    it was quantised from.
    """
    recipe, tape, name = walk.recipe, walk.tape, weight.leaf
    quantization, compute = recipe.quantization, recipe.compute_dtype
    assert quantization is not None  # noqa: S101 - roles promise it
    elements = float(weight.num_weight_elements)
    stored = elements * (0.5 if quantization.bits == 4 else 1.0)
    if not quantization.one_kernel:
        _unpack(walk, elements, name, stored)
    half = tape.tensor(elements, quantization.dequantized_dtype, f"{name} dequantised")
    temporaries = [half]
    if half.dtype is not compute:
        temporaries.append(tape.tensor(elements, compute, f"{name} dequantised, cast"))
        copied = elements * (half.dtype.num_bytes + compute.num_bytes)
        tape.elementwise("cast", copied, casting=copied)
    if quantization.double_quant:
        temporaries.append(
            tape.tensor(elements / quantization.block_size, DType.FLOAT32, f"{name} scales")
        )
    if not quantization.one_kernel:
        return temporaries
    # Decoding is no plain copy: bitsandbytes' branching kernels became 1.4 to 2.1 times faster on
    # an A100 and an H100 when a table replaced the branches (pull requests 1746 and 1747).
    traffic = stored + half.size
    tape.elementwise(
        name,
        traffic,
        kind=OperationKind.DEQUANTIZE,
        launches=3.0 if quantization.double_quant else 1.0,
        strided=traffic,
    )
    return temporaries


def _unpack(walk: Walk, elements: float, name: str, stored: float) -> None:
    """4-bit weights expanded by PyTorch operations.

    Shifted copies in int32 (4 B), as int8 (1 B), masked, less the zero point, times the scale. The
    last two broadcast zero points and scales over their group, three accesses of one or two bytes
    each. Such kernels are bound by the accesses they issue, so a single byte costs what two do.
    Source: AutoGPTQ 0.4-0.7 ``nn_modules/qlinear/qlinear_cuda_old.py QuantLinear.forward``, taken
    with more than 128 rows or where ``trainable``.
    """
    tape = walk.tape
    wide = tape.tensor(elements, DType.FLOAT32, f"{name} shifted (int32)")
    byte = tape.tensor(elements, DType.UINT8, f"{name} unpacked")
    del wide
    centred = tape.tensor(elements, DType.UINT8, f"{name} less zero point")
    del byte, centred
    broadcast = elements * _BROADCASTS * _ACCESSES_OF_A_BROADCAST * _BYTES_OF_AN_ACCESS
    tape.elementwise(
        name,
        stored + elements * (4 + 5 + 2) + broadcast,
        kind=OperationKind.DEQUANTIZE,
        launches=8.0,
        casting=elements * 5,
        strided=broadcast,
    )
