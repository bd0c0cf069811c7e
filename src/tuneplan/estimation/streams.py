"""Layers over several residual streams: alternating updates (AltUp) and what stands beside them.

Of Gemma 3n's four streams one runs through the blocks. Before it, all are predicted from all;
after it, all are corrected by what the blocks changed. Under autocast the streams are fp32: the
magnitudes that scale them are powers, which autocast computes so.
Source: transformers 5.24 ``models/gemma3n/modeling_gemma3n.py`` (``Gemma3nTextAltUp``,
``Gemma3nTextLaurelBlock``, ``Gemma3nTextDecoderLayer``).
"""

from __future__ import annotations

from collections.abc import Mapping

from tuneplan.estimation.activations import activation, multiply
from tuneplan.estimation.attention import attention
from tuneplan.estimation.feedforward import feed_forward
from tuneplan.estimation.linears import linear
from tuneplan.estimation.modules import Walk, add, base_linear, cast, scale, share
from tuneplan.estimation.norms import norm
from tuneplan.estimation.roles import role_of
from tuneplan.estimation.shadow import Tensor
from tuneplan.spec.architecture import Layer, ModelArchitecture
from tuneplan.spec.blocks import Attention, FeedForward
from tuneplan.spec.recipe import DType, Method, TrainingRecipe
from tuneplan.spec.weights import Weight

_FP32 = DType.FLOAT32


def alternates(model: ModelArchitecture) -> bool:
    """Whether the streams are AltUp's, whose magnitudes autocast computes in fp32."""
    return any(weight.leaf.startswith("altup_projections") for weight in model.outer)


def embeddings_dtype(recipe: TrainingRecipe) -> DType:
    """Of what embedding tables return."""
    return recipe.trainable_dtype if recipe.method is Method.FULL else recipe.outer_dtype


def run_streams(walk: Walk, x: Tensor, layer: Layer) -> Tensor:
    """Forward of one layer over all streams; its function names everything until it returns."""
    assert isinstance(layer.mixer, Attention)  # noqa: S101 - such layers have both blocks
    assert isinstance(layer.feed_forward, FeedForward)  # noqa: S101
    named = {weight.name: weight for weight in layer.extra}
    streams = layer.streams
    predictions = _predict(walk, x, named, streams)
    active = one_of(walk, predictions, streams)
    normed = norm(walk, active, layer.norms[0])
    beside = _low_rank_residual(walk, normed, named)
    mixed = norm(walk, attention(walk, share(normed), layer.mixer), layer.norms[1])
    gated = add(walk, active, mixed, "hidden states after attention")
    both = scale(walk, add(walk, gated, beside, "attention and laurel"), "attention and laurel")
    before = norm(walk, both, layer.norms[2])
    fed = feed_forward(walk, share(before), layer.feed_forward)
    after = norm(walk, fed, layer.norms[3])
    activated = add(walk, both, after, "hidden states after feed-forward")
    corrected = _correct(walk, predictions, activated, named, streams)
    first = _scaled_first(walk, corrected, named, streams)
    first = layer_input(walk, first, named, layer.feed_forward.activation)
    return _add_to_others(walk, corrected, first, streams)


def one_of(walk: Walk, x: Tensor, streams: int) -> Tensor:
    """``x[n]``: a view; backward writes the gradient into zeros of all streams."""
    tape, elements, dtype = walk.tape, x.elements, x.dtype

    def backward(grad: Tensor) -> tuple[Tensor]:
        whole = tape.tensor(elements, dtype, "gradient of all streams")
        tape.elementwise("select", whole.size + 2 * grad.size, launches=2.0)
        del grad
        return (whole,)

    return tape.link(Tensor(x.storage, elements / streams, dtype), (x,), (), backward)


def _modalities(walk: Walk, active: Tensor, named: Mapping[str, Weight]) -> Tensor:
    """A few numbers per token that say how streams mix (``compute_router_modalities``)."""
    dtype = active.dtype
    asked = scale(walk, norm(walk, active, named["altup.router_norm"]), "router input")
    routed = linear(walk, share(asked), named["altup.modality_router"])
    wide = activation(walk, cast(walk, routed, _FP32, "modalities"), "tanh")
    del routed
    return cast(walk, wide, dtype, "modalities")


