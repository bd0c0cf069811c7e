"""What a head fused with its loss costs: no whole logits, gradients made in the forward."""

from __future__ import annotations

import math

import numpy as np

from tuneplan.estimation.logits import trained_share
from tuneplan.estimation.modules import Walk, cast
from tuneplan.estimation.operations import Number, OperationKind
from tuneplan.estimation.roles import role_of
from tuneplan.estimation.shadow import Tensor
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.recipe import DType

_FP32 = DType.FLOAT32


def fused_linear_loss(
    walk: Walk, holder: list[Tensor], model: ModelArchitecture, held: list[Tensor]
) -> Tensor:
    """Head and loss in one function that makes its gradients in the forward, chunk by chunk.

    A chunk is the next power of two of ``T / ceil(V / h)`` rows; alive per chunk: half logits, an
    fp32 copy, a half copy and its scaled copy.
    Source: Liger-Kernel ``ops/fused_linear_cross_entropy.py`` (0.2); its published timings on an
    A100 (8,192 to 32,768 x 4,096 x 128,256) are these products and bytes within 6 %.
    """
    del held
    tape, recipe, head = walk.tape, walk.recipe, model.head_weight
    x = trained_share(walk, holder)
    role = role_of(head, recipe, walk.place)
    compute = recipe.compute_dtype if recipe.autocast else x.dtype
    x = cast(walk, x, compute, "last hidden state")
    elements, vocab, hidden = x.elements, head.out_features, head.in_features
    tokens = elements / hidden
    rows = _chunk_rows(tokens, vocab, hidden)
    saved = [tape.tensor(elements, compute, "gradient of last hidden state")]
    if role.trained or role.copied:
        saved.append(
            tape.tensor(float(vocab * hidden), compute, "gradient of head, made in the forward")
        )
    chunk = [
        tape.tensor(rows * vocab, compute, "chunk of logits"),
        tape.tensor(rows * vocab, _FP32, "chunk of logits as float32"),
        tape.tensor(rows * vocab, compute, "chunk of logits' gradient"),
        tape.tensor(rows * vocab, compute, "chunk of logits' gradient, scaled"),
    ]
    chunks = float(np.mean(np.ceil(tokens / rows)))
    tape.matmul("lm_head", tokens, vocab, hidden, compute)
    tape.matmul("lm_head input gradient", tokens, hidden, vocab, compute)
    if role.trained or role.copied:
        tape.matmul("lm_head weight", vocab, hidden, tokens, compute)
    # Half logits cast to fp32 (6 B), read twice and overwritten with their gradient (12 B), which
    # is cast back (6 B); a trained head's gradient is summed up chunk by chunk (read and written).
    cast_traffic = 12 * tokens * vocab if compute is not _FP32 else 0.0
    sums = 0.0
    if role.trained or role.copied:
        sums = 2.0 * chunks * vocab * hidden * compute.num_bytes
    tape.elementwise(
        "cross entropy",
        12 * tokens * vocab + cast_traffic + sums,
        launches=10 * chunks,
        kind=OperationKind.LOSS,
        casting=cast_traffic,
    )
    del chunk
    loss = tape.tensor(1.0, _FP32, "loss")
    storages = [tensor.storage for tensor in saved]
    dtype = recipe.gradient_dtype or role.used_dtype
    del saved

    def backward(grad: Tensor) -> tuple[Tensor]:
        del grad
        if len(storages) > 1:
            storages.pop()
            tape.weight_gradient(float(vocab * hidden), dtype, "lm_head")
        return (Tensor(storages.pop(), elements, compute),)

    return tape.link(loss, (x,), (), backward, trains=True)


def _chunk_rows(tokens: Number, vocab: int, hidden: int) -> Number:
    target = np.ceil(np.asarray(tokens) / math.ceil(vocab / hidden))
    rows = np.exp2(np.ceil(np.log2(np.maximum(target, 1.0))))
    return rows if isinstance(tokens, np.ndarray) else float(rows)
