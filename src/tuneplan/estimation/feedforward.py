"""What a dense feed-forward block executes and keeps."""

from __future__ import annotations

from tuneplan.estimation.activations import CLAMPS, activation, clamped, fused_gate, multiply
from tuneplan.estimation.linears import linear
from tuneplan.estimation.litgpt import LITGPT, halves
from tuneplan.estimation.modules import Walk, split
from tuneplan.estimation.roles import role_of
from tuneplan.estimation.shadow import Tensor
from tuneplan.spec.blocks import FeedForward
from tuneplan.spec.weights import Weight, WeightKind


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
        activated = False
        del both
    else:
        gate = linear(walk, x, linears[0])
        if block.sparse:
            gate = _largest(walk, gate)
        activated = not walk.recipe.kernels.fused_mlp and not block.activation.startswith(CLAMPS)
        if activated:
            gate = activation(walk, gate, block.activation)
        up = linear(walk, x, linears[1])
        del x
    return _finish(walk, gate, up, block.activation, down, activated=activated)


def _largest(walk: Walk, gate: Tensor) -> Tensor:
    """``relu(gate - cutoff)``: the cutoff by mean and deviation of each token; keeps both ends.

    Source: transformers 5.24 ``modeling_gemma3n.py Gemma3nTextMLP._gaussian_topk``; PyTorch
    ``derivatives.yaml`` (``std``: self, ``relu``: result), ``FunctionsManual.cpp std_backward``.
    """
    tape, n, dtype = walk.tape, gate.elements, gate.dtype
    shifted = tape.tensor(n, dtype, "gate less cutoff")
    if tape.grad and gate.node is not None:
        tape.saves()
    out = tape.tensor(n, dtype, "gate's largest values")
    del shifted
    tape.elementwise("largest values", 6 * out.size, launches=7.0)

    def backward(grad: Tensor) -> tuple[Tensor]:
        result = tape.tensor(n, dtype, "gradient of gate less cutoff")
        del grad
        negated = tape.tensor(n, dtype, "gradient of cutoff, by element")
        del negated
        centred = tape.tensor(n, dtype, "gate less its mean")
        product = tape.tensor(n, dtype, "gradient of gate by its deviation")
        del centred
        mean = tape.tensor(n, dtype, "gradient of gate by its mean")
        del product, mean
        tape.elementwise("largest values", 17 * result.size, launches=10.0)
        return (result,)

    return tape.link(out, (gate,), (gate, out), backward)


def _finish(
    walk: Walk, gate: Tensor, up: Tensor, name: str, down: Weight, *, activated: bool
) -> Tensor:
    if walk.recipe.kernels.fused_mlp:
        hidden = fused_gate(walk, gate, up)
    else:
        if not activated:
            gate, up, name = clamped(walk, gate, up, name)
            gate = activation(walk, gate, name)
        hidden = multiply(walk, gate, up, "gated activation")
    del gate, up
    made_again = _makes_product_again(walk, down)
    return linear(walk, hidden, down, keeps_input=not made_again)


def _makes_product_again(walk: Walk, down: Weight) -> bool:
    """Whether one function over the whole MLP makes the gated product again in the backward.

    Source: unsloth ``kernels/fast_lora.py LoRA_MLP`` (axolotl's copy alike): it keeps its input and
    the gate's and the upward product.
    """
    kernels = walk.recipe.kernels
    adapted = role_of(down, walk.recipe, walk.place).adapted
    return kernels.fused_mlp and kernels.fused_adapter and adapted
