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


def kept_checkpoints(*, num_saves: int, last: int | None, best: bool = False) -> int:
    """Checkpoints that are on disk at once under "the last k, and the best", at their most.

    The best one may be older than the last k, and one more is there while the new one is written.
    ``transformers`` counts the best within ``save_total_limit``, so "last 3 + best" is a limit of 4
    with ``load_best_model_at_end``.

    Args:
        num_saves: Saves of the whole run.
        last: k; None keeps all.
        best: Whether the best is kept besides.
    """
    return num_saves if last is None else min(num_saves, last + int(best) + 1)


def write_s(*, size_bytes: float, bandwidth_bytes_per_s: float) -> float:
    """Seconds to write or read at a sustained rate."""
    return size_bytes / bandwidth_bytes_per_s


def gathered_stall_s(
    *,
    size_bytes: float,
    disk_bytes_per_s: float,
    gathered_bytes: float = 0,
    link_bytes_per_s: float = 1,
) -> float:
    """Seconds that training stands still while one process writes the whole checkpoint.

    Args:
        size_bytes: Of the checkpoint.
        disk_bytes_per_s: What one writer gets.
        gathered_bytes: What lies on other ranks and comes over ``link_bytes_per_s`` first.
        link_bytes_per_s: Of the slowest link between the ranks.
    """
    return gathered_bytes / link_bytes_per_s + size_bytes / disk_bytes_per_s


def sharded_stall_s(
    *, size_bytes: float, disk_bytes_per_s: float, num_nodes: int, shared_disk: bool
) -> float:
    """Seconds that training stands still while every machine writes its share.

    Disks of their own write at the same time; one that all share gives no more than its rate.
    """
    writers = 1 if shared_disk else num_nodes
    return size_bytes / writers / disk_bytes_per_s


def asynchronous_stall_s(
    *, rank_bytes: float, copy_bytes_per_s: float, write_seconds: float, interval_s: float
) -> float:
    """Seconds that training stands still while its state is copied, and written meanwhile.

    Args:
        rank_bytes: What one rank copies to main memory, at ``copy_bytes_per_s``.
        copy_bytes_per_s: From the card to main memory.
        write_seconds: What the writing takes beside the training.
        interval_s: Training time to the next save; what the writing takes beyond it is waited for.
    """
    return rank_bytes / copy_bytes_per_s + max(0.0, write_seconds - interval_s)


def lost_fraction(*, num_saves: float, stall_s: float, other_s: float) -> float:
    """Share of the run that is spent standing still for checkpoints."""
    stalls = num_saves * stall_s
    return stalls / (stalls + other_s) if stalls + other_s > 0 else 0.0


def transfer_s(
    *, size_bytes: float, bandwidth_bytes_per_s: float, efficiency: float = TRANSFER_EFFICIENCY
) -> float:
    """Seconds to move data over a network that gives ``efficiency`` of its nominal rate."""
    return size_bytes / (bandwidth_bytes_per_s * efficiency)


def shipping_s(*, size_bytes: float, courier_s: float, disk_bytes_per_s: float) -> float:
    """Seconds to copy data to disks, have them carried, and copy them off again."""
    return courier_s + 2 * size_bytes / disk_bytes_per_s


def raw_text_bytes(*, num_samples: float, words_per_sample: float, bytes_per_word: float) -> float:
    """Bytes of plain text."""
    return num_samples * words_per_sample * bytes_per_word


def tokenized_bytes(*, num_tokens: float, bytes_per_token: float) -> float:
    """Bytes of token columns: 4 for int32 ids alone, 9 with an int8 mask and int32 labels."""
    return num_tokens * bytes_per_token
