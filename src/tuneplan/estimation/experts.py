"""What routed experts execute and keep: the router, the rows by expert, grouped products."""

from __future__ import annotations

from tuneplan.estimation.activations import CLAMPED, activation, clamped, clamped_gate, multiply
from tuneplan.estimation.dense_experts import repeated, summed
from tuneplan.estimation.expert_adapters import Stacked, merged_weight, with_updates
from tuneplan.estimation.feedforward import feed_forward
from tuneplan.estimation.modules import Walk, add, cast, split
from tuneplan.estimation.operations import Number, OperationKind
from tuneplan.estimation.roles import role_of
from tuneplan.estimation.shadow import Tensor
from tuneplan.spec.blocks import MixtureOfExperts
from tuneplan.spec.recipe import DType
from tuneplan.spec.weights import WeightKind

_FP32 = DType.FLOAT32


def experts(walk: Walk, x: Tensor, block: MixtureOfExperts, asked: Tensor | None = None) -> Tensor:
    """Routed experts over grouped products, plus the shared expert.

    The router reads ``asked`` where that is not what the experts read.

    Each token is copied once per expert it visits; whatever the routing, the copies add up to
    ``tokens x experts per token`` rows, so memory does not depend on the balance. Adapters on
    the stacked weights are in ``expert_adapters``.
    Source: transformers 5.0-5.24 ``integrations/moe.py grouped_mm_experts_forward``.
    """
    if block.every_token:
        return _every_expert(walk, x, block)
    tape, elements, dtype = walk.tape, x.elements, x.dtype
    width = block.latent_size or elements / walk.tokens
    rows = walk.tokens * block.num_experts_per_tok
    shared = feed_forward(walk, x, block.shared) if block.shared is not None else None
    stacked = with_updates(walk, _stacked(walk, block))
    cache: list[Tensor] = []
    scores = _route(walk, x if asked is None else asked, block, width)
    del asked
    hidden = _reordered(walk, x, rows * width, "tokens gathered by expert")
    del x
    hidden = cast(walk, hidden, _dtype_of_experts(walk, stacked), "tokens gathered by expert")
    down = stacked.pop()
    hidden = _through_experts(walk, hidden, stacked, down, block, cache, rows)
    hidden = _weighted(walk, hidden, scores)
    del scores
    hidden = _reordered(walk, hidden, rows * width, "experts' output, in order")
    narrow = hidden.dtype
    routed = tape.tensor(elements, narrow, "experts' output, summed")
    tape.elementwise("combine", hidden.size + routed.size, launches=2.0)
    del stacked, down, cache

    def backward(grad: Tensor) -> tuple[Tensor]:
        return (Tensor(grad.storage, rows * width, narrow),)  # an expanded view

    routed = cast(walk, tape.link(routed, (hidden,), (), backward), dtype, "experts' output")
    del hidden
    if shared is None:
        return routed
    return add(walk, routed, shared, "experts and shared expert")


def _through_experts(
    walk: Walk,
    hidden: Tensor,
    stacked: list[Stacked],
    down: Stacked,
    block: MixtureOfExperts,
    cache: list[Tensor],
    rows: Number,
) -> Tensor:
    """The experts' own feed-forward over rows that are already where they belong."""
    hidden = _grouped(walk, hidden, stacked, block, cache, "experts' gate and up output")
    if block.gated:
        gate, up = split(walk, hidden, [block.intermediate_size] * 2, rows=rows)
        del hidden
        if block.activation == CLAMPED:
            gate, up = clamped_gate(walk, gate, up)
        else:
            gate, up, name = clamped(walk, gate, up, block.activation)
            gate = activation(walk, gate, name)
        hidden = multiply(walk, gate, up, "experts' gated activation")
        del gate, up
    else:
        hidden = activation(walk, hidden, block.activation)
    return _grouped(walk, hidden, [down], block, cache, "experts' output")


