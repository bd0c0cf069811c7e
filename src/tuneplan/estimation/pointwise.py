"""Norms, activations and rotary positions as shadow operations."""

from __future__ import annotations

from tuneplan.estimation.modules import Walk, promote, scale
from tuneplan.estimation.operations import Number
from tuneplan.estimation.roles import role_of
from tuneplan.estimation.shadow import Tensor
from tuneplan.spec.architecture import Attention, Weight
from tuneplan.spec.recipe import DType, Kernels

_FP32 = DType.FLOAT32
CLAMPS = "clamped_"  # before the name of an activation: gate and up are clamped first
CLAMPED = "clamped_swiglu"  # the activation of gpt-oss's experts
# Reads and writes of an element in LayerNorm's kernels: forward reads the input twice (moments,
# then values); the input gradient reads input and output gradient twice; the weight's gradient
# reads both once more (aten/src/ATen/native/cuda/layer_norm_kernel.cu). On an A100 Liger-Kernel's
# benchmarks show 0.78 of the bandwidth at these counts forward and 0.83 backward.
_LAYER_NORM_ACCESSES = (3, 5, 2)


def strided(dtype: DType, traffic: Number) -> Number:
    """The traffic that counts as strided: that of half precision (four-byte loads keep up)."""
    return traffic if dtype.num_bytes == 2 else 0.0


def norm(walk: Walk, x: Tensor, weight: Weight) -> Tensor:
    """A normalisation: LayerNorm or RMSNorm.

    The fused norms of Liger-Kernel and unsloth replace the language models' RMSNorm alone
    (LayerNorm is one kernel already).
    """
    if weight.layer_norm or weight.bias or not weight.has_weight:
        return _layer_norm(walk, x, weight)
    if walk.recipe.kernels.fused_norm:
        return _fused_norm(walk, x, weight)
    return _rms_norm(walk, x, weight)


def bare_norm(walk: Walk, x: Tensor, name: str) -> Tensor:
    """An RMSNorm without a weight: the input in fp32 (kept), normalised, and cast back.

    Source: transformers 5.24 ``Gemma3nRMSNorm``, ``Gemma4RMSNorm`` (``with_scale=False``).
    """
    tape, n, source = walk.tape, x.elements, x.dtype
    if tape.grad and x.node is not None:
        tape.saves()
    wide = x if source is _FP32 else tape.tensor(n, _FP32, f"{name} input as float32")
    square = tape.tensor(n, _FP32, f"{name} square")
    del square
    out = tape.tensor(n, _FP32, f"{name} normalised")
    if source is not _FP32:
        narrow = tape.tensor(n, source, f"{name} output")
        del out
        out = narrow
        del narrow
    casts = 0 if source is _FP32 else 2 * (4 + source.num_bytes)
    tape.elementwise("norm", n * (casts + 20), launches=7.0, casting=n * casts)

    def backward(grad: Tensor) -> tuple[Tensor]:
        if source is not _FP32:
            grad = tape.tensor(n, _FP32, f"gradient of {name} output as float32")
        return (_rms_gradient(walk, grad, n, source, name),)

    return tape.link(out, (x,), (wide,), backward)


def _rms_gradient(walk: Walk, scaled: Tensor, n: Number, source: DType, name: str) -> Tensor:
    """The input's gradient from the fp32 one of the normalised tensor."""
    tape = walk.tape
    result = tape.tensor(n, _FP32, f"gradient of {name} input as float32")
    product = tape.tensor(n, _FP32, f"{name} reduction")
    del product, scaled
    mean = tape.tensor(n, _FP32, f"gradient of {name} mean")
    double = tape.tensor(n, _FP32, f"{name} doubled")
    square = tape.tensor(n, _FP32, f"gradient of {name} square")
    del mean, double, square
    casts = 0 if source is _FP32 else 2 * (4 + source.num_bytes)
    tape.elementwise("norm", n * (casts + 68), launches=14.0, casting=n * casts)
    if source is not _FP32:
        narrow = tape.tensor(n, source, f"gradient of {name} input")
        del result
        result = narrow
    return result


