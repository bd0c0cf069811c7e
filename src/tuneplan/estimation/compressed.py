"""DeepSeek V4's attention: one key-value head, pooled keys beside it, a grouped output product.

Source: transformers 5.24 ``models/deepseek_v4/modeling_deepseek_v4.py`` (``DeepseekV4Attention``,
``DeepseekV4HCACompressor``, ``DeepseekV4CSACompressor``, ``DeepseekV4Indexer``); it runs eager code
alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from tuneplan.estimation.activations import multiply
from tuneplan.estimation.attention_core import attention_core
from tuneplan.estimation.linears import linear
from tuneplan.estimation.modules import Walk, cast, promote, share
from tuneplan.estimation.norms import norm
from tuneplan.estimation.operations import Number, OperationKind
from tuneplan.estimation.roles import role_of
from tuneplan.estimation.shadow import Tensor
from tuneplan.spec.blocks import Attention
from tuneplan.spec.recipe import DType
from tuneplan.spec.weights import Weight

_FP32 = DType.FLOAT32


def compressed_attention(walk: Walk, x: Tensor, mixer: Attention) -> Tensor:
    """Queries of low rank against one head of keys that are the values too."""
    named = {weight.name.removeprefix("self_attn."): weight for weight in mixer.weights}
    turned = mixer.tail_rotary / mixer.head_dim
    low = norm(walk, linear(walk, share(x), named["q_a_proj"]), named["q_a_norm"])
    q = unweighted_norm(walk, linear(walk, share(low), named["q_b_proj"]), "q_b_norm")
    q = _turned_tail(walk, q, turned, "queries")
    both = norm(walk, linear(walk, share(x), named["kv_proj"]), named["kv_norm"])
    both = _turned_tail(walk, both, turned, "keys and values")
    if mixer.pooled:
        pooled = _pooled(walk, share(x), mixer, named, turned)
        _pick(walk, share(x), share(low), mixer, named)
        both = _joined(walk, both, pooled)
        del pooled
    qkv = [q, _every_head(walk, both, mixer, "keys"), _every_head(walk, both, mixer, "values")]
    del q, both, x
    out = attention_core(walk, qkv, mixer)
    out = _turned_tail(walk, out, turned, "attention output")
    grouped = _grouped(walk, out, named["o_a_proj"], mixer)
    del out
    return linear(walk, grouped, named["o_b_proj"])


def unweighted_norm(walk: Walk, x: Tensor, name: str) -> Tensor:
    """``x * rsqrt(mean(x.float()**2)).to(x.dtype)``: keeps x and, where it is not fp32, a copy.

    Source: ``DeepseekV4UnweightedRMSNorm``.
    """
    tape, n, source = walk.tape, x.elements, x.dtype
    if tape.grad and x.node is not None:
        tape.saves()
    wide = x if source is _FP32 else tape.tensor(n, _FP32, f"{name} input as float32")
    square = tape.tensor(n, _FP32, f"{name} square")
    del square
    out = tape.tensor(n, source, f"{name} output")
    casts = 0 if source is _FP32 else n * (4 + source.num_bytes)
    tape.elementwise("norm", n * 12 + 2 * out.size + casts, launches=6.0, casting=casts)

    def backward(grad: Tensor) -> tuple[Tensor]:
        result = tape.tensor(n, source, f"gradient of {name} input")
        product = tape.tensor(n, source, f"gradient of {name} factor, by element")
        del product, grad
        mean = tape.tensor(n, _FP32, f"gradient of {name} mean")
        double = tape.tensor(n, _FP32, f"{name} doubled")
        square = tape.tensor(n, _FP32, f"gradient of {name} square")
        del mean, double
        if source is not _FP32:
            narrow = tape.tensor(n, source, f"gradient of {name} square as {source}")
            del square
            square = narrow
            del narrow
        del square  # added to the result
        tape.elementwise(
            "norm",
            8 * result.size + 36 * n + casts,
            launches=11.0 + bool(casts),
            casting=casts,
        )
        return (result,)

    return tape.link(out, (x,), (x, wide), backward)


def _turned_tail(walk: Walk, x: Tensor, share_turned: float, name: str) -> Tensor:
    """Positions turn the last features of each head, in fp32; both parts are joined anew.

    Backward writes each part's gradient into zeros of the whole.
    """
    tape, n, dtype = walk.tape, x.elements, x.dtype
    part = n * share_turned
    turned = [tape.tensor(part, _FP32, f"{name}, turned part") for _ in range(3)]
    narrow = tape.tensor(part, dtype, f"{name}, turned")
    del turned
    out = tape.tensor(n, dtype, f"{name} with positions")
    del narrow
    tape.elementwise("rotary", 2 * x.size + part * 40, launches=10.0)

    def backward(grad: Tensor) -> tuple[Tensor]:
        passing = [tape.tensor(part, _FP32, f"gradient of {name}, turned part") for _ in range(3)]
        del passing
        first = tape.tensor(n, dtype, f"gradient of {name}, turned part among zeros")
        second = tape.tensor(n, dtype, f"gradient of {name}, other part among zeros")
        tape.elementwise("rotary", 7 * first.size + part * 60, launches=14.0)
        del second, grad
        return (first,)

    return tape.link(out, (x,), (), backward)


def _pooled(
    walk: Walk, x: Tensor, mixer: Attention, named: Mapping[str, Weight], turned: float
) -> Tensor:
    """Each window of tokens as one key, weighted by a softmax over the window in fp32.

    With two series per token (rate 4) both are laid out anew. Autocast sums in fp32, in which the
    pooled keys stay.
    """
    tape, tokens = walk.tape, walk.tokens
    values = linear(walk, share(x), named["compressor.kv_proj"])
    gate = linear(walk, x, named["compressor.gate_proj"])
    del x
    gate = _wider(walk, gate, "gate and position bias")
    if named["compressor.kv_proj"].out_features > mixer.head_dim:
        values = _laid_out(walk, values, "pooled values, both series")
        gate = _laid_out(walk, gate, "gate, both series")
    chances = cast(walk, _softmax(walk, gate), values.dtype, "chances in the window")
    del gate
    weighted = multiply(walk, values, chances, "values times chances")
    del values, chances
    elements, dtype = weighted.elements, weighted.dtype
    inner = _FP32 if walk.recipe.autocast else dtype
    out = tape.tensor(tokens / mixer.pooled * mixer.head_dim, inner, "pooled keys")
    tape.elementwise("sum", weighted.size + out.size)

    def backward(grad: Tensor) -> tuple[Tensor]:
        del grad
        return (tape.tensor(elements, dtype, "gradient of values times chances"),)

    pooled = tape.link(out, (weighted,), (), backward)
    del out, weighted
    return _turned_tail(walk, norm(walk, pooled, named["compressor.kv_norm"]), turned, "pooled")


def _wider(walk: Walk, x: Tensor, name: str) -> Tensor:
    """Plus an fp32 parameter: an fp32 tensor; backward casts."""
    tape, n, source = walk.tape, x.elements, x.dtype
    out = tape.tensor(n, _FP32, name)
    tape.elementwise("add", x.size + out.size)

    def backward(grad: Tensor) -> tuple[Tensor]:
        if source is _FP32:
            return (grad,)
        del grad
        return (tape.tensor(n, source, f"gradient of {name}"),)

    return tape.link(out, (x,), (), backward)


def _laid_out(walk: Walk, x: Tensor, name: str) -> Tensor:
    """Copied into slices of a new tensor of the same size; backward into slices of zeros."""
    tape, n, dtype = walk.tape, x.elements, x.dtype
    out = tape.tensor(n, dtype, name)
    tape.elementwise("lay out", 3 * out.size, launches=3.0)

    def backward(grad: Tensor) -> tuple[Tensor]:
        copied = tape.tensor(n, dtype, f"gradient of {name}, copied")
        del grad
        result = tape.tensor(n, dtype, f"gradient before {name}")
        tape.elementwise("lay out", 8 * result.size, launches=9.0)
        del copied
        return (result,)

    return tape.link(out, (x,), (), backward)


def _softmax(walk: Walk, x: Tensor) -> Tensor:
    tape, n = walk.tape, x.elements
    if tape.grad and x.node is not None:
        tape.saves()
    out = tape.tensor(n, _FP32, "chances in the window as float32")
    tape.elementwise("softmax", 2 * out.size)

    def backward(grad: Tensor) -> tuple[Tensor]:
        product = tape.tensor(n, _FP32, "softmax backward: gradient times output")
        result = tape.tensor(n, _FP32, "gradient of gate")
        tape.elementwise("softmax", 5 * result.size, launches=2.0)
        del product, grad
        return (result,)

    return tape.link(out, (x,), (out,), backward)


def _pick(
    walk: Walk, x: Tensor, low: Tensor, mixer: Attention, named: Mapping[str, Weight]
) -> None:
    """The indexer: scores of every query and pooled key, of which only places remain.

    No gradient passes a choice, so its graph dies with the scores.
    """
    if "compressor.indexer.q_b_proj" not in named:
        return
    tape, tokens = walk.tape, walk.tokens
    recording = tape.grad
    tape.grad = False
    passing = [
        linear(walk, share(x), named["compressor.indexer.kv_proj"]),
        linear(walk, share(x), named["compressor.indexer.gate_proj"]),
    ]
    passing.clear()
    q = linear(walk, low, named["compressor.indexer.q_b_proj"])
    wide = cast(walk, q, _FP32, "index queries")
    heads = named["compressor.indexer.scorer.weights_proj"].out_features
    width = wide.elements / tokens / heads
    keys = walk.length / mixer.pooled
    scores = tokens * heads * keys
    alive = [tape.tensor(scores, _FP32, "index scores") for _ in range(3)]
    tape.matmul("index scores", tokens * heads, keys, width, _FP32)
    linear(walk, x, named["compressor.indexer.scorer.weights_proj"])
    tape.elementwise("index scores", 7 * alive[0].size, launches=8.0)
    del alive, q, wide
    tape.grad = recording


def _joined(walk: Walk, x: Tensor, pooled: Tensor) -> Tensor:
    """Keys and pooled keys in one tensor, in the wider dtype; gradients are views of its own."""
    tape, kinds = walk.tape, (x.dtype, pooled.dtype)
    sizes = (x.elements, pooled.elements)
    dtype = promote(*kinds)
    out = tape.tensor(sizes[0] + sizes[1], dtype, "keys and pooled keys")
    tape.elementwise("join", x.size + pooled.size + out.size)

    def backward(grad: Tensor) -> tuple[Tensor, ...]:
        found = []
        for size, kind in zip(sizes, kinds, strict=True):
            if kind is dtype:
                found.append(Tensor(grad.storage, size, kind, is_view=True))
            else:
                found.append(tape.tensor(size, kind, "gradient of keys and values"))
        return tuple(found)

    return tape.link(out, (x, pooled), (), backward)


def _every_head(walk: Walk, x: Tensor, mixer: Attention, name: str) -> Tensor:
    """The one head as seen by every query head: a view, or copies where autocast casts them."""
    tape, elements, source = walk.tape, x.elements, x.dtype
    repeated = elements * mixer.num_attention_heads
    operand = walk.recipe.compute_dtype if walk.recipe.autocast else source
    if operand is source:
        out = Tensor(x.storage, repeated, source)
    else:
        out = tape.tensor(repeated, operand, f"{name} of every head as {operand}")
        tape.elementwise("cast", x.size + out.size)

    def backward(grad: Tensor) -> tuple[Tensor]:
        if operand is not source:
            wide = tape.tensor(repeated, source, f"gradient of {name} of every head as {source}")
            tape.elementwise("cast", grad.size + wide.size)
            del grad, wide
        result = tape.tensor(elements, source, f"gradient of {name}")
        tape.elementwise("sum", repeated * source.num_bytes + result.size)
        return (result,)

    return tape.link(out, (x,), (), backward)


def _grouped(walk: Walk, x: Tensor, weight: Weight, mixer: Attention) -> Tensor:
    """A block-diagonal product, one group of heads each; its output is put in order by a copy."""
    tape, elements, operand = walk.tape, x.elements, x.dtype
    role = role_of(weight, walk.recipe, walk.place)
    groups = mixer.output_groups
    rows = walk.tokens
    size = rows * weight.out_features
    trained = role.trained or role.copied
    if tape.grad and (trained or x.node is not None):
        tape.saves()
    product = tape.tensor(size, operand, f"{weight.leaf} output by group")
    out = tape.tensor(size, operand, f"{weight.leaf} output")
    wide = weight.out_features / groups
    _multiply_groups(walk, weight, rows, wide, weight.in_features, groups)
    tape.elementwise("put in order", 2 * out.size)
    del product

    def backward(grad: Tensor) -> tuple[Tensor]:
        result = tape.tensor(elements, operand, f"gradient of {weight.leaf} input by group")
        _multiply_groups(walk, weight, rows, weight.in_features, wide, groups)
        if trained:
            _multiply_groups(walk, weight, wide, weight.in_features, rows, groups)
            dtype = walk.recipe.gradient_dtype or role.used_dtype
            tape.weight_gradient(float(weight.num_parameters), dtype, weight.leaf)
        del grad
        ordered = tape.tensor(elements, operand, f"gradient of {weight.leaf} input")
        tape.elementwise("put in order", 2 * ordered.size)
        del result
        return (ordered,)

    return tape.link(out, (x,), [x] if trained else [], backward, trains=trained)


def _multiply_groups(
    walk: Walk, weight: Weight, m: Number, n: Number, k: Number, groups: int
) -> None:
    walk.tape.matmul(
        weight.leaf,
        m * groups,
        n,
        k,
        walk.recipe.compute_dtype,
        kind=OperationKind.GROUPED_MATMUL,
        num_groups=groups,
    )
