"""What activation functions and gates of feed-forward blocks execute and keep."""

from __future__ import annotations

from tuneplan.estimation.modules import Walk, promote, scale
from tuneplan.estimation.shadow import Tensor
from tuneplan.spec.recipe import DType, Kernels

_FP32 = DType.FLOAT32
CLAMPS = "clamped_"  # before the name of an activation: gate and up are clamped first
CLAMPED = "clamped_swiglu"  # the activation of gpt-oss's experts
_KEEPS_OUTPUT = frozenset({"relu", "sigmoid", "tanh"})


def activation(walk: Walk, x: Tensor, name: str) -> Tensor:
    """An activation function: one kernel that keeps its input or its output, or GPT-2's GELU.

    Source: PyTorch ``derivatives.yaml`` (``relu``, ``sigmoid``, ``tanh``: result; ``gelu``,
    ``silu``: self). Only transformers' own code runs GPT-2's GELU step by step; other model code
    calls ``F.gelu``.
    """
    if name == "gelu_new" and walk.recipe.kernels.model_code == Kernels().model_code:
        return _gelu_new(walk, x)
    tape, n, dtype = walk.tape, x.elements, x.dtype
    if tape.grad and x.node is not None:
        tape.saves()
    out = tape.tensor(n, dtype, f"{name} output")
    tape.elementwise("activation", 2 * x.size)

    def backward(grad: Tensor) -> tuple[Tensor]:
        result = tape.tensor(n, dtype, f"gradient of {name} input")
        tape.elementwise("activation", 3 * grad.size)
        return (result,)

    return tape.link(out, (x,), (out if name in _KEEPS_OUTPUT else x,), backward)


def _gelu_new(walk: Walk, x: Tensor) -> Tensor:
    """``0.5 * x * (1 + tanh(c * (x + 0.044715 * x**3)))``, operation by operation.

    Autocast runs the power in fp32, which carries on to the result. Kept: the power's input (a
    copy where it was cast), half of x, the tangent and one plus it.
    Source: transformers ``activations.py NewGELUActivation``; PyTorch ``autocast_mode.h`` (pow).
    """
    tape, n, dtype = walk.tape, x.elements, x.dtype
    inner = _FP32 if walk.recipe.autocast else dtype
    if tape.grad and x.node is not None:
        tape.saves()
    kept: list[Tensor] = []
    keeps = tape.grad and x.node is not None
    half = tape.tensor(n, dtype, "gelu_new, half of input")
    wide = x if inner is dtype else tape.tensor(n, inner, f"gelu_new input as {inner}")
    power = tape.tensor(n, inner, "gelu_new power")
    if keeps:
        kept.append(wide)
    del wide
    scaled = tape.tensor(n, inner, "gelu_new power, scaled")
    del power
    added = tape.tensor(n, inner, "gelu_new sum")
    del scaled
    scaled = tape.tensor(n, inner, "gelu_new sum, scaled")
    del added
    tangent = tape.tensor(n, inner, "gelu_new tangent")
    del scaled
    one = tape.tensor(n, inner, "gelu_new tangent plus one")
    if keeps:
        kept.append(tangent)
    del tangent
    out = tape.tensor(n, inner, "gelu_new output")
    d, i = dtype.num_bytes, inner.num_bytes
    mixed = dtype is not inner  # the cast, the sum and the last product
    tape.elementwise(
        "activation",
        n * (4 * d + 14 * i + mixed * (d + i)),
        launches=8.0 + mixed,
        casting=mixed * n * (3 * d + 5 * i),
    )

    def backward(grad: Tensor) -> tuple[Tensor]:
        left = tape.tensor(n, dtype, "gradient of gelu_new, half of input")
        right = tape.tensor(n, inner, "gradient of gelu_new tangent plus one")
        del grad
        slope = tape.tensor(n, inner, "gradient of gelu_new sum, scaled")
        del right
        total = tape.tensor(n, inner, "gradient of gelu_new sum")
        del slope
        scaled = tape.tensor(n, inner, "gradient of gelu_new power")
        temporary = tape.tensor(n, inner, "gelu_new power, derived")
        cubed = tape.tensor(n, inner, "gradient of gelu_new input")
        del scaled, temporary
        direct = total if inner is dtype else tape.tensor(n, dtype, "gradient of gelu_new input")
        result = tape.tensor(n, dtype, "gradient of gelu_new input")
        # Products, the tangent's and the power's derivatives; three gradients of x are summed.
        tape.elementwise(
            "activation",
            n * (9 * d + 19 * i + mixed * 3 * (d + i)),
            launches=11.0 + 3 * mixed,
            casting=mixed * n * (4 * d + 5 * i),
        )
        del total, cubed, direct, left
        return (result,)

    return tape.link(out, (x,), [*kept, half, one], backward)


