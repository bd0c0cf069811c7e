"""Packing against trl's own: the same rows, in the same order, and how long a million takes.

    python tools/packing_against_trl.py > docs/internals/packing_against_trl.md

Needs trl (1.0 or newer), its torch, and datasets beside tuneplan.
"""

from __future__ import annotations

import importlib.metadata
import sys
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
from datasets import Dataset
from trl import pack_dataset
from trl.data_utils import _pack_bfd

from tuneplan.estimation.packed_rows import pack_best_fit_decreasing
from tuneplan.tokens.packings import packings_of

TABLES = 200
SEED = 1
Numbers = np.ndarray


def uniform(draw: np.random.Generator, count: int, room: int) -> Numbers:
    """Every length up to the room alike."""
    return draw.integers(1, room + 1, count)


def log_normal(draw: np.random.Generator, count: int, room: int) -> Numbers:
    """As chat data is: many short, few long, some too long."""
    return np.maximum(1, draw.lognormal(np.log(room / 8), 1.0, count).astype(np.int64))


def table_of(lengths: Numbers) -> pa.Table:
    """Samples whose every token is the sample's own number."""
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    tokens = np.repeat(np.arange(len(lengths)), lengths)
    lists = pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(tokens))
    return pa.table({"input_ids": lists})


def rows_of_trl(lengths: Numbers, room: int) -> list[list[int]]:
    """The samples of each row that trl makes."""
    packed = _pack_bfd(table_of(lengths), room)
    rows = []
    columns = (packed["input_ids"].to_pylist(), packed["seq_lengths"].to_pylist())
    for tokens, sizes in zip(*columns, strict=True):
        starts = np.cumsum([0, *sizes[:-1]])
        rows.append([tokens[start] for start in starts])
    return rows


def same_rows() -> int:
    """How many of the random tables are packed alike, sample by sample."""
    draw = np.random.default_rng(SEED)
    same = 0
    for number in range(TABLES):
        room = int(draw.integers(4, 400))
        make: Callable[..., Numbers] = (uniform, log_normal)[number % 2]
        lengths = make(draw, int(draw.integers(1, 2_000)), int(room * 1.2))
        lengths[draw.random(len(lengths)) < 0.01] = 0
        ours = [row.tolist() for row in pack_best_fit_decreasing(lengths, room).rows()]
        same += ours == rows_of_trl(lengths, room)
    return same


def rows_of_data_sets() -> list[tuple[str, int, int, int]]:
    """Rows of whole data sets through ``trl.pack_dataset``, beside what the profile says."""
    draw = np.random.default_rng(SEED)
    found = []
    for make in (uniform, log_normal):
        lengths = make(draw, 10_500, 512)
        data = Dataset(table_of(lengths))
        ours = packings_of(lengths, 512, 8)
        for strategy in ("bfd", "bfd_split", "wrapped"):
            rows = len(pack_dataset(data, 512, strategy))
            found.append((f"{make.__name__}, {strategy}", len(lengths), rows,
                          ours[f"trl_{strategy}"].rows))  # fmt: skip
    return found


def a_million() -> list[tuple[str, float, int, int]]:
    """Processor seconds, rows, and the rows that none can do without, for a million lengths."""
    draw = np.random.default_rng(SEED)
    found = []
    sets = ((uniform, 2_048), (uniform, 8_192), (log_normal, 4_096), (log_normal, 32_768))
    for make, room in sets:
        lengths = make(draw, 1_000_000, room)
        started = time.process_time()
        rows = pack_best_fit_decreasing(lengths, room).num_rows
        seconds = time.process_time() - started
        name = f"{make.__name__}, rows of {room:,}"
        found.append((name, seconds, rows, lower_bound(lengths, room)))
    return found


def lower_bound(lengths: Numbers, room: int) -> int:
    """Rows that no packing can do without: Martello and Toth's L2 (1990)."""
    counts = np.bincount(np.minimum(lengths, room), minlength=room + 1)
    number, tokens = np.cumsum(counts), np.cumsum(counts * np.arange(room + 1))
    half = room // 2
    short = np.arange(half + 1)
    alone = number[-1] - number[room - short]
    long = number[room - short] - number[half]
    long_tokens = tokens[room - short] - tokens[half]
    rest = tokens[half] - np.where(short > 0, tokens[short - 1], 0)
    more = np.maximum(0, -(-(rest - (long * room - long_tokens)) // room))
    return max(-(-int(tokens[-1]) // room), int((alone + long + more).max()))


def main() -> None:
    """Print the page."""
    trl, datasets = importlib.metadata.version("trl"), importlib.metadata.version("datasets")
    same = same_rows()
    print("# Packing against trl's own\n")
    print(f"Made by `tools/packing_against_trl.py` with trl {trl} and datasets {datasets}.\n")
    print(f"`pack_best_fit_decreasing` and `_pack_bfd` on {TABLES} random tables of samples:")
    print(f"{same} alike, every row with the same samples in the same order.\n")
    print("Whole data sets through `trl.pack_dataset`, beside the rows of `data profile`:\n")
    print("| lengths, strategy | samples | trl | tuneplan |")
    print("| --- | ---: | ---: | ---: |")
    for name, samples, theirs, ours in rows_of_data_sets():
        print(f"| {name} | {samples:,} | {theirs:,} | {ours:,} |")
    print("\nA million lengths, in seconds of one core of the machine that made this page:\n")
    print("| lengths | seconds | rows | lower bound | above it |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, seconds, rows, bound in a_million():
        print(f"| {name} | {seconds:.2f} | {rows:,} | {bound:,} | {rows / bound - 1:.4%} |")
    print("\nThe lower bound is Martello and Toth's L2: no packing needs fewer rows.")
    sys.exit(same != TABLES)


if __name__ == "__main__":
    main()
