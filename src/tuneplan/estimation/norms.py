"""What a normalisation executes and keeps: RMSNorm, LayerNorm and the fused ones."""

from __future__ import annotations

from tuneplan.estimation.heads import strided
from tuneplan.estimation.modules import Walk, promote
from tuneplan.estimation.operations import Number
from tuneplan.estimation.roles import role_of
from tuneplan.estimation.shadow import Tensor
from tuneplan.spec.recipe import DType
from tuneplan.spec.weights import Weight

_FP32 = DType.FLOAT32
# Reads and writes of an element in LayerNorm's kernels: forward reads the input twice (moments,
# then values); the input gradient reads input and output gradient twice; the weight's gradient
# reads both once more (aten/src/ATen/native/cuda/layer_norm_kernel.cu). On an A100 Liger-Kernel's
# benchmarks show 0.78 of the bandwidth at these counts forward and 0.83 backward.
_LAYER_NORM_ACCESSES = (3, 5, 2)


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