def _predict(walk: Walk, x: Tensor, named: Mapping[str, Weight], streams: int) -> Tensor:
    """All streams from all streams, by coefficients of the active one.

    A batched product in the compute dtype, to which the streams are added in place; then a
    contiguous copy, in the streams' dtype.
    """
    tape, elements, source = walk.tape, x.elements, x.dtype
    modalities = _modalities(walk, one_of(walk, x, streams), named)
    coefficients = linear(walk, modalities, named["altup.prediction_coefs"])
    operand = walk.recipe.compute_dtype if walk.recipe.autocast else source
    wide = cast(walk, x, operand, "streams")
    coefficients = cast(walk, coefficients, operand, "coefficients")
    number = coefficients.elements
    if tape.grad and (coefficients.node is not None or wide.node is not None):
        tape.saves()
    product = tape.tensor(elements, operand, "predictions, joined")
    tape.matmul("altup", elements / streams, streams, streams, operand)
    kept = [wide] if coefficients.node is not None else []
    kept += [coefficients] if wide.node is not None else []

    def backward(grad: Tensor) -> tuple[Tensor, Tensor]:
        whole = tape.tensor(elements, operand, "gradient of streams")
        small = tape.tensor(number, operand, "gradient of coefficients")
        tape.matmul("altup", elements / streams, streams, streams, operand)
        tape.matmul("altup", streams, streams, elements / streams, operand)
        del grad
        return whole, small

    product = tape.link(product, (wide, coefficients), kept, backward)
    del wide, kept, coefficients, modalities
    product = _added_in_place(walk, product, x)
    narrow = _contiguous(walk, product)
    return cast(walk, narrow, source, "predictions")


def _added_in_place(walk: Walk, target: Tensor, other: Tensor) -> Tensor:
    """``target += other``: nothing new; backward hands the gradient to both, in their dtypes."""
    tape, elements, kinds = walk.tape, other.elements, (target.dtype, other.dtype)
    tape.elementwise("add", 2 * target.size + other.size)

    def backward(grad: Tensor) -> tuple[Tensor, Tensor]:
        passed = Tensor(grad.storage, grad.elements, kinds[0], is_view=grad.is_view)
        if kinds[1] is kinds[0]:
            return passed, grad
        traffic = elements * (kinds[0].num_bytes + kinds[1].num_bytes)
        tape.elementwise("cast", traffic, casting=traffic)
        return passed, tape.tensor(elements, kinds[1], "gradient of what was added")

    out = Tensor(target.storage, target.elements, target.dtype)
    return tape.link(out, (target, other), (), backward)


def _contiguous(walk: Walk, x: Tensor) -> Tensor:
    """A copy in another order; its backward passes the gradient on."""
    out = walk.tape.tensor(x.elements, x.dtype, "predictions, in order")
    walk.tape.elementwise("copy", 2 * x.size)
    return walk.tape.link(out, (x,), (), lambda grad: (grad,))


def _low_rank_residual(walk: Walk, x: Tensor, named: Mapping[str, Weight]) -> Tensor:
    """LAuReL: the input and its normalised image under two narrow products."""
    narrow = linear(walk, share(x), named["laurel.linear_left"])
    wide = linear(walk, narrow, named["laurel.linear_right"])
    del narrow
    normal = norm(walk, wide, named["laurel.post_laurel_norm"])
    return add(walk, x, normal, "laurel output")


def _correct(
    walk: Walk, predictions: Tensor, activated: Tensor, named: Mapping[str, Weight], streams: int
) -> Tensor:
    """Each stream plus its share of what the blocks changed in the active one.

    The coefficients' weight is clamped and used by itself, past any adapter.
    """
    tape, elements = walk.tape, predictions.elements
    modalities = _modalities(walk, activated, named)
    change = _less(walk, activated, one_of(walk, predictions, streams))
    repeated = _repeated(walk, change, streams)
    del change
    weight = named["altup.correction_coefs"]
    shares = base_linear(walk, modalities, weight, role_of(weight, walk.recipe, walk.place))
    number, small = shares.elements, shares.dtype
    dtype = repeated.dtype
    if tape.grad:
        tape.saves()
    out = tape.tensor(elements, dtype, "corrected streams")
    tape.elementwise("multiply", 2 * out.size)
    kept = [repeated] if shares.node is not None else []
    kept += [shares] if repeated.node is not None else []

    def backward(grad: Tensor) -> tuple[Tensor, Tensor]:
        whole = tape.tensor(elements, dtype, "gradient of repeated change")
        product = tape.tensor(elements, dtype, "gradient of shares, by element")
        tape.elementwise("multiply", 7 * whole.size, launches=3.0)
        del product, grad
        return whole, tape.tensor(number, small, "gradient of shares")

    out = tape.link(out, (repeated, shares), kept, backward)
    return _added_in_place(walk, out, predictions)


