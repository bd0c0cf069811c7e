"""Hyper-connections: residual streams that are collapsed into one before a block, then mixed.

The weights of the mixture are made of the streams themselves, normalised in fp32 and projected
to a few numbers a token. What a few numbers a token are (the iterations that balance the mixing
matrix) is not counted.
Source: transformers 5.24 ``models/deepseek_v4/modeling_deepseek_v4.py``
(``DeepseekV4HyperConnection``, ``DeepseekV4HyperHead``, ``DeepseekV4DecoderLayer``).
"""

from __future__ import annotations

from tuneplan.estimation.compressed import compressed_attention, unweighted_norm
from tuneplan.estimation.experts import experts
from tuneplan.estimation.modules import Walk, add, cast, dense, promote, scale
from tuneplan.estimation.norms import norm
from tuneplan.estimation.roles import role_of
from tuneplan.estimation.shadow import Tensor
from tuneplan.spec.architecture import Layer, ModelArchitecture
from tuneplan.spec.blocks import Attention, MixtureOfExperts
from tuneplan.spec.recipe import DType
from tuneplan.spec.weights import Weight

_FP32 = DType.FLOAT32


def run_connected(walk: Walk, x: Tensor, layer: Layer) -> Tensor:
    """Forward of one layer: attention and experts, each between a collapse and a mixture."""
    assert isinstance(layer.mixer, Attention)  # noqa: S101 - such layers have both blocks
    assert isinstance(layer.feed_forward, MixtureOfExperts)  # noqa: S101
    named = {weight.name: weight for weight in layer.extra}
    streams = layer.streams
    shares, collapsed = collapse(walk, x, named["attn_hc.fn"], streams)
    mixed = compressed_attention(walk, norm(walk, collapsed, layer.norms[0]), layer.mixer)
    x = _mixed(walk, x, mixed, shares, streams)
    shares, collapsed = collapse(walk, x, named["ffn_hc.fn"], streams)
    routed = experts(walk, norm(walk, collapsed, layer.norms[1]), layer.feed_forward)
    return _mixed(walk, x, routed, shares, streams)


def collapse(walk: Walk, x: Tensor, weight: Weight, streams: int) -> tuple[Tensor, Tensor]:
    """The mixture's weights, and the streams as one tensor of their dtype."""
    role = role_of(weight, walk.recipe, walk.place)
    operand = walk.recipe.compute_dtype if walk.recipe.autocast else _FP32
    normal = unweighted_norm(walk, cast(walk, x, _FP32, "streams"), "streams")
    projected = dense(
        walk,
        cast(walk, normal, operand, "streams, normalised"),
        weight.leaf,
        weight.in_features,
        weight.out_features,
        trained=role.trained or role.copied,
        weight_dtype=role.used_dtype,
        gradient_elements=float(weight.num_parameters),
    )
    del normal
    shares = scale(walk, cast(walk, projected, _FP32, "stream shares"), "stream shares")
    del projected
    weighted = _shared_out(walk, x, shares)
    return shares, cast(walk, _summed(walk, weighted, streams), x.dtype, "collapsed streams")


def _shared_out(walk: Walk, x: Tensor, shares: Tensor) -> Tensor:
    """Every stream times its share: keeps both; a product of the streams' size for each."""
    tape, elements, source = walk.tape, x.elements, x.dtype
    number, kind = shares.elements, shares.dtype
    dtype = promote(source, kind)
    if tape.grad and (x.node is not None or shares.node is not None):
        tape.saves()
    out = tape.tensor(elements, dtype, "streams times shares")
    tape.elementwise("share", x.size + out.size)

    def backward(grad: Tensor) -> tuple[Tensor, Tensor]:
        product = tape.tensor(elements, dtype, "gradient of shares, by element")
        small = tape.tensor(number, kind, "gradient of shares")
        del product
        result = tape.tensor(elements, dtype, "gradient of streams")
        del grad
        tape.elementwise("share", 5 * result.size, launches=3.0)
        return _narrowed(walk, result, source), small

    kept = [x] if shares.node is not None else []
    kept += [shares] if x.node is not None else []
    return tape.link(out, (x, shares), kept, backward)


