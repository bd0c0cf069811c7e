"""Is the data of a job said in one way, and do its numbers agree?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from tuneplan.contract.job import JobFile
from tuneplan.contract.questions import get, mistake_at
from tuneplan.errors import Mistake
from tuneplan.language import message, phrase

_NUMBERS: Final = ("num_samples", "mean_tokens", "total_tokens", "quantiles")


def kinds_of_data(job: JobFile) -> Iterator[Mistake]:
    """Data is a path, a profile or numbers: one of them."""
    if job.data is None:
        return
    numbers = [name for name in _NUMBERS if getattr(job.data, name) is not None]
    kinds = [name for name in ("path", "profile") if getattr(job.data, name)] + numbers[:1]
    if len(kinds) > 1:
        yield mistake_at(
            f"data.{kinds[1]}",
            message(
                "two_kinds_of_data",
                "data is said in two ways: {first} and {second}",
                first=kinds[0],
                second=kinds[1],
            ),
            message("one_kind_of_data", "keep one: path, profile, or the numbers"),
            job=job,
        )
        return
    if job.data.skip_bad_rows and not (job.data.path or job.data.profile):
        yield mistake_at(
            "data.skip_bad_rows",
            message("no_rows_to_skip", "no rows are read, so that there are none to leave out"),
            message("name_data_files", "name the files (data.path), or leave it out"),
            job=job,
        )
    yield from _data_numbers(job)


def _data_numbers(job: JobFile) -> Iterator[Mistake]:
    data = job.data
    if data is None:
        return
    samples, mean, total = data.num_samples, data.mean_tokens, data.total_tokens
    if samples and mean and total and not math.isclose(samples * mean, total, rel_tol=0.02):
        yield mistake_at(
            "data.total_tokens",
            message(
                "tokens_do_not_add_up",
                "{samples:,} samples of {mean:,g} tokens are {product:,.0f} tokens, not {total:,}",
                samples=samples,
                mean=mean,
                product=samples * mean,
                total=total,
            ),
            message("one_of_mean_and_total", "keep mean_tokens or total_tokens"),
            job=job,
        )
    if samples and not mean and not total and not data.quantiles:
        yield mistake_at(
            "data.num_samples",
            message("samples_without_tokens", "the number of samples does not tell their length"),
            message("add_tokens", "add mean_tokens or total_tokens"),
            job=job,
        )
    if not samples and not total and (mean or data.quantiles):
        yield mistake_at(
            "data.mean_tokens" if mean else "data.quantiles",
            message("tokens_without_samples", "lengths do not tell the number of samples"),
            message("add_samples", "add num_samples"),
            job=job,
        )
    if samples and total and total < samples:
        yield mistake_at(
            "data.total_tokens",
            message("under_one_token", "that is less than one token a sample"),
            message("check_numbers", "check num_samples and total_tokens"),
            job=job,
        )
    mean = mean or (total / samples if total and samples else None)
    yield from _mean_among_quantiles(job, mean)


def _mean_among_quantiles(job: JobFile, mean: float | None) -> Iterator[Mistake]:
    ends = get(job, "data.quantiles") or {}
    least, most = ends.get(0.0, 0.0), ends.get(1.0, math.inf)
    if mean is not None and not least * 0.98 <= mean <= most * 1.02:
        yield mistake_at(
            "data.quantiles",
            message(
                "mean_beyond_quantiles",
                "the mean is {mean:,g} tokens, but no sample is {word} than {end:,g}",
                mean=mean,
                word=phrase("shorter") if mean < least else phrase("longer"),
                end=least if mean < least else most,
            ),
            message(
                "check_lengths", "check the mean and the quantiles; one of them may be left out"
            ),
            job=job,
        )
