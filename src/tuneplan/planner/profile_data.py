"""Use-case: what a data set holds, in tokens of the model's tokenizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuneplan.errors import InputError, InvalidRequest

if TYPE_CHECKING:
    from tuneplan.spec.answer import Estimate
    from tuneplan.tokens.profile import DataProfile
    from tuneplan.tokens.profiling import Progress

_PERCENTILES = {
    0.05: "p5",
    0.25: "p25",
    0.5: "p50",
    0.75: "p75",
    0.9: "p90",
    0.95: "p95",
    0.99: "p99",
}


def profile_data(
    paths: Sequence[str | Path],
    *,
    model: str | None = None,
    tokenizer: str | None = None,
    max_length: int | Sequence[int] | None = None,
    per_device_train_batch_size: int | None = None,
    skip_bad_rows: bool = False,
    workers: int | None = None,
    ray_address: str | None = None,
    progress: Progress | None = None,
) -> DataProfile:
    """Read data files and count them with a real tokenizer.

    Args:
        paths: JSON Lines or JSON files; together they are one data set.
        model: The model whose tokenizer counts: a name, a hub id, a folder.
        tokenizer: A tokenizer file or folder, a model's name, or ``approximate``; wins over model.
        max_length: One or more lengths to look at; None for the usual ones.
        per_device_train_batch_size: Samples of a batch behind the padding figures; None for 8.
        skip_bad_rows: Bad rows are left out, counted and located; without it they are an error.
        workers: Processes; None for all cores, where the files are large.
        ray_address: A Ray cluster that counts, ``local`` for one on this machine.
        progress: Told now and then how many bytes of how many are read.

    Raises:
        InvalidRequest: Files that cannot be read, or hold no sample or a bad row; every reason at
            once.
        InputError: No tokenizer for the model; says what to install or to name.
        MissingExtra: The tokenizer's library is not installed.
    """
    from tuneplan.planner.engines import chosen_engine
    from tuneplan.tokens.files import data_files
    from tuneplan.tokens.profiling import BATCH_SIZE, profile_files
    from tuneplan.tokens.tokenizers import find_tokenizer

    lengths = (max_length,) if isinstance(max_length, int) else tuple(max_length or ())
    _, problems = data_files(paths)
    try:
        counter = find_tokenizer(tokenizer=tokenizer, model=model)
    except InputError as error:
        if not problems:
            raise
        raise InvalidRequest([*problems, *error.mistakes]) from error
    return profile_files(
        paths,
        tokenizer=counter,
        max_lengths=lengths,
        per_device_train_batch_size=per_device_train_batch_size or BATCH_SIZE,
        skip_bad_rows=skip_bad_rows,
        progress=progress,
        engine=chosen_engine(workers=workers, ray_address=ray_address),
    )


def profile_answer(profile: DataProfile) -> dict[str, Any]:
    """The fields of the ``data profile`` answer as plain JSON, without the answer's header."""
    lengths = profile.length
    return {
        "files": [
            {
                "path": file.path,
                "format": file.format,
                "bytes": file.size_bytes,
                "rows_ok": file.rows_ok,
                "rows_bad": file.rows_bad,
                "blank_lines": file.blank_lines,
                "shape": file.shape,
            }
            for file in profile.files
        ],
        "bad_rows": [
            {
                "path": row.path,
                "line": row.line,
                "column": row.column,
                "code": row.code,
                "message": str(row.message),
            }
            for row in profile.bad_rows
        ],
        "bad_rows_by_code": dict(profile.bad_rows_by_code),
        "shape": profile.shape,
        "tokenizer": {
            "name": profile.tokenizer.name,
            "source": profile.tokenizer.source,
            "vocab_size": profile.tokenizer.vocab_size,
        },
        "exact": profile.exact,
        "sampled": profile.sampled,
        "num_samples": profile.num_samples,
        "sequences_per_sample": profile.sequences_per_sample,
        "tokens": {
            "all": _range(profile.tokens.all),
            "trained": _range(profile.tokens.trained),
            "image": _range(profile.tokens.image),
        },
        "length": {
            "mean": lengths.mean,
            "min": lengths.min,
            **{_PERCENTILES[key]: value for key, value in lengths.quantiles.items()},
            "max": lengths.max,
            "histogram": [
                {"low": one.low, "high": one.high, "count": one.count} for one in lengths.histogram
            ],
        },
        "per_device_train_batch_size": profile.per_device_train_batch_size,
        "at_max_length": [
            {
                "max_length": one.max_length,
                "truncated_samples_fraction": one.truncated_samples_fraction,
                "truncated_tokens_fraction": one.truncated_tokens_fraction,
                "packed_efficiency": dict(one.packed_efficiency),
                "padding_fraction": dict(one.padding_fraction),
                "worst_batch_tokens": one.worst_batch_tokens,
            }
            for one in profile.at_max_length
        ],
        "recommended": {
            "max_length": profile.recommended.max_length,
            "reason": str(profile.recommended.reason),
            "alternatives": [
                {"max_length": one.max_length, "reason": str(one.reason)}
                for one in profile.recommended.alternatives
            ],
        },
        "duplicates": profile.duplicates,
        "empty": profile.empty,
        "storage": {
            "raw_bytes": profile.storage.raw_bytes,
            "tokenised_bytes": profile.storage.tokenised_bytes,
        },
    }


def _range(estimate: Estimate | None) -> Mapping[str, Any] | None:
    if estimate is None:
        return None
    return {
        "low": estimate.low,
        "likely": estimate.likely,
        "high": estimate.high,
        "basis": estimate.basis.value,
    }
