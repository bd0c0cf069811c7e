"""What happens to heads on their way to the attention kernel: positions, repeated keys."""

from __future__ import annotations

from tuneplan.estimation.modules import Walk, promote
from tuneplan.estimation.operations import Number
from tuneplan.estimation.shadow import Tensor
from tuneplan.spec.blocks import Attention
from tuneplan.spec.recipe import DType


def strided(dtype: DType, traffic: Number) -> Number:
    """The traffic that counts as strided: that of half precision (four-byte loads keep up)."""
    return traffic if dtype.num_bytes == 2 else 0.0


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
