"""Which batches of a job are traced: the lengths, and the room that images leave in a row."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneplan.contract.reading import load_job
from tuneplan.planner.estimate import resolve_job
from tuneplan.planner.sources import Sources
from tuneplan.planner.trace_requests import image_tokens, request_of, shorter_length
from tuneplan.tracing.images import ImageSize

SOURCES = Sources(today=date(2026, 11, 30))
VARYING = {"num_samples": 2000, "mean_tokens": 600, "quantiles": {"p50": 500, "max": 1500}}


def resolved(model: str):  # type: ignore[no-untyped-def]
    job = {"model": model, "method": "lora", "framework": "trl", "data": VARYING,
           "training": {"max_length": 1536, "per_device_train_batch_size": 1}}  # fmt: skip
    return resolve_job(load_job(job), SOURCES)


@pytest.mark.parametrize(
    ("model", "size", "tokens"),
    [
        # 16 pixels a patch, 2 x 2 patches a token: 1024 / 32 = 32 a side
        ("Qwen/Qwen3-VL-2B-Instruct", ImageSize(1024, 1024), 32 * 32),
        # 14 pixels a patch, 2 x 2 patches a token: 448 / 28 = 16 and 896 / 28 = 32
        ("Qwen/Qwen2.5-VL-3B-Instruct", ImageSize(448, 896), 16 * 32),
        ("google/gemma-3-4b-it", ImageSize(448, 896), 256),
    ],
)
def test_tokens_of_an_image(model: str, size: ImageSize, tokens: int) -> None:
    found = resolved(model).model
    assert image_tokens(found, (size,)) == tokens
    assert image_tokens(found, (size, size)) == 2 * tokens


def test_a_shorter_row_has_room_for_the_images_that_the_longest_has_room_for() -> None:
    job, images = resolved("Qwen/Qwen3-VL-2B-Instruct"), (ImageSize(1024, 1024),)
    request = request_of(job, images)
    assert request.images == images
    assert request.shorter is not None
    # 0.6 of the longest row would be less than the 1,024 tokens of its image.
    assert 0.6 * request.length < 1024 < request.shorter < request.length
    alone = request_of(job).shorter
    assert alone is not None
    assert alone == pytest.approx(0.6 * request.length, rel=0.05)


@given(length=st.integers(1, 5000), filled=st.integers(0, 5000))
def test_the_second_length_is_longer_than_the_images_and_padded_alike(
    length: int, filled: int
) -> None:
    shorter = shorter_length(length, filled)
    if length - filled <= 16:
        assert shorter is None
    if shorter is not None:
        assert filled < shorter < length
        assert (length - shorter) % 16 == 0
