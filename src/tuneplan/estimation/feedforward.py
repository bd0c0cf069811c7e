"""Feed-forward blocks, experts and linear-time mixers as shadow operations."""

from __future__ import annotations

from tuneplan.estimation.expert_adapters import merged_weights, stacked_gradients
from tuneplan.estimation.linears import linear
from tuneplan.estimation.litgpt import LITGPT, halves
from tuneplan.estimation.modules import Walk, add, split
from tuneplan.estimation.operations import Number, Operation, OperationKind
from tuneplan.estimation.pointwise import activation, fused_gate, multiply
from tuneplan.estimation.roles import role_of
from tuneplan.estimation.shadow import Tensor
from tuneplan.spec.architecture import (
    FeedForward,
    MixtureOfExperts,
    Recurrence,
    Weight,
    WeightKind,
)
from tuneplan.spec.recipe import DType

_FP32 = DType.FLOAT32


def feed_forward(walk: Walk, x: Tensor, block: FeedForward) -> Tensor:
    """``down(act(gate(x)) * up(x))``, or ``down(act(up(x)))``.

    Source: transformers ``models/llama/modeling_llama.py LlamaMLP``, ``models/phi3 Phi3MLP``.
    """
    linears = [weight for weight in block.weights if weight.kind is WeightKind.LINEAR]
    if walk.recipe.kernels.model_code == LITGPT and block.gated and len(linears) == 2:
        linears = [*halves(linears[0]), linears[1]]
    down = linears[-1]
    if not block.gated:
        hidden = linear(walk, x, linears[0])
        del x
        hidden = activation(walk, hidden, block.activation)
        return linear(walk, hidden, down)
    if len(linears) == 2:
        both = linear(walk, x, linears[0])
        del x
        gate, up = split(walk, both, [block.intermediate_size] * 2)
        del both
    else:
        gate = linear(walk, x, linears[0])
        if not walk.recipe.kernels.fused_mlp:
            gate = activation(walk, gate, block.activation)
        up = linear(walk, x, linears[1])
        del x
    return _finish(walk, gate, up, block.activation, down, activated=len(linears) > 2)


def _finish(
    walk: Walk, gate: Tensor, up: Tensor, name: str, down: Weight, *, activated: bool
) -> Tensor:
    if walk.recipe.kernels.fused_mlp:
        hidden = fused_gate(walk, gate, up)
    else:
        if not activated:
            gate = activation(walk, gate, name)
        hidden = multiply(walk, gate, up, "gated activation")
    del gate, up
    return linear(walk, hidden, down)


def experts(walk: Walk, x: Tensor, block: MixtureOfExperts) -> Tensor:
    """Routed experts over grouped products, plus the shared expert.

    Each token is copied once per expert it visits; whatever the routing, the copies add up to
    ``tokens x experts per token`` rows, so memory does not depend on the balance. Adapters on
    the stacked weights are in ``expert_adapters``.
    Source: transformers 5.0-5.24 ``integrations/moe.py grouped_mm_experts_forward``.
    """
    tape, recipe = walk.tape, walk.recipe
    tokens, elements, dtype = walk.tokens, x.elements, x.dtype
    width = block.latent_size or elements / tokens
    rows = tokens * block.num_experts_per_tok
    stacked = [weight for weight in block.weights if weight.kind is WeightKind.EXPERTS]
    roles = [(weight, role_of(weight, recipe, walk.place)) for weight in stacked]
    trained = any(role.trained or role.adapted for _, role in roles)
    inner = block.intermediate_size
    parts = 2 if block.gated else 1
    shared = feed_forward(walk, x, block.shared) if block.shared is not None else None
    updates, merged = merged_weights(walk, roles)
    if tape.grad:
        tape.saves()
    scores = tape.tensor(tokens * block.num_experts, _FP32, "router probabilities")
    tape.matmul("router", tokens, block.num_experts, width, dtype)
    tape.elementwise("routing", 6 * scores.size + 4 * rows, launches=12.0)
    gathered = tape.tensor(rows * width, dtype, "tokens gathered by expert")
    both = tape.tensor(rows * parts * inner, dtype, "experts' gate and up output")
    _grouped(walk, "experts up", rows, parts * inner, width, block)
    kept = [scores, both]
    if trained:
        kept.append(gathered)
    del gathered
    active = tape.tensor(rows * inner, dtype, "experts' activation")
    kept.append(active)
    tape.elementwise("experts' activation", (3 + parts) * active.size, launches=2.0)
    if block.gated:
        product = tape.tensor(rows * inner, dtype, "experts' gated activation")
        if trained:
            kept.append(product)
    else:
        product = active
    del active, both
    down = tape.tensor(rows * width, dtype, "experts' output")
    _grouped(walk, "experts down", rows, width, inner, block)
    kept.append(down)
    del product
    weighted = tape.tensor(rows * width, dtype, "experts' output, weighted")
    del down
    out = tape.tensor(elements, dtype, "experts' output, summed")
    tape.elementwise("combine", 4 * weighted.size + 2 * out.size, launches=6.0)
    del weighted, scores, updates
    kept += merged
    del merged

    def backward(grad: Tensor) -> tuple[Tensor]:
        spread = tape.tensor(rows * width, dtype, "gradient of experts' output")
        product = tape.tensor(rows * width, dtype, "gradient of routing weights")
        del grad, product
        hidden = tape.tensor(rows * inner, dtype, "gradient of experts' activation")
        _grouped(walk, "experts down", rows, inner, width, block)
        if trained:
            _grouped(walk, "experts down weight", inner, width, rows, block)
        del spread
        both = tape.tensor(rows * parts * inner, dtype, "gradient of experts' gate and up")
        temporary = tape.tensor(rows * inner, dtype, "gradient of experts' gate")
        del temporary, hidden
        gathered = tape.tensor(rows * width, dtype, "gradient of gathered tokens")
        _grouped(walk, "experts up", rows, width, parts * inner, block)
        if trained:
            _grouped(walk, "experts up weight", width, parts * inner, rows, block)
            stacked_gradients(walk, roles)
        del both
        result = tape.tensor(elements, dtype, "gradient of experts' input")
        tape.elementwise(
            "experts backward",
            6 * gathered.size + 8 * rows * inner * dtype.num_bytes,
            launches=20.0,
        )
        return (result,)

    routed = tape.link(out, (x,), kept, backward, trains=trained)
    del x, kept, out
    if shared is None:
        return routed
    return add(walk, routed, shared, "experts and shared expert")


def _grouped(
    walk: Walk, name: str, m: Number, n: Number, k: Number, block: MixtureOfExperts
) -> None:
    walk.tape.matmul(
        name,
        m,
        n,
        k,
        walk.recipe.compute_dtype,
        kind=OperationKind.GROUPED_MATMUL,
        num_groups=block.num_experts,
    )


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
