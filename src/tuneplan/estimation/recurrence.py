"""What a linear-time mixer (Mamba-2, gated delta rule, lightning) executes and keeps."""

from __future__ import annotations

from tuneplan.estimation.linears import linear
from tuneplan.estimation.modules import Walk
from tuneplan.estimation.operations import Number, Operation, OperationKind
from tuneplan.estimation.roles import role_of
from tuneplan.estimation.shadow import Tensor
from tuneplan.spec.blocks import Recurrence
from tuneplan.spec.recipe import DType
from tuneplan.spec.weights import WeightKind

_FP32 = DType.FLOAT32


def recurrence(walk: Walk, x: Tensor, block: Recurrence) -> Tensor:
    """A linear-time mixer: projections, short convolution, chunked scan, gated norm, projection.

    The scan keeps its inputs and one triangular matrix per chunk and head; its backward makes the
    chunk states again. Fused kernels (flash-linear-attention, mamba-ssm) are assumed; the PyTorch
    fallback needs several times as much.
    Source: flash-linear-attention ``ops/gated_delta_rule/chunk.py``, mamba-ssm
    ``ops/triton/ssd_combined.py``.
    """
    tape, tokens, dtype = walk.tape, walk.tokens, x.dtype
    linears = [weight for weight in block.weights if weight.kind is WeightKind.LINEAR]
    projected = [linear(walk, x, weight) for weight in linears[:-1]]
    del x
    values = block.num_heads * block.value_head_dim
    keys = block.num_key_heads * block.key_head_dim
    inner = tokens * (2 * keys + values)
    if tape.grad:
        tape.saves()
    mixed = tape.tensor(tokens * block.conv_channels, dtype, "convolution output")
    tape.elementwise("short convolution", 2 * mixed.size)
    triangle = tape.tensor(tokens * block.num_heads * block.chunk_size, dtype, "chunk matrices")
    states = tape.tensor(
        tokens / block.chunk_size * block.num_heads * block.key_head_dim * block.value_head_dim,
        dtype,
        "chunk states",
    )
    out = tape.tensor(tokens * values, dtype, "scan output")
    flops = (
        4.0 * tokens * block.num_heads * block.key_head_dim * block.value_head_dim
        + 2.0
        * tokens
        * block.num_heads
        * block.chunk_size
        * (block.key_head_dim + block.value_head_dim)
    )
    traffic = 2 * (inner * dtype.num_bytes + triangle.size + states.size) + 2 * out.size
    _record_scan(walk, flops, traffic, launches=6.0)
    del states
    normal = tape.tensor(tokens * values, dtype, "scan output, normalised and gated")
    tape.elementwise("gated norm", 3 * normal.size)
    shapes = [(tensor.elements, tensor.dtype) for tensor in projected]
    state_elements = (
        tokens / block.chunk_size * (block.num_heads * block.key_head_dim * block.value_head_dim)
    )

    def backward(grad: Tensor) -> tuple[Tensor, ...]:
        scan = tape.tensor(tokens * values, dtype, "gradient of scan output")
        del grad
        states = tape.tensor(state_elements, dtype, "chunk states, made again")
        gradients = tape.tensor(inner, _FP32, "gradients of scan inputs as float32")
        _record_scan(
            walk, 2.5 * flops, 6 * inner * dtype.num_bytes + 4 * states.size, launches=12.0
        )
        del states, scan, gradients
        return tuple(tape.tensor(n, kind, "gradient of projection") for n, kind in shapes)

    trained = any(
        role_of(weight, walk.recipe, walk.place).trained
        for weight in block.weights
        if weight.kind is not WeightKind.LINEAR
    )
    kept = [*projected, mixed, triangle, out]
    result = tape.link(normal, projected, kept, backward, trains=trained)
    del projected, kept, mixed, triangle, out, normal
    return linear(walk, result, linears[-1])


def _record_scan(walk: Walk, flops: Number, bytes_moved: Number, *, launches: float) -> None:
    walk.tape.operations.append(
        Operation(
            "scan",
            OperationKind.RECURRENCE,
            walk.tape.stage,
            walk.recipe.compute_dtype,
            launches=launches,
            flops=flops,
            bytes_moved=bytes_moved,
        )
    )