def multiply(walk: Walk, x: Tensor, y: Tensor, name: str) -> Tensor:
    """``x * y``: keeps both."""
    tape, n, dtype = walk.tape, x.elements, promote(x.dtype, y.dtype)
    if tape.grad:
        tape.saves()
    out = tape.tensor(n, dtype, name)
    tape.elementwise("multiply", x.size + y.size + out.size)

    def backward(grad: Tensor) -> tuple[Tensor, Tensor]:
        one = tape.tensor(n, dtype, f"gradient of {name}, left")
        two = tape.tensor(n, dtype, f"gradient of {name}, right")
        tape.elementwise("multiply", 6 * n * dtype.num_bytes, launches=2.0)
        del grad
        return one, two

    return tape.link(out, (x, y), (x, y), backward)


def clamped_gate(walk: Walk, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    """gpt-oss: ``gate * sigmoid(alpha * gate)`` and ``up + 1``, both clamped before.

    Source: transformers 4.55-5.24 ``models/gpt_oss/modeling_gpt_oss.py GptOssExperts._apply_gate``.
    """
    gate = _clamp(walk, gate, "gate")
    up = _clamp(walk, up, "up")
    share_open = activation(walk, scale(walk, gate, "gate"), "sigmoid")
    gate = multiply(walk, gate, share_open, "gate times its sigmoid")
    return gate, scale(walk, up, "up and one")


def clamped(walk: Walk, gate: Tensor, up: Tensor, name: str) -> tuple[Tensor, Tensor, str]:
    """DeepSeek V4: gate and up are clamped where the activation's name says so.

    Source: transformers 5.24 ``models/deepseek_v4/modeling_deepseek_v4.py DeepseekV4MLP``,
    ``DeepseekV4Experts._apply_gate``.
    """
    if not name.startswith(CLAMPS):
        return gate, up, name
    gate = _clamp(walk, gate, "gate")
    up = _clamp(walk, up, "up")
    return gate, up, name.removeprefix(CLAMPS)


def _clamp(walk: Walk, x: Tensor, name: str) -> Tensor:
    """``x.clamp(...)``: keeps its input (PyTorch ``derivatives.yaml``)."""
    tape, n, dtype = walk.tape, x.elements, x.dtype
    if tape.grad and x.node is not None:
        tape.saves()
    out = tape.tensor(n, dtype, f"{name}, clamped")
    tape.elementwise("clamp", 2 * x.size)

    def backward(grad: Tensor) -> tuple[Tensor]:
        tape.elementwise("clamp", 3 * grad.size)
        return (tape.tensor(n, dtype, f"gradient of {name}"),)

    return tape.link(out, (x,), (x,), backward)


def fused_gate(walk: Walk, gate: Tensor, up: Tensor) -> Tensor:
    """Activation and product in one kernel: keeps gate and up, backward overwrites them.

    Source: Liger-Kernel ``ops/swiglu.py``.
    """
    tape, n, dtype = walk.tape, gate.elements, gate.dtype
    if tape.grad:
        tape.saves()
    out = tape.tensor(n, dtype, "gated activation")
    tape.elementwise("gated activation", 3 * gate.size)
    kept = [gate.storage, up.storage]

    def backward(grad: Tensor) -> tuple[Tensor, Tensor]:
        tape.elementwise("gated activation", 5 * grad.size)
        del grad
        over_up, over_gate = kept.pop(), kept.pop()
        return Tensor(over_gate, n, dtype), Tensor(over_up, n, dtype)

    return tape.link(out, (gate, up), (gate, up), backward)
