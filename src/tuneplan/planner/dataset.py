"""What a job says about its data, as token statistics."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tuneplan.errors import InvalidRequest, Mistake
from tuneplan.frozen import dataclass
from tuneplan.language import message, sentence
from tuneplan.spec.answer import Assumption, Basis, Notice
from tuneplan.spec.data import TokenStatistics
from tuneplan.spec.stated import StatedData, StatedJob

if TYPE_CHECKING:
    from tuneplan.tokens.profile import DataProfile


_SHOWN_BAD_ROWS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """The data of a job.

    Attributes:
        statistics: None where the job says nothing about its data.
        profile: Where files or a profile were read.
    """

    statistics: TokenStatistics | None
    profile: DataProfile | None = None
    assumptions: tuple[Assumption, ...] = ()
    notices: tuple[Notice, ...] = ()


def read_dataset(job: StatedJob) -> Dataset:
    """Read files or a profile, take the stated numbers, or say that nothing is known."""
    data = job.data
    found = _read(job, data.eval_fraction or 0.0)
    statistics = found.statistics
    if data.eval_fraction and statistics is not None and not statistics.num_samples:
        raise InvalidRequest([_nothing_to_train_on(data.eval_fraction, statistics)])
    return found


def _nothing_to_train_on(fraction: float, statistics: TokenStatistics) -> Mistake:
    return Mistake(
        message=message(
            "all_held_out",
            "all {count:,} samples are held out for evaluation: none is left to train on",
            count=statistics.num_eval_samples,
        ),
        path="data.eval_fraction",
        value=fraction,
        how_to_fix=message("less_held_out", "write a smaller share, e.g. eval_fraction: 0.02"),
    )


def _read(job: StatedJob, fraction: float) -> Dataset:
    data = job.data
    if data.path or data.profile:
        profile = _profile(job)
        return Dataset(
            statistics=profile.statistics(eval_fraction=fraction),
            profile=profile,
            assumptions=(
                *profile.assumptions,
                *_left_out_assumption(profile),
                *_eval_assumption(data),
            ),
            notices=(*_bad_rows(profile), *profile.notices),
        )
    if not data.given:
        notice = Notice(
            message=message(
                "no_data",
                "nothing is said about the data: every row is taken as full, and hours and cost "
                "are unknown; name data.path, or data.num_samples with data.mean_tokens",
            )
        )
        return Dataset(statistics=None, notices=(notice,))
    return _stated(data, fraction)


def _profile(job: StatedJob) -> DataProfile:
    base = Path(job.base_path)
    if job.data.profile:
        from tuneplan.tokens.saving import load_profile

        return load_profile(base / job.data.profile)
    from tuneplan.planner.profile_data import profile_data

    return profile_data(
        [place_of(base, path) for path in job.data.path],
        model=beside(base, job.model),
        tokenizer=beside(base, job.data.tokenizer) if job.data.tokenizer else None,
        skip_bad_rows=bool(job.data.skip_bad_rows),
    )


def place_of(base: Path, name: str) -> str:
    """A data file of a job: beside the job file, or where its URL says."""
    return name if "://" in name else str(base / name)


def beside(base: Path, name: str) -> str:
    """A file or folder that lies beside the job file by its path; any other name as it is."""
    path = base / Path(name).expanduser()
    return str(path) if path.exists() else name


def _bad_rows(profile: DataProfile) -> tuple[Notice, ...]:
    """How many rows do not read, and where the first ones stand."""
    if not profile.rows_bad:
        return ()
    counted = message(
        "bad_rows_left_out",
        "{bad} of {all} rows cannot be used and are left out of every figure; `tuneplan data "
        "profile --skip-bad-rows` lists them",
        bad=profile.rows_bad,
        all=profile.rows_bad + profile.num_samples,
    )
    located = (
        Notice(
            message=message(
                "bad_row",
                "{place}: {reason}",
                place=row.place,
                reason=str(row.message),
            ),
            path=row.path,
            line=row.line,
        )
        for row in profile.bad_rows[:_SHOWN_BAD_ROWS]
    )
    return (Notice(message=counted), *located)


def _left_out_assumption(profile: DataProfile) -> tuple[Assumption, ...]:
    """That the rest stands for the whole, where bad rows were skipped on request."""
    if not profile.rows_bad:
        return ()
    return (
        Assumption(
            name="data.skip_bad_rows",
            value=True,
            reason=message("bad_rows_skipped", "{bad:,} bad rows left out", bad=profile.rows_bad),
            source=", ".join(file.path for file in profile.files if file.rows_bad),
            how_to_set=sentence("data.skip_bad_rows: false, which makes a bad row an error"),
        ),
    )


def _eval_assumption(data: StatedData) -> tuple[Assumption, ...]:
    if data.eval_fraction is not None:
        return ()
    return (
        Assumption(
            name="data.eval_fraction",
            value=0.0,
            reason=message("no_eval_data", "no share of the data is set aside for evaluation"),
            source="docs/reference/job.md",
            how_to_set="data.eval_fraction: 0.02",
        ),
    )


def _stated(data: StatedData, fraction: float) -> Dataset:
    samples, total, mean = data.num_samples, data.total_tokens, data.mean_tokens
    assumptions = list(_eval_assumption(data))
    if samples is None and total is not None:
        mean = mean or _assumed_mean(assumptions)
        samples = max(1, round(total / mean))
    samples = samples or 0
    if total is None:
        mean = mean or _mean_of(data) or _assumed_mean(assumptions)
        total = round(samples * mean)
    num_eval = math.ceil(fraction * samples)
    if not data.quantiles:
        assumptions.append(
            Assumption(
                name="data.quantiles",
                value="log-normal, spread 0.8",
                reason=message(
                    "length_spread",
                    "only the mean length is known; lengths are spread as in mixed chat data",
                ),
                source="estimation/batches.py LOG_LENGTH_SPREAD",
                how_to_set=sentence(
                    "data.quantiles: {p50: 610, p95: 2900, max: 16000}, or data.path"
                ),
            )
        )
    statistics = TokenStatistics(
        num_samples=samples - num_eval,
        total_tokens=round(total * (samples - num_eval) / max(samples, 1)),
        quantiles=data.quantiles,
        num_eval_samples=num_eval,
        basis=Basis.ASSUMED,
        source="stated",
    )
    return Dataset(statistics=statistics, assumptions=tuple(assumptions))


def _mean_of(data: StatedData) -> float | None:
    """The mean that stated quantiles imply, or None without quantiles."""
    if not data.quantiles:
        return None
    from tuneplan.estimation.batches import sample_lengths

    known = sorted(data.quantiles.items())
    middle = dict(known).get(0.5, known[len(known) // 2][1])
    shape = TokenStatistics(
        num_samples=1, total_tokens=0, quantiles=data.quantiles, source="stated"
    )
    lengths = sample_lengths(shape)
    return float(lengths.mean()) if len(lengths) else float(middle)


def _assumed_mean(assumptions: list[Assumption]) -> float:
    mean = 512.0
    assumptions.append(
        Assumption(
            name="data.mean_tokens",
            value=mean,
            reason=message("mean_tokens_assumed", "the mean length of a sample is not stated"),
            source=sentence(
                "typical of instruction data; measure yours with `tuneplan data profile`"
            ),
            how_to_set=sentence("data.mean_tokens: 850, or data.path"),
        )
    )
    return mean