def _less(walk: Walk, x: Tensor, y: Tensor) -> Tensor:
    """``x - y``: the second gradient is a negated copy."""
    tape, elements, dtype = walk.tape, x.elements, x.dtype
    out = tape.tensor(elements, dtype, "change of the active stream")
    tape.elementwise("subtract", 3 * out.size)

    def backward(grad: Tensor) -> tuple[Tensor, Tensor]:
        tape.elementwise("negate", 2 * grad.size)
        return grad, tape.tensor(elements, dtype, "gradient of prediction, negated")

    return tape.link(out, (x, y), (), backward)


def _repeated(walk: Walk, x: Tensor, streams: int) -> Tensor:
    """One copy for each stream; backward sums them."""
    tape, elements, dtype = walk.tape, x.elements, x.dtype
    out = tape.tensor(elements * streams, dtype, "change, repeated")
    tape.elementwise("repeat", x.size + out.size)

    def backward(grad: Tensor) -> tuple[Tensor]:
        tape.elementwise("sum", grad.size + grad.size / streams)
        del grad
        return (tape.tensor(elements, dtype, "gradient of change"),)

    return tape.link(out, (x,), (), backward)


def _scaled_first(
    walk: Walk, corrected: Tensor, named: Mapping[str, Weight], streams: int
) -> Tensor:
    """A copy of the active stream times a learned scale, in that one's dtype, and back."""
    tape, source = walk.tape, corrected.dtype
    weight = named["altup.correct_output_scale"]
    role = role_of(weight, walk.recipe, walk.place)
    view = one_of(walk, corrected, streams)
    elements = view.elements
    clone = tape.tensor(elements, source, "active stream, copied")
    tape.elementwise("copy", 2 * clone.size)
    clone = tape.link(clone, (view,), (), lambda grad: (grad,))
    narrow = cast(walk, clone, role.dtype, "active stream")
    dtype = narrow.dtype
    out = tape.tensor(elements, dtype, "active stream, scaled")
    tape.elementwise("scale", 2 * out.size)

    def backward(grad: Tensor) -> tuple[Tensor]:
        result = tape.tensor(elements, dtype, "gradient of active stream")
        tape.elementwise("scale", 2 * result.size)
        if role.trained:
            product = tape.tensor(elements, dtype, "gradient of output scale, by token")
            tape.weight_gradient(float(weight.num_parameters), role.dtype, weight.leaf)
            tape.elementwise("scale weight gradient", 4 * product.size, launches=2.0)
            del product
        del grad
        return (result,)

    saved = [narrow] if role.trained else []
    out = tape.link(out, (narrow,), saved, backward, trains=role.trained)
    del narrow, saved
    return cast(walk, out, source, "active stream, scaled")


def layer_input(walk: Walk, x: Tensor, named: Mapping[str, Weight], kind: str) -> Tensor:
    """Gated by this layer's own embedding of each token, projected back and normalised."""
    gate = named["per_layer_input_gate"]
    hidden = activation(walk, linear(walk, x, gate), kind)
    del x
    outside = walk.tape.tensor(0.0, embeddings_dtype(walk.recipe), "layer's own embeddings")
    outside.elements = hidden.elements  # a view of what the model's entry holds
    hidden = multiply(walk, hidden, outside, "gated by the layer's own embeddings")
    del outside
    hidden = linear(walk, hidden, named["per_layer_projection"])
    return norm(walk, hidden, named["post_per_layer_input_norm"])


def _add_to_others(walk: Walk, corrected: Tensor, first: Tensor, streams: int) -> Tensor:
    """``corrected[1:] += first``: two writes into a slice (the sum, and assigning it back).

    Each copies the whole gradient and the slice of it in its backward
    (``torch/csrc/autograd/functions/tensor.cpp CopySlices::apply``); between them the slice's
    gradient is written into zeros of all streams.
    """
    tape, elements, dtype = walk.tape, corrected.elements, corrected.dtype
    size, narrow = first.elements, first.dtype
    part = elements * (streams - 1) / streams
    tape.elementwise("add", 4 * part * dtype.num_bytes + first.size, launches=2.0)

    def backward(grad: Tensor) -> tuple[Tensor, Tensor]:
        copied = tape.tensor(elements, dtype, "gradient of streams, copied")
        slice_ = tape.tensor(part, dtype, "gradient of other streams, copied")
        del grad
        zeros = tape.tensor(elements, dtype, "gradient of other streams among zeros")
        del slice_, zeros  # added into the copy
        again = tape.tensor(elements, dtype, "gradient of streams, copied again")
        del copied
        slice_ = tape.tensor(part, dtype, "gradient of other streams, copied")
        total = tape.tensor(size, dtype, "gradient of the layer's own part, summed")
        del slice_
        if narrow is not dtype:
            total = tape.tensor(size, narrow, "gradient of the layer's own part")
        tape.elementwise("write into slices", 12 * again.size, launches=10.0)
        return again, total

    out = Tensor(corrected.storage, elements, dtype)
    return tape.link(out, (corrected, first), (), backward)


