"""Room on disk and time on the wire: checkpoints, data sets, transfers."""

from __future__ import annotations

from typing import Final

# A network seldom gives its nominal rate for hours: 1 TB over 1 Gbit/s takes 2.2 h by the
# number and about 3 h in practice.
TRANSFER_EFFICIENCY: Final = 0.75


def checkpoint_bytes(
    *,
    num_saved_parameters: float,
    bytes_per_parameter: float,
    num_trained_parameters: float = 0,
    optimizer_bytes_per_parameter: float = 0,
) -> float:
    """Bytes of one checkpoint.

    Args:
        num_saved_parameters: All of them, or the adapter's and ``modules_to_save`` alone.
        bytes_per_parameter: Of the dtype that is written.
        num_trained_parameters: Those the optimizer has states for; 0 = weights only.
        optimizer_bytes_per_parameter: States and master weights: 8 for AdamW in fp32, 12 with
            fp32 masters beside 16-bit weights.
    """
    weights = num_saved_parameters * bytes_per_parameter
    return weights + num_trained_parameters * optimizer_bytes_per_parameter


def kept_bytes(
    *, one_checkpoint_bytes: float, num_saves: int, save_total_limit: int | None
) -> float:
    """Bytes of all checkpoints that are on disk at once.

    The new checkpoint is written before the oldest goes (transformers ``Trainer``:
    ``_rotate_checkpoints`` runs after the save), so the limit is exceeded by one for a moment.
    """
    if save_total_limit is None:
        return num_saves * one_checkpoint_bytes
    return min(num_saves, save_total_limit + 1) * one_checkpoint_bytes


def write_s(*, size_bytes: float, bandwidth_bytes_per_s: float) -> float:
    """Seconds to write or read at a sustained rate."""
    return size_bytes / bandwidth_bytes_per_s


def transfer_s(
    *, size_bytes: float, bandwidth_bytes_per_s: float, efficiency: float = TRANSFER_EFFICIENCY
) -> float:
    """Seconds to move data over a network that gives ``efficiency`` of its nominal rate."""
    return size_bytes / (bandwidth_bytes_per_s * efficiency)


def raw_text_bytes(*, num_samples: float, words_per_sample: float, bytes_per_word: float) -> float:
    """Bytes of plain text."""
    return num_samples * words_per_sample * bytes_per_word


def tokenized_bytes(*, num_tokens: float, bytes_per_token: float) -> float:
    """Bytes of token columns: 4 for int32 ids alone, 9 with an int8 mask and int32 labels."""
    return num_tokens * bytes_per_token