def _narrowed(walk: Walk, grad: Tensor, dtype: DType) -> Tensor:
    if grad.dtype is dtype:
        return grad
    walk.tape.elementwise("cast", grad.size * 1.5, casting=grad.size * 1.5)
    return walk.tape.tensor(grad.elements, dtype, f"gradient of streams as {dtype}")


def _summed(walk: Walk, x: Tensor, streams: int) -> Tensor:
    """The sum over streams; its gradient is a view of the sum's."""
    tape, elements, dtype = walk.tape, x.elements, x.dtype
    out = tape.tensor(elements / streams, dtype, "streams, summed")
    tape.elementwise("sum", x.size + out.size)

    def backward(grad: Tensor) -> tuple[Tensor]:
        return (Tensor(grad.storage, elements, dtype, is_view=True),)

    return tape.link(out, (x,), (), backward)


def _mixed(walk: Walk, x: Tensor, block: Tensor, shares: Tensor, streams: int) -> Tensor:
    """The block's output in every stream, plus the streams times a small matrix a token."""
    spread = _spread(walk, block, shares, streams)
    del block
    return add(walk, spread, _mixture(walk, x, shares, streams), "streams")


def _spread(walk: Walk, block: Tensor, shares: Tensor, streams: int) -> Tensor:
    """One share of the block's output for each stream: keeps both."""
    tape, elements, dtype = walk.tape, block.elements, block.dtype
    number, kind = shares.elements, shares.dtype
    if tape.grad:
        tape.saves()
    out = tape.tensor(elements * streams, dtype, "block output in all streams")
    tape.elementwise("spread", block.size + out.size)

    def backward(grad: Tensor) -> tuple[Tensor, Tensor]:
        product = tape.tensor(elements * streams, dtype, "gradient of spread shares, by element")
        small = tape.tensor(number, kind, "gradient of shares")
        del product
        whole = tape.tensor(elements * streams, dtype, "gradient of block output, by stream")
        del grad
        tape.elementwise("spread", 6 * whole.size, launches=4.0)
        del whole
        return tape.tensor(elements, dtype, "gradient of block output"), small

    kept = [block] if shares.node is not None else []
    kept += [shares] if block.node is not None else []
    return tape.link(out, (block, shares), kept, backward)


def _mixture(walk: Walk, x: Tensor, shares: Tensor, streams: int) -> Tensor:
    """A batched product of the streams with one matrix a token: keeps both."""
    tape, elements, dtype = walk.tape, x.elements, x.dtype
    number, kind = shares.elements, shares.dtype
    rows = elements / streams
    if tape.grad:
        tape.saves()
    out = tape.tensor(elements, dtype, "streams, mixed")
    tape.matmul("mixture", rows, streams, streams, dtype)

    def backward(grad: Tensor) -> tuple[Tensor, Tensor]:
        small = tape.tensor(number, kind, "gradient of shares")
        result = tape.tensor(elements, dtype, "gradient of mixed streams")
        tape.matmul("mixture", rows, streams, streams, dtype)
        tape.matmul("mixture", streams, streams, rows, dtype)
        del grad
        return result, small

    kept = [x] if shares.node is not None else []
    kept += [shares] if x.node is not None else []
    return tape.link(out, (x, shares), kept, backward)


def merge_connected(walk: Walk, x: Tensor, model: ModelArchitecture) -> Tensor:
    """The streams as one tensor before the final norm (``DeepseekV4HyperHead``)."""
    weight = next(weight for weight in model.outer if weight.leaf == "hc_fn")
    return collapse(walk, x, weight, model.streams)[1]