def merge_streams(walk: Walk, x: Tensor, model: ModelArchitecture) -> Tensor:
    """The mean of all streams, the idle ones projected and brought to the active one's magnitude.

    Source: ``Gemma3nTextModel.forward``, after its layers.
    """
    tape, streams = walk.tape, model.streams
    named = {weight.name: weight for weight in model.outer}
    elements = x.elements / streams
    active = one_of(walk, x, streams)
    found = [active]
    magnitude = square_root_of_mean(walk, active)
    for stream in range(streams - 1):
        projection = named[f"model.altup_unembed_projections.{stream}"]
        projected = linear(walk, one_of(walk, x, streams), projection)
        found.append(of_magnitude(walk, projected, magnitude))
        del projected
    del x, active, magnitude
    stacked = stack(walk, found)
    out = tape.tensor(elements, stacked.dtype, "mean of streams")
    tape.elementwise("mean", stacked.size + out.size)
    whole, dtype = stacked.elements, stacked.dtype

    def backward(grad: Tensor) -> tuple[Tensor]:
        del grad
        return (tape.tensor(whole, dtype, "gradient of stacked streams"),)

    return tape.link(out, (stacked,), (), backward)


def square_root_of_mean(walk: Walk, x: Tensor) -> Tensor:
    """``torch.mean(x**2, -1, keepdim=True) ** 0.5``: powers are fp32 under autocast; keeps x so."""
    tape, elements, source = walk.tape, x.elements, x.dtype
    inner = _FP32 if walk.recipe.autocast else source
    wide = cast(walk, x, inner, "stream")
    square = tape.tensor(elements, inner, "stream, squared")
    tape.elementwise("magnitude", 3 * square.size, launches=3.0)
    del square
    out = tape.tensor(walk.tokens, inner, "magnitude")

    def backward(grad: Tensor) -> tuple[Tensor]:
        del grad
        mean = tape.tensor(elements, inner, "gradient of mean")
        double = tape.tensor(elements, inner, "stream, doubled")
        result = tape.tensor(elements, inner, "gradient of square")
        tape.elementwise("magnitude", 8 * result.size, launches=5.0)
        del mean, double
        return (result,)

    return tape.link(out, (wide,), (wide,), backward)


def of_magnitude(walk: Walk, x: Tensor, magnitude: Tensor) -> Tensor:
    """``x * magnitude / own magnitude``: keeps x and the product where the factors have graphs."""
    own = square_root_of_mean(walk, x)
    return _by_token(walk, _by_token(walk, x, magnitude), own)


def _by_token(walk: Walk, x: Tensor, factor: Tensor) -> Tensor:
    """Times (or by) one number a token."""
    tape, elements, source = walk.tape, x.elements, x.dtype
    number, kind = factor.elements, factor.dtype
    dtype = _FP32 if _FP32 in (source, kind) else source
    if tape.grad and (x.node is not None or factor.node is not None):
        tape.saves()
    out = tape.tensor(elements, dtype, "stream, scaled")
    tape.elementwise("scale", x.size + out.size)

    def backward(grad: Tensor) -> tuple[Tensor, Tensor]:
        product = tape.tensor(elements, dtype, "gradient of magnitude, by element")
        small = tape.tensor(number, kind, "gradient of magnitude")
        del product
        result = tape.tensor(elements, dtype, "gradient of stream")
        tape.elementwise("scale", 5 * result.size, launches=3.0)
        del grad
        if source is not dtype:
            result = tape.tensor(elements, source, f"gradient of stream as {source}")
        return result, small

    kept = [x] if factor.node is not None else []
    kept += [factor] if x.node is not None else []
    return tape.link(out, (x, factor), kept, backward)


def stack(walk: Walk, found: list[Tensor]) -> Tensor:
    """``torch.stack``: parts in one dtype, copied into a new tensor; ``found`` is left alone."""
    tape = walk.tape
    dtype = _FP32 if any(one.dtype is _FP32 for one in found) else found[0].dtype
    parts = [cast(walk, one, dtype, "stream") for one in found]
    sizes = [one.elements for one in parts]
    out = tape.tensor(sum(sizes), dtype, "streams, stacked")
    tape.elementwise("stack", 2 * out.size)

    def backward(grad: Tensor) -> tuple[Tensor, ...]:
        return tuple(Tensor(grad.storage, size, dtype, is_view=True) for size in sizes)

    return tape.link(out, parts, (), backward)