def _rms_norm(walk: Walk, x: Tensor, weight: Weight) -> Tensor:
    """Hugging Face's RMSNorm: the input in fp32, its square, the product, a cast, the weight.

    Keeps the fp32 input (a copy unless it is fp32 already) and, where the norm's weight is trained,
    the normalised tensor too: in fp32 where the weight is applied before the cast back.
    Source: transformers ``models/llama/modeling_llama.py LlamaRMSNorm`` (4.31 to 5.24), the same
    steps in LitGPT ``rmsnorm.py`` and torchtune ``modules/rms_norm.py``; with the weight in fp32
    ``models/gemma GemmaRMSNorm`` and ``models/olmo2 Olmo2RMSNorm``.
    """
    tape, n, source = walk.tape, x.elements, x.dtype
    trained = role_of(weight, walk.recipe, walk.place).trained
    weight_dtype = role_of(weight, walk.recipe, walk.place).dtype
    name = weight.leaf
    if tape.grad and (x.node is not None or trained):
        tape.saves()
    wide = x if source is _FP32 else tape.tensor(n, _FP32, f"{name} input as float32")
    square = tape.tensor(n, _FP32, f"{name} square")
    del square
    normal = tape.tensor(n, _FP32, f"{name} normalised")
    inner = _FP32 if weight.fp32_scale else source
    if inner is not _FP32:
        half = tape.tensor(n, source, f"{name} normalised as {source}")
        del normal
        normal = half
        del half
    if tape.grad and trained:
        tape.saves()
    applied = promote(inner, weight_dtype)
    out_dtype = source if weight.fp32_scale else applied
    out = tape.tensor(n, applied, f"{name} output")
    if out_dtype is not applied:
        narrow = tape.tensor(n, out_dtype, f"{name} output as {out_dtype}")
        del out
        out = narrow
        del narrow
    casts = 0 if source is _FP32 else 2 * (4 + source.num_bytes)
    # square 8, mean 4, times its inverse root 8, times the weight
    scaling = n * (inner.num_bytes + applied.num_bytes)
    tape.elementwise(
        "norm",
        n * (casts + 20) + scaling,
        launches=8.0,
        casting=n * casts,
        strided=strided(inner, scaling),
    )

    def backward(grad: Tensor) -> tuple[Tensor]:
        if out_dtype is not applied:
            grad = tape.tensor(n, applied, f"gradient of {name} output as {applied}")
        if trained:
            product = tape.tensor(n, applied, f"{name} weight gradient product")
            tape.weight_gradient(float(weight.num_parameters), weight_dtype, name)
            del product
            traffic = n * (3 * applied.num_bytes + inner.num_bytes)
            tape.elementwise("norm weight gradient", traffic, launches=2.0)
        scaled = tape.tensor(n, inner, f"gradient of {name} normalised")
        del grad
        if inner is not _FP32:
            wider = tape.tensor(n, _FP32, f"gradient of {name} as float32")
            del scaled
            scaled = wider
            del wider
        result = tape.tensor(n, _FP32, f"gradient of {name} input as float32")
        product = tape.tensor(n, _FP32, f"{name} reduction")
        del product, scaled
        mean = tape.tensor(n, _FP32, f"gradient of {name} mean")
        double = tape.tensor(n, _FP32, f"{name} doubled")
        square = tape.tensor(n, _FP32, f"gradient of {name} square")
        del mean, double, square
        # times the weight; times the inverse root 8, its gradient's product 12 and sum 4, mean 4,
        # ``pow_backward`` (x to the first power 8, doubled 8, product 12), both gradients summed 12
        tape.elementwise(
            "norm",
            n * (casts + 68) + scaling,
            launches=14.0,
            casting=n * casts,
            strided=strided(inner, scaling),
        )
        if source is not _FP32:
            narrow = tape.tensor(n, source, f"gradient of {name} input")
            del result
            result = narrow
            del narrow
        return (result,)

    saved = [wide, normal] if trained else [wide]
    return tape.link(out, (x,), saved, backward, trains=trained)


def _layer_norm(walk: Walk, x: Tensor, weight: Weight) -> Tensor:
    """``F.layer_norm``: one kernel; keeps its input (an fp32 copy under autocast).

    llm-foundry's default norm leaves autocast and stays in half precision
    (``layers/norm.py LPLayerNorm``).
    """
    tape, n, source = walk.tape, x.elements, x.dtype
    role = role_of(weight, walk.recipe, walk.place)
    name = weight.leaf
    if tape.grad and (x.node is not None or role.trained):
        tape.saves()
    low_precision = walk.recipe.kernels.model_code == "llm-foundry"
    inner = _FP32 if walk.recipe.autocast and not low_precision else source
    kept = x if inner is source else tape.tensor(n, inner, f"{name} input as {inner}")
    out = tape.tensor(n, inner, f"{name} output")
    if inner is not source:
        traffic = n * (source.num_bytes + inner.num_bytes)
        tape.elementwise("cast", traffic, casting=traffic)
    tape.elementwise("norm", n * _LAYER_NORM_ACCESSES[0] * inner.num_bytes)

    def backward(grad: Tensor) -> tuple[Tensor]:
        result = tape.tensor(n, inner, f"gradient of {name} input")
        tape.elementwise("norm", n * _LAYER_NORM_ACCESSES[1] * inner.num_bytes)
        if role.trained:
            traffic = n * _LAYER_NORM_ACCESSES[2] * inner.num_bytes
            tape.elementwise("norm weight gradient", traffic, launches=2.0)
            tape.weight_gradient(float(weight.num_parameters), role.dtype, name)
        del grad
        if inner is not source:
            narrow = tape.tensor(n, source, f"gradient of {name} input as {source}")
            traffic = n * (source.num_bytes + inner.num_bytes)
            tape.elementwise("cast", traffic, casting=traffic)
            del result
            result = narrow
            del narrow
        return (result,)

    return tape.link(out, (x,), (kept,), backward, trains=role.trained)


