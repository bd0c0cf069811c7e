"""Which tensor of a job stands behind the request that failed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tuneplan.diagnosis.oom_stage import IN_A_STEP, Stage
from tuneplan.diagnosis.oom_tensors import KnownTensor
from tuneplan.diagnosis.oom_text import Failure, Source
from tuneplan.frozen import dataclass
from tuneplan.language import message
from tuneplan.units import MIB

# PyTorch ``c10/cuda/CUDACachingAllocator.h``: requests up to 1 MiB share blocks of 2 MiB, those
# under 10 MiB blocks of 20 MiB, larger ones are rounded up to 2 MiB. The message names the block.
_SMALL: Final = MIB
_SMALL_BLOCK: Final = 2 * MIB
_LARGE: Final = 10 * MIB
_LARGE_BLOCK: Final = 20 * MIB
_STEP: Final = 2 * MIB
_NEAR: Final = 0.01  # how far a size may be off that is shown where none fits exactly
_SHOWN: Final = 5
_LEAST_LOGITS: Final = 64 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A tensor whose size is the requested one.

    Attributes:
        size_bytes: Of the tensor, before rounding.
        error_fraction: Of its block against the request, beyond what the message rounds away.
        fits_stage: Whether the stage asks for such a tensor.
    """

    tensor: KnownTensor
    size_bytes: float
    error_fraction: float
    fits_stage: bool

    @property
    def exact(self) -> bool:
        """Whether the block prints as the request does."""
        return self.error_fraction == 0.0


def block_bytes(size_bytes: float) -> int:
    """The block that PyTorch's allocator asks the driver for, as its message prints it."""
    size = -(-int(size_bytes) // 512) * 512
    if size <= _SMALL:
        return _SMALL_BLOCK
    if size < _LARGE:
        return _LARGE_BLOCK
    return -(-size // _STEP) * _STEP


def is_a_pool_block(failure: Failure) -> bool:
    """Whether the request is a block for several small tensors, which tells of none of them."""
    requested = failure.requested
    return (
        failure.source is Source.ALLOCATOR
        and requested is not None
        and requested.size_bytes in (_SMALL_BLOCK, _LARGE_BLOCK)
    )


def matches(
    failure: Failure, tensors: Iterable[KnownTensor], stage: Stage, within: Stage | None = None
) -> tuple[Match, ...]:
    """Tensors of the requested size, the likeliest first, one of a name.

    Near ones only where none fits exactly; those of another stage only where none is of this one.

    ``within`` is where in the step a later failure was.
    """
    requested = failure.requested
    if requested is None or is_a_pool_block(failure) or requested.size_bytes <= 0:
        return ()
    now = within or stage
    found = []
    for tensor in tensors:
        block = (
            block_bytes(tensor.size_bytes)
            if failure.source is Source.ALLOCATOR
            else int(tensor.size_bytes)
        )
        off = max(abs(block - requested.size_bytes) - requested.half_step_bytes, 0)
        error = off / requested.size_bytes
        if error <= _NEAR:
            fits = now is Stage.UNKNOWN or now in tensor.stages
            found.append(
                Match(
                    tensor=tensor,
                    size_bytes=tensor.size_bytes,
                    error_fraction=error,
                    fits_stage=fits,
                )
            )
    exact = [match for match in found if match.exact]
    ranked = sorted(exact or found, key=lambda match: (not match.fits_stage, match.error_fraction))
    if ranked and ranked[0].fits_stage:
        ranked = [match for match in ranked if match.fits_stage]
    by_name = {str(one.tensor.name): one for one in reversed(ranked)}
    return tuple(list(by_name.values())[::-1][:_SHOWN])


def perhaps_logits(
    failure: Failure, *, vocabulary: int, width: int, rows: int, limit_length: int, stage: Stage
) -> Match | None:
    """How many tokens the batch had, if the request was for its logits.

    Where batches have the length of their longest sample, logits have a size of their own in each;
    any size is that of some number of tokens, so this proves nothing and says "perhaps".
    """
    requested = failure.requested
    in_a_pass = stage in (*IN_A_STEP[:2], Stage.LATER, Stage.EVALUATION, Stage.UNKNOWN)
    if requested is None or requested.size_bytes < _LEAST_LOGITS or not in_a_pass:
        return None
    tokens = requested.size_bytes // (vocabulary * width)
    if not rows <= tokens <= rows * limit_length:
        return None
    tensor = KnownTensor(
        kind="perhaps_logits",
        name=message(
            "tensor_perhaps_logits",
            "perhaps logits ({width} B a value) of a batch of {tokens} tokens",
            width=width,
            tokens=tokens,
        ),
        formula=f"{tokens} x {vocabulary} x {width} B",
        size_bytes=float(tokens * vocabulary * width),
    )
    off = abs(block_bytes(tensor.size_bytes) - requested.size_bytes) / requested.size_bytes
    return Match(tensor=tensor, size_bytes=tensor.size_bytes, error_fraction=off, fits_stage=True)