def _every_expert(walk: Walk, x: Tensor, block: MixtureOfExperts) -> Tensor:
    """All experts on all tokens (``dense_experts``), then the shared one."""
    assert block.shared is not None  # noqa: S101 - such models have one
    elements, rows = x.elements, walk.tokens * block.num_experts
    stacked = with_updates(walk, _stacked(walk, block))
    cache: list[Tensor] = []
    scores = _route(walk, x, block, elements / walk.tokens)
    # The block's forward names the weighted copies until it returns.
    named = _weighted(walk, repeated(walk, x, block.num_experts), scores)
    del scores
    operand = walk.recipe.compute_dtype if walk.recipe.autocast else named.dtype
    hidden = cast(walk, named, operand, "experts' input")
    down = stacked.pop()
    hidden = _through_experts(walk, hidden, stacked, down, block, cache, rows)
    return summed(walk, hidden, feed_forward(walk, x, block.shared), elements)


def _dtype_of_experts(walk: Walk, stacked: list[Stacked]) -> DType:
    """Rows are cast to the dtype of stacked weights (``integrations/moe.py _grouped_mm``)."""
    role = stacked[0].role
    return walk.recipe.compute_dtype if role.quantized else role.dtype


def _stacked(walk: Walk, block: MixtureOfExperts) -> list[Stacked]:
    weights = [weight for weight in block.weights if weight.kind is WeightKind.EXPERTS]
    return [Stacked(weight, role_of(weight, walk.recipe, walk.place)) for weight in weights]


def _route(walk: Walk, x: Tensor, block: MixtureOfExperts, width: Number) -> Tensor:
    """Router logits, their softmax in fp32, the chosen experts: small beside the rows."""
    tape, tokens, elements, dtype = walk.tape, walk.tokens, x.elements, x.dtype
    if tape.grad:
        tape.saves()
    scores = tape.tensor(tokens * block.num_experts, _FP32, "router probabilities")
    tape.matmul("router", tokens, block.num_experts, width, dtype)
    rows = tokens * block.num_experts_per_tok
    tape.elementwise("routing", 6 * scores.size + 4 * rows, launches=12.0)

    def backward(grad: Tensor) -> tuple[Tensor]:
        del grad
        return (tape.tensor(elements, dtype, "gradient of router input"),)

    role = role_of(block.weights[0], walk.recipe, walk.place)
    trains = role.trained or role.adapted or role.copied
    return tape.link(scores, (x,), (x, scores) if trains else (scores,), backward)


def _reordered(walk: Walk, x: Tensor, elements: Number, name: str) -> Tensor:
    """``x[index]``: keeps the index; backward adds into zeros."""
    tape, before, dtype = walk.tape, x.elements, x.dtype
    out = tape.tensor(elements, dtype, name)
    tape.elementwise("gather", 2 * out.size)

    def backward(grad: Tensor) -> tuple[Tensor]:
        tape.elementwise("scatter", 3 * grad.size, launches=2.0)
        return (tape.tensor(before, dtype, f"gradient before {name}"),)

    return tape.link(out, (x,), (), backward)


def _weighted(walk: Walk, x: Tensor, scores: Tensor) -> Tensor:
    """Each row times the weight of its expert: keeps the rows for the router's gradient."""
    tape, elements, dtype, number = walk.tape, x.elements, x.dtype, scores.elements
    out = tape.tensor(elements, dtype, "experts' output, weighted")
    tape.elementwise("weigh", 2 * out.size)

    def backward(grad: Tensor) -> tuple[Tensor, Tensor]:
        result = tape.tensor(elements, dtype, "gradient of experts' output")
        product = tape.tensor(elements, dtype, "gradient of routing weights")
        tape.elementwise("weigh", 6 * result.size, launches=3.0)
        del product, grad
        return result, tape.tensor(number, _FP32, "gradient of router probabilities")

    return tape.link(out, (x, scores), (x, scores), backward)