def _fused_norm(walk: Walk, x: Tensor, weight: Weight) -> Tensor:
    """A fused norm kernel: keeps its input, writes the input gradient over the output gradient.

    Source: Liger-Kernel ``ops/rms_norm.py``, unsloth ``kernels/rms_layernorm.py``.
    """
    tape, n, dtype = walk.tape, x.elements, x.dtype
    role = role_of(weight, walk.recipe, walk.place)
    if tape.grad and (x.node is not None or role.trained):
        tape.saves()
    out = tape.tensor(n, dtype, f"{weight.leaf} output")
    tape.elementwise("norm", 2 * n * dtype.num_bytes)

    def backward(grad: Tensor) -> tuple[Tensor]:
        tape.elementwise("norm", 3 * n * dtype.num_bytes)
        if role.trained:
            tape.weight_gradient(float(weight.num_parameters), role.dtype, weight.leaf)
        return (grad,)

    return tape.link(out, (x,), (x,), backward, trains=role.trained)


def rotary(walk: Walk, x: Tensor, name: str, fraction: float = 1.0) -> Tensor:
    """Rotary positions: ``x * cos + rotate_half(x) * sin``, nothing kept (cos and sin are shared).

    Source: transformers ``modeling_llama.py apply_rotary_pos_emb``; cos and sin have the dtype of
    the hidden states, which queries and keys take on.
    """
    tape, n, source = walk.tape, x.elements, x.dtype
    if walk.recipe.kernels.fused_rope:
        tape.elementwise("rotary", 2 * x.size)
        return _in_place(walk, x, "rotary")
    dtype = promote(source, walk.recipe.hidden_dtype)
    b = dtype.num_bytes
    if tape.grad and x.node is not None:
        tape.saves()
    one = tape.tensor(n, dtype, f"{name} times cosine")
    half = tape.tensor(n / 2, source, f"{name} half, negated")
    turned = tape.tensor(n, source, f"{name} rotated")
    del half
    two = tape.tensor(n, dtype, f"{name} times sine")
    del turned
    out = tape.tensor(n, dtype, f"{name} with positions")
    del one, two
    traffic = n * fraction * (3 * source.num_bytes + 7 * b)
    tape.elementwise("rotary", traffic, launches=5.0, strided=strided(dtype, traffic))

    def backward(grad: Tensor) -> tuple[Tensor]:
        one = tape.tensor(n, source, f"gradient of {name} times cosine")
        two = tape.tensor(n, source, f"gradient of {name} times sine")
        del grad
        half = tape.tensor(n, source, f"gradient of {name} rotated, first half")
        other = tape.tensor(n, source, f"gradient of {name} rotated, second half")
        del two, half, other
        # Gradients times cosine and sine 4, half of them negated 1, both halves written into zeros
        # 2 and 2, three gradients summed 6; only the zeros and the sums are contiguous.
        accesses = n * fraction * source.num_bytes
        tape.elementwise(
            "rotary", 15 * accesses, launches=9.0, strided=strided(source, 7 * accesses)
        )
        return (one,)

    return tape.link(out, (x,), (), backward)


def expand_heads(
    walk: Walk, x: Tensor, mixer: Attention, head_dim: int, name: str, share: Number = 1.0
) -> Tensor:
    """``repeat_kv``: one copy of keys or values per query head (where ``share`` is 1).

    A single head is not copied: the repeated tensor is a view with a stride of zero.
    """
    tape, elements, dtype = walk.tape, x.elements, x.dtype
    repeated = walk.tokens * mixer.num_attention_heads * head_dim
    if mixer.num_key_value_heads == 1:
        view = Tensor(x.storage, share * repeated + (1.0 - share) * elements, dtype)

        def summed(grad: Tensor) -> tuple[Tensor]:
            del grad
            return (tape.tensor(elements, dtype, f"gradient of {name}"),)

        return tape.link(view, (x,), (), summed)
    out = tape.tensor(share * repeated + (1.0 - share) * elements, dtype, f"{name}, repeated")
    traffic = x.size + out.size
    tape.elementwise("repeat", traffic, strided=strided(dtype, traffic))

    def backward(grad: Tensor) -> tuple[Tensor]:
        del grad
        tape.elementwise("repeat", traffic)
        return (tape.tensor(elements, dtype, f"gradient of {name}"),)

    return tape.link(out, (x,), (), backward)


def _in_place(walk: Walk, x: Tensor, name: str) -> Tensor:
    """A kernel that overwrites its argument forward and its gradient backward."""
    tape, size = walk.tape, x.size
    out = Tensor(x.storage, x.elements, x.dtype)

    def backward(grad: Tensor) -> tuple[Tensor]:
        tape.elementwise(name, 2 * size)
        return (grad,)

    return tape.link(out, (x,), (), backward)


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
