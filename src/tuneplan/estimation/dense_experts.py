"""Experts that all run on every token, weighted before: Llama 4 as transformers trains it.

The input is repeated once for each expert and multiplied by the router's scores, most of them
zero; all experts then run in one batched product. Memory grows with the number of experts, not
with those a token is sent to.
Source: transformers 4.51-5.24 ``models/llama4/modeling_llama4.py Llama4TextMoe``,
``Llama4TextExperts``.
"""

from __future__ import annotations

from tuneplan.estimation.modules import Walk
from tuneplan.estimation.operations import Number
from tuneplan.estimation.shadow import Tensor


def repeated(walk: Walk, x: Tensor, times: int) -> Tensor:
    """``x.repeat(times, 1)``: backward sums over the copies."""
    tape, elements, dtype = walk.tape, x.elements, x.dtype
    out = tape.tensor(times * elements, dtype, "input, once for each expert")
    tape.elementwise("repeat", x.size + out.size)

    def backward(grad: Tensor) -> tuple[Tensor]:
        tape.elementwise("sum copies", grad.size)
        del grad
        return (tape.tensor(elements, dtype, "gradient of experts' input"),)

    return tape.link(out, (x,), (), backward)


def summed(walk: Walk, hidden: Tensor, shared: Tensor, elements: Number) -> Tensor:
    """The experts' outputs added up, into the shared expert's output in place."""
    tape, rows, dtype = walk.tape, hidden.elements, hidden.dtype
    routed = tape.tensor(elements, dtype, "experts' output, summed")
    tape.elementwise("sum experts", hidden.size + routed.size)

    def backward(grad: Tensor) -> tuple[Tensor]:
        copies = tape.tensor(rows, dtype, "gradient of experts' output")
        tape.elementwise("copy", grad.size + copies.size)
        del grad
        return (copies,)

    routed = tape.link(routed, (hidden,), (), backward)
    del hidden
    tape.elementwise("add", 3 * shared.size)
    out = Tensor(shared.storage, elements, shared.dtype)
    return tape.link(out, (shared, routed), (), lambda grad: (grad, _same(grad)))


def _same(grad: Tensor) -> Tensor:
    return Tensor(grad.storage, grad.elements, grad.dtype, is_view=grad.is_view)
