"""Use-case: a data set as shards of tokens on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuneplan.errors import InputError, InvalidRequest, Mistake
from tuneplan.language import message

if TYPE_CHECKING:
    from tuneplan.tokens.profiling import Progress
    from tuneplan.tokens.tokenising import TokenShards

_ROWS_OF_A_SHARD = ("name", "rows", "sequences", "tokens", "bytes", "sha256")


def tokenise_data(
    paths: Sequence[str | Path],
    output: str | Path,
    *,
    model: str | None = None,
    tokenizer: str | None = None,
    max_length: int | None = None,
    packing: str = "none",
    too_long: str = "cut",
    learned: str = "answers",
    shard_format: str = "arrow",
    shard_bytes: int | None = None,
    skip_bad_rows: bool = False,
    workers: int | None = None,
    ray_address: str | None = None,
    progress: Progress | None = None,
) -> TokenShards:
    """Write data files as shards of tokens that ``datasets`` loads and a trainer takes.

    A run that is killed leaves no folder of the name ``output``; the same call goes on from where
    it was, and gives the same bytes.

    Args:
        paths: Data files, URLs or folders of ``datasets``; together they are one data set.
        output: The folder to make.
        model: The model whose tokenizer is taken: a name, a hub id, a folder.
        tokenizer: A tokenizer file or folder, or a model's name; wins over model.
        max_length: Tokens of a row at most; needed to pack.
        packing: ``none``, ``bfd``, ``in_order`` or ``wrapped``; within each shard.
        too_long: ``cut`` or ``drop``: what becomes of samples beyond ``max_length``.
        learned: ``answers`` or ``all``: which tokens have a label other than -100.
        shard_format: ``arrow`` or ``parquet``.
        shard_bytes: Data that goes into a shard, as stored; None for 32 MiB.
        skip_bad_rows: Bad rows are left out, counted and located; without it they are an error.
        workers: Processes; None for all cores.
        ray_address: A Ray cluster that does the work, ``local`` for one on this machine.
        progress: Told now and then how many bytes of how many are done.

    Raises:
        InputError: What the user can mend; ``.mistakes`` lists all of it.
        MissingExtra: A library is not installed.
    """
    from tuneplan.planner.engines import chosen_engine
    from tuneplan.tokens.files import data_files
    from tuneplan.tokens.shard_files import ShardFormat
    from tuneplan.tokens.token_rows import Learned, Packing, RowSettings, TooLong
    from tuneplan.tokens.tokenising import SHARD_BYTES, ShardSettings, tokenise_files
    from tuneplan.tokens.tokenizers import find_tokenizer

    files, problems = data_files(paths)
    if packing != Packing.NONE and max_length is None:
        problems.append(_no_length(packing))
    try:
        found = find_tokenizer(tokenizer=tokenizer, model=model)
    except InputError as error:
        problems += error.mistakes
        raise InvalidRequest(problems) from error
    if problems:
        raise InvalidRequest(problems)
    settings = ShardSettings(
        rows=RowSettings(
            max_length=max_length,
            packing=Packing(packing),
            too_long=TooLong(too_long),
            learned=Learned(learned),
        ),
        format=ShardFormat(shard_format),
        shard_bytes=shard_bytes or SHARD_BYTES,
    )
    return tokenise_files(
        files,
        Path(output),
        tokenizer=found,
        settings=settings,
        skip_bad_rows=skip_bad_rows,
        progress=progress,
        engine=chosen_engine(workers=workers, ray_address=ray_address),
    )


def _no_length(packing: str) -> Mistake:
    return Mistake(
        message=message(
            "packing_needs_length",
            "rows are packed up to a length: --max-length is needed with --pack {packing}",
            packing=packing,
        ),
        path="--max-length",
    )


def tokenise_answer(shards: TokenShards) -> dict[str, Any]:
    """The fields of the ``data tokenize`` answer as plain JSON, without the answer's header."""
    manifest = shards.manifest
    settings, totals = manifest["settings"], manifest["totals"]
    packed = settings["packing"] != "none" and totals["rows"]
    return {
        "output": shards.folder,
        "format": settings["format"],
        "settings": settings,
        "tokenizer": manifest["tokenizer"],
        "files": manifest["data"],
        "num_samples": totals["samples"],
        "num_sequences": totals["sequences"],
        "num_rows": totals["rows"],
        "tokens": totals["tokens"],
        "labels": totals["labels"],
        "cut_sequences": totals["cut_sequences"],
        "cut_tokens": totals["cut_tokens"],
        "dropped_sequences": totals["dropped_sequences"],
        "empty_sequences": totals["empty_sequences"],
        "packed_efficiency": (
            totals["tokens"] / (totals["rows"] * settings["max_length"]) if packed else None
        ),
        "size_bytes": totals["bytes"],
        "shards": [{name: one[name] for name in _ROWS_OF_A_SHARD} for one in manifest["shards"]],
        "num_resumed": shards.num_resumed,
        "bad_rows": manifest["bad_rows"],
        "bad_rows_by_code": manifest["bad_rows_by_code"],
    }