def _grouped(
    walk: Walk,
    x: Tensor,
    stacked: list[Stacked],
    block: MixtureOfExperts,
    cache: list[Tensor],
    name: str,
) -> Tensor:
    """One grouped product over all experts; keeps its input where they are trained or adapted.

    ``cache`` holds the weights with adapters until the block's forward is over.
    """
    tape = walk.tape
    taken = stacked[0].weight.in_features
    given = sum(one.weight.out_features for one in stacked)
    elements, dtype = x.elements, x.dtype
    rows, wanted = elements / taken, x.node is not None
    found = [merged_weight(walk, one) for one in stacked]
    merged = [tensor for tensor in found if tensor is not None]
    del found
    cache += merged
    expanded = _expanded(walk, stacked)
    cache += expanded
    copies = [*_cast_weights(walk, stacked, block), *expanded]
    del expanded
    trained = [(one.weight, one.role) for one in stacked if one.role.trained]
    changes = bool(merged or trained)
    if tape.grad and (changes or wanted):
        tape.saves()
    out = tape.tensor(rows * given, dtype, name)
    _multiply_groups(walk, name, rows, given, taken, block)
    whole = [(tensor.elements, tensor.dtype) for tensor in merged]

    def backward(grad: Tensor) -> tuple[Tensor | None, ...]:
        result = None
        if wanted:
            result = tape.tensor(elements, dtype, f"gradient before {name}")
            _multiply_groups(walk, name, rows, taken, given, block)
        if changes:
            _multiply_groups(walk, f"{name} weight", given, taken, rows, block)
        for weight, role in trained:
            gradient = walk.recipe.gradient_dtype or role.dtype
            tape.weight_gradient(float(weight.num_parameters), gradient, weight.name)
        made = [tape.tensor(size, kind, "gradient of experts with adapter") for size, kind in whole]
        del grad
        return (result, *made)

    saved = [*merged, *copies, x] if changes else copies
    return tape.link(out, (x, *merged), saved, backward, trains=bool(trained))


def _expanded(walk: Walk, stacked: list[Stacked]) -> list[Tensor]:
    """Quantised stacks in the dtype of the product: all experts of the layer at once.

    A parametrisation expands a stack where it is used and keeps it until the block's forward is
    over; the product keeps it for the gradient of its input. An adapted stack is expanded into the
    weight that its adapter is added to.
    Source: bitsandbytes 0.49 ``nn/parametrize.py replace_parameter_4bit`` and its cache hooks,
    axolotl 0.18 ``monkeypatch/moe_quant.py``.
    """
    quantization, tape = walk.recipe.quantization, walk.tape
    if quantization is None or not quantization.expands_experts:
        return []
    found = []
    for one in stacked:
        if not one.role.quantized:
            continue
        size = float(one.weight.num_weight_elements)
        whole = tape.tensor(size, quantization.dequantized_dtype, f"{one.weight.leaf} dequantised")
        traffic = size * quantization.bits / 8 + whole.size
        name = f"{one.weight.leaf} dequantised"
        tape.elementwise(name, traffic, kind=OperationKind.DEQUANTIZE, strided=traffic)
        found.append(whole)
    return found


def _cast_weights(walk: Walk, stacked: list[Stacked], block: MixtureOfExperts) -> list[Tensor]:
    """Copies of whole expert weights that autocast makes for ``bmm`` (not for ``_grouped_mm``)."""
    recipe, tape = walk.recipe, walk.tape
    if not (block.every_token and recipe.autocast):
        return []
    return [
        tape.tensor(
            float(one.weight.num_weight_elements),
            recipe.compute_dtype,
            f"{one.weight.leaf} as {recipe.compute_dtype}",
        )
        for one in stacked
        if one.role.dtype is not recipe.compute_dtype and not one.role.adapted
    ]


def _multiply_groups(
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
