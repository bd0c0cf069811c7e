"""The answer of ``data profile``: facts of the data and, with a job, what each length costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from tuneplan.contract import measured
from tuneplan.contract.answers import header
from tuneplan.contract.parts import (
    Range,
    assumption_model,
    notice_model,
    range_model,
)
from tuneplan.report.estimate_answer import money_range_model

if TYPE_CHECKING:
    from tuneplan.planner.price_lengths import LengthPrice
    from tuneplan.spec.answer import Estimate
    from tuneplan.tokens.profile import AtMaxLength, DataProfile
    from tuneplan.tokens.sampling import Figure, Sampling

_PERCENTILES: Final = {
    0.05: "p5",
    0.25: "p25",
    0.5: "p50",
    0.75: "p75",
    0.9: "p90",
    0.95: "p95",
    0.99: "p99",
}


def profile_answer(
    profile: DataProfile, *, as_of: str, prices: Sequence[LengthPrice] = ()
) -> measured.DataProfileAnswer:
    """The contract's answer.

    Args:
        profile: From ``profile_data``.
        as_of: Date of the answer.
        prices: What lengths cost on a job, from ``price_lengths``.
    """
    priced = {price.max_length: price for price in prices}
    return measured.DataProfileAnswer(
        **header("data profile", as_of=as_of),
        files=_files(profile),
        bad_rows=_bad_rows(profile),
        bad_rows_by_code=dict(profile.bad_rows_by_code),
        shape=profile.shape,
        tokenizer=measured.Tokenizer(
            name=profile.tokenizer.name,
            source=profile.tokenizer.source,
            vocab_size=profile.tokenizer.vocab_size,
        ),
        exact=profile.exact,
        sampled=profile.sampled,
        sampling=_sampling(profile.sampling),
        num_samples=profile.num_samples,
        sequences_per_sample=profile.sequences_per_sample,
        tokens=measured.TokenTotals(
            all=range_model(profile.tokens.all),
            trained=range_model(profile.tokens.trained),
            image=_range(profile.tokens.image),
        ),
        pictures=_pictures(profile),
        length=_lengths(profile),
        per_device_train_batch_size=profile.per_device_train_batch_size,
        at_max_length=[_at_max_length(one, priced) for one in profile.at_max_length],
        recommended=_recommended(profile, priced),
        duplicates=profile.duplicates,
        empty=profile.empty,
        storage=measured.DataStorage(
            raw_bytes=profile.storage.raw_bytes, tokenised_bytes=profile.storage.tokenised_bytes
        ),
        assumptions=[assumption_model(one) for one in profile.assumptions],
        warnings=[notice_model(one) for one in profile.notices],
    )


def _sampling(found: Sampling | None) -> measured.Sampled | None:
    if found is None:
        return None
    return measured.Sampled(
        read_bytes=found.read_bytes,
        total_bytes=found.total_bytes,
        num_cells=found.num_cells,
        num_cells_read=found.num_cells_read,
        confidence=found.confidence,
        num_samples=_interval(found.num_samples),
        tokens=_interval(found.tokens),
        trained_tokens=_interval(found.trained_tokens),
        mean_length=_interval(found.mean_length),
    )


def _interval(figure: Figure) -> measured.Interval:
    return measured.Interval(low=figure.low, likely=figure.likely, high=figure.high)


def _files(profile: DataProfile) -> list[measured.ProfiledFile]:
    return [
        measured.ProfiledFile(
            path=file.path,
            format=file.format,
            bytes=file.size_bytes,
            rows_ok=file.rows_ok,
            rows_bad=file.rows_bad,
            blank_lines=file.blank_lines,
            shape=file.shape,
        )
        for file in profile.files
    ]


def _bad_rows(profile: DataProfile) -> list[measured.BadRow]:
    return [
        measured.BadRow(
            path=row.path, line=row.line, column=row.column, code=row.code, message=str(row.message)
        )
        for row in profile.bad_rows
    ]


def _pictures(profile: DataProfile) -> measured.Pictures | None:
    found = profile.pictures
    if found is None:
        return None
    return measured.Pictures(
        count=found.count, unsized=found.unsized, rule=found.rule, source=found.source
    )


def _lengths(profile: DataProfile) -> measured.Lengths:
    lengths = profile.length
    quantiles = {_PERCENTILES[key]: value for key, value in lengths.quantiles.items()}
    return measured.Lengths(
        mean=lengths.mean,
        min=lengths.min,
        **quantiles,
        max=lengths.max,
        histogram=[
            measured.Bin(low=one.low, high=one.high, count=one.count) for one in lengths.histogram
        ],
    )


def _at_max_length(found: AtMaxLength, prices: Mapping[int, LengthPrice]) -> measured.AtMaxLength:
    return measured.AtMaxLength(
        max_length=found.max_length,
        truncated_samples_fraction=found.truncated_samples_fraction,
        truncated_tokens_fraction=found.truncated_tokens_fraction,
        packed_efficiency=dict(found.packed_efficiency),
        packed_lost_tokens_fraction=dict(found.packed_lost_tokens_fraction),
        padding_fraction=dict(found.padding_fraction),
        computed_tokens=dict(found.computed_tokens),
        worst_batch_tokens=found.worst_batch_tokens,
        price=_price(prices.get(found.max_length)),
    )


def _recommended(profile: DataProfile, prices: Mapping[int, LengthPrice]) -> measured.Recommended:
    found = profile.recommended
    return measured.Recommended(
        max_length=found.max_length,
        reason=str(found.reason),
        computed_tokens=dict(found.computed_tokens),
        price=_price(prices.get(found.max_length)),
        alternatives=[
            measured.Alternative(
                max_length=one.max_length,
                reason=str(one.reason),
                computed_tokens=dict(one.computed_tokens),
                price=_price(prices.get(one.max_length)),
            )
            for one in found.alternatives
        ],
    )


def _price(price: LengthPrice | None) -> measured.LengthPrice | None:
    if price is None:
        return None
    return measured.LengthPrice(
        total_s=_range(price.total_s),
        accelerator_hours=_range(price.accelerator_hours),
        cost=money_range_model(price.cost.total) if price.cost else None,
        fit=price.verdict.value if price.verdict else None,
        problem=str(price.problem) if price.problem else None,
    )


def _range(estimate: Estimate | None) -> Range | None:
    return None if estimate is None else range_model(estimate)
