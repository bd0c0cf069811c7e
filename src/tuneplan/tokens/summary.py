"""What was added up while reading, turned into a profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tuneplan.language import Message, message, sentence
from tuneplan.spec.answer import Assumption, Basis, Estimate, Notice
from tuneplan.tokens.encoders import (
    APPROXIMATE_FACTORS,
    APPROXIMATE_SOURCE,
    CHARACTERS_PER_TOKEN,
    DENSE_CHARACTERS_PER_TOKEN,
)
from tuneplan.tokens.lengths import (
    COVERED_FRACTION,
    MAX_PACKED,
    QUANTILES,
    LengthCounts,
    covering_length,
    histogram_of,
    in_order,
    num_sequences,
    num_tokens,
    packings,
    padding_fractions,
    quantiles_of,
    truncated_fractions,
    usual_lengths,
)
from tuneplan.tokens.packings import Packing, packings_of_counts
from tuneplan.tokens.profile import (
    Alternative,
    AtMaxLength,
    Bin,
    DataProfile,
    FileFacts,
    LengthFacts,
    PictureFacts,
    Recommendation,
    Storage,
    TokenizerFacts,
    TokenTotals,
)
from tuneplan.tokens.rendering import Renderer
from tuneplan.tokens.shapes import Shape
from tuneplan.tokens.tokenizers import Tokenizer
from tuneplan.tokens.totals import Totals

# `datasets` 4 arrow_writer.py OptimizedTypedSequence: input_ids int32, attention_mask int8; one
# 32-bit offset a row for each of the two lists.
_BYTES_PER_TOKEN: Final = 5
_BYTES_PER_SEQUENCE: Final = 8


def summarise(
    files: Sequence[FileFacts],
    totals: Totals,
    tokenizer: Tokenizer,
    renderer: Renderer,
    max_lengths: tuple[int, ...],
    batch_size: int,
) -> DataProfile:
    """The profile of files whose rows are all counted in ``totals``."""
    counts = tuple(sorted(totals.lengths.items()))
    shapes = [file.shape for file in files if file.shape is not None]
    per_sample = Shape(shapes[0]).sequences_per_sample
    looked_at = sorted(
        {*(max_lengths or usual_lengths(counts)), covering_length(counts, COVERED_FRACTION)}
    )
    quantiles = quantiles_of(counts, QUANTILES)
    lengths = in_order(counts, totals.ordered)
    return DataProfile(
        files=tuple(files),
        bad_rows=tuple(totals.bad_rows),
        bad_rows_by_code=MappingProxyType(dict(sorted(totals.bad_by_code.items()))),
        shape=shapes[0] if len(set(shapes)) == 1 else "mixed",
        tokenizer=TokenizerFacts(
            name=tokenizer.name,
            source=tokenizer.source,
            vocab_size=tokenizer.encoder.vocab_size or None,
        ),
        num_samples=totals.num_samples,
        sequences_per_sample=per_sample,
        tokens=_token_totals(counts, totals, approximate=tokenizer.approximate),
        length=LengthFacts(
            mean=num_tokens(counts) / num_sequences(counts),
            min=counts[0][0],
            quantiles=MappingProxyType(quantiles),
            max=counts[-1][0],
            histogram=tuple(
                Bin(low=low, high=high, count=count) for low, high, count in histogram_of(counts)
            ),
        ),
        at_max_length=tuple(
            _at_max_length(counts, lengths, length, batch_size, per_sample) for length in looked_at
        ),
        recommended=_recommended(counts, lengths, batch_size, per_sample),
        duplicates=totals.repeats.number(),
        empty=totals.empty,
        storage=Storage(
            raw_bytes=sum(file.size_bytes for file in files),
            tokenised_bytes=num_tokens(counts) * _BYTES_PER_TOKEN
            + num_sequences(counts) * _BYTES_PER_SEQUENCE,
        ),
        length_counts=counts,
        pictures=_pictures(totals, renderer),
        per_device_train_batch_size=batch_size,
        assumptions=_assumptions(totals, tokenizer, renderer),
        notices=(*_picture_notices(totals, renderer), *_notices(totals)),
        tokens_per_s=num_tokens(counts) / totals.encoding_s if totals.encoding_s else None,
    )


def looked_at(
    profile: DataProfile, max_lengths: Sequence[int], batch_size: int | None = None
) -> DataProfile:
    """A profile with other lengths looked at too, or for batches of another size; nothing is read.

    Rows in their order are not known any more: what hangs on it is of a random one.

    Args:
        profile: As it was made.
        max_lengths: To look at beside those that it has.
        batch_size: Samples of a batch behind the padding figures; None for the profile's own.
    """
    counts, per_sample = profile.length_counts, profile.sequences_per_sample
    size = batch_size or profile.per_device_train_batch_size
    known = {one.max_length: one for one in profile.at_max_length}
    new = set(max_lengths) - set(known)
    recommended = profile.recommended
    if size != profile.per_device_train_batch_size:
        new |= set(known)
        recommended = _recommended(counts, in_order(counts, ()), size, per_sample)
    if not new:
        return profile
    lengths = in_order(counts, ())
    known |= {one: _at_max_length(counts, lengths, one, size, per_sample) for one in new}
    return replace(
        profile,
        at_max_length=tuple(known[length] for length in sorted(known)),
        recommended=recommended,
        per_device_train_batch_size=size,
    )


def _pictures(totals: Totals, renderer: Renderer) -> PictureFacts | None:
    if not totals.num_images:
        return None
    rule = renderer.pictures.rule if renderer.pictures else None
    return PictureFacts(
        count=totals.num_images,
        unsized=totals.unsized_images,
        rule=rule.id if rule else None,
        source=rule.source if rule else None,
    )


def _token_totals(counts: LengthCounts, totals: Totals, *, approximate: bool) -> TokenTotals:
    def total(number: int) -> Estimate:
        low, high = APPROXIMATE_FACTORS if approximate else (1.0, 1.0)
        return Estimate(
            low=number * low,
            likely=float(number),
            high=number * high,
            basis=Basis.ASSUMED if approximate else Basis.MEASURED,
        )

    seen = float(totals.image_tokens)
    basis = Basis.ASSUMED if totals.assumed_images else Basis.MEASURED
    return TokenTotals(
        all=total(num_tokens(counts)),
        trained=total(totals.trained_tokens),
        image=None
        if totals.unsized_images
        else Estimate(low=seen, likely=seen, high=seen, basis=basis),
    )


def _at_max_length(
    counts: LengthCounts,
    lengths: NDArray[np.int64],
    length: int,
    batch_size: int,
    per_sample: int,
) -> AtMaxLength:
    samples, tokens = truncated_fractions(counts, length)
    packed = packings(counts, lengths, length, batch_size)
    padded = padding_fractions(lengths, length, batch_size, per_sample)
    return AtMaxLength(
        max_length=length,
        truncated_samples_fraction=samples,
        truncated_tokens_fraction=tokens,
        packed_efficiency=MappingProxyType(
            {name: found.efficiency for name, found in packed.items()}
        ),
        padding_fraction=MappingProxyType(padded),
        worst_batch_tokens=batch_size * per_sample * min(length, counts[-1][0]),
        packed_lost_tokens_fraction=MappingProxyType(
            {name: found.lost_fraction for name, found in packed.items()}
        ),
        computed_tokens=_computed(
            num_tokens(counts) * (1 - tokens), padded, packed["best_fit_decreasing"]
        ),
    )


def _computed(
    kept_tokens: float, padded: Mapping[str, float], packed: Packing
) -> Mapping[str, float]:
    """Positions of one epoch by way of batching."""
    computed = {policy: kept_tokens / (1 - share) for policy, share in padded.items()}
    return MappingProxyType({**computed, "packed": float(packed.positions)})


def _recommended(
    counts: LengthCounts, lengths: NDArray[np.int64], batch_size: int, per_sample: int
) -> Recommendation:
    table = np.asarray(counts, dtype=np.int64).reshape(-1, 2)

    def computed(length: int) -> Mapping[str, float]:
        padded = padding_fractions(lengths, length, batch_size, per_sample)
        packed = packings_of_counts(table[:, 0], table[:, 1], length)["best_fit_decreasing"]
        return _computed(packed.tokens, padded, packed)

    chosen = covering_length(counts, COVERED_FRACTION)
    return Recommendation(
        max_length=chosen,
        reason=_covers(counts, chosen),
        computed_tokens=computed(chosen),
        alternatives=tuple(
            Alternative(
                max_length=length, reason=_covers(counts, length), computed_tokens=computed(length)
            )
            for length in sorted(_alternatives(counts, chosen) - {chosen})
        ),
    )


def _alternatives(counts: LengthCounts, chosen: int) -> set[int]:
    """Half of the chosen length, and what holds 99 % and all of the sequences whole."""
    return {max(chosen // 2, 128), *(covering_length(counts, share) for share in (0.99, 1.0))}


def _covers(counts: LengthCounts, length: int) -> Message:
    samples, tokens = truncated_fractions(counts, length)
    return message(
        "covers_samples",
        "holds {whole:.1%} of the sequences whole and cuts {tokens:.1%} of the tokens",
        whole=1 - samples,
        tokens=tokens,
    )


def _assumptions(
    totals: Totals, tokenizer: Tokenizer, renderer: Renderer
) -> tuple[Assumption, ...]:
    found = list(renderer.assumptions) if totals.has_chat else []
    if totals.has_plain:
        found.append(
            Assumption(
                name="data.end_of_text",
                value=tokenizer.eos or None,
                reason=message(
                    "one_end_token",
                    "text without roles gets one end token a sample, as trl adds it",
                ),
                source="trl 1.10 trainer/sft_trainer.py add_eos",
                how_to_set=sentence("end each text with the token yourself: it is not added twice"),
            )
        )
    if tokenizer.approximate:
        found.append(
            Assumption(
                name="data.tokenizer",
                value="approximate",
                reason=message(
                    "characters_per_token",
                    "asked for: characters are counted, not tokens ({dense} a token in Chinese, "
                    "{other} elsewhere); the truth was {low} to {high} times as much",
                    dense=DENSE_CHARACTERS_PER_TOKEN,
                    other=CHARACTERS_PER_TOKEN,
                    low=APPROXIMATE_FACTORS[0],
                    high=APPROXIMATE_FACTORS[1],
                ),
                source=APPROXIMATE_SOURCE,
                how_to_set="--tokenizer FOLDER",
            )
        )
    if totals.assumed_images and renderer.pictures and renderer.pictures.usual_size:
        height, width = renderer.pictures.usual_size
        found.append(
            Assumption(
                name="data.image",
                value=f"{height}x{width}",
                reason=message(
                    "usual_picture",
                    "{count} of {all} pictures are not at hand and taken to be of this size",
                    count=totals.assumed_images,
                    all=totals.num_images,
                ),
                source="--image",
                how_to_set="--image HEIGHTxWIDTH",
            )
        )
    return tuple(found)


def _notices(totals: Totals) -> tuple[Notice, ...]:
    found = []
    if totals.empty:
        found.append(
            Notice(
                message=message(
                    "nothing_to_learn",
                    "{count} {count:~sample has/samples have} nothing to learn (a blank or missing "
                    "answer); trainers keep them and so do the totals",
                    count=totals.empty,
                )
            )
        )
    if totals.repeats.thinned:
        found.append(
            Notice(
                message=message(
                    "duplicates_estimated",
                    "duplicates are an estimate from one text in {share}",
                    share=1 << totals.repeats.thinned,
                )
            )
        )
    if totals.lengths.total() > MAX_PACKED:
        found.append(
            Notice(
                message=message(
                    "packed_in_part",
                    "how frameworks pack is tried on {count} sequences, a hundred stretches of "
                    "the whole; best fit decreasing and wrapped are of all",
                    count=MAX_PACKED,
                )
            )
        )
    unlisted = totals.num_bad - len(totals.bad_rows)
    if unlisted:
        found.append(
            Notice(
                message=message(
                    "more_bad_rows",
                    "the first {listed} bad rows are listed; {unlisted} more are counted",
                    listed=len(totals.bad_rows),
                    unlisted=unlisted,
                )
            )
        )
    return tuple(found)


def _picture_notices(totals: Totals, renderer: Renderer) -> list[Notice]:
    found = []
    if totals.num_images and renderer.pictures is None:
        found.append(
            message(
                "images_not_counted",
                "{count} pictures are in the rows; how many tokens this model makes of one is not "
                "known, and they are not in the lengths",
                count=totals.num_images,
            )
        )
    elif totals.unsized_images:
        found.append(
            message(
                "images_not_at_hand",
                "{count} of {all} pictures are not at hand, so their tokens are not in the "
                "lengths; say how large they are: --image HEIGHTxWIDTH",
                count=totals.unsized_images,
                all=totals.num_images,
            )
        )
    if totals.other_media:
        found.append(
            message(
                "media_not_counted",
                "{count} videos or sound recordings are in the rows; their tokens are not in the "
                "lengths",
                count=totals.other_media,
            )
        )
    return [Notice(message=text) for text in found]
