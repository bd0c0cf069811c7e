"""Checkpoints, data sets and transfers: worked values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneplan.economics.storage import (
    checkpoint_bytes,
    kept_bytes,
    raw_text_bytes,
    tokenized_bytes,
    transfer_s,
    write_s,
)


def test_seventy_billion_weights_kept_five_times() -> None:
    # 70e9 x 2 B = 140 GB; last 3 + best + the one being written = 5: 700 GB
    one = checkpoint_bytes(num_saved_parameters=70e9, bytes_per_parameter=2)
    assert one == 140e9
    assert kept_bytes(one_checkpoint_bytes=one, num_saves=100, save_total_limit=4) == 700e9


def test_the_optimizer_makes_a_checkpoint_several_times_larger() -> None:
    # 7e9 x (2 + 8) = 70 GB; an adapter of 40e6 in fp32 with its moments: 40e6 x 12 = 0.48 GB
    full = checkpoint_bytes(
        num_saved_parameters=7e9,
        bytes_per_parameter=2,
        num_trained_parameters=7e9,
        optimizer_bytes_per_parameter=8,
    )
    assert full == 70e9
    adapter = checkpoint_bytes(
        num_saved_parameters=40e6,
        bytes_per_parameter=4,
        num_trained_parameters=40e6,
        optimizer_bytes_per_parameter=8,
    )
    assert adapter == 480e6


def test_without_a_limit_every_checkpoint_stays() -> None:
    assert kept_bytes(one_checkpoint_bytes=10, num_saves=7, save_total_limit=None) == 70
    assert kept_bytes(one_checkpoint_bytes=10, num_saves=2, save_total_limit=4) == 20
    assert kept_bytes(one_checkpoint_bytes=10, num_saves=0, save_total_limit=4) == 0


def test_write_times() -> None:
    # 140 GB at 7 GB/s = 20 s, at 550 MB/s = 255 s
    assert write_s(size_bytes=140e9, bandwidth_bytes_per_s=7e9) == 20
    assert write_s(size_bytes=140e9, bandwidth_bytes_per_s=550e6) == pytest.approx(255, abs=0.6)


def test_transfer_times() -> None:
    # 1 TB over 1 Gbit/s: 8e12 / 1e9 = 8000 s = 2.2 h ideal, about 3 h real
    ideal = transfer_s(size_bytes=1e12, bandwidth_bytes_per_s=1e9 / 8, efficiency=1.0)
    assert ideal / 3600 == pytest.approx(2.2, abs=0.05)
    real = transfer_s(size_bytes=1e12, bandwidth_bytes_per_s=1e9 / 8)
    assert real / 3600 == pytest.approx(3, abs=0.05)
    # 10 TB over 100 Mbit/s: over a week even without loss
    week = transfer_s(size_bytes=10e12, bandwidth_bytes_per_s=1e8 / 8, efficiency=1.0)
    assert week > 7 * 86_400


def test_raw_and_tokenised_data() -> None:
    # 100,000,000 samples x 500 words x 5 bytes = 250 GB
    raw = raw_text_bytes(num_samples=1e8, words_per_sample=500, bytes_per_word=5)
    assert raw == 250e9
    assert tokenized_bytes(num_tokens=1e9, bytes_per_token=4) == 4e9


@given(st.integers(0, 1000), st.integers(1, 100))
def test_a_larger_limit_never_needs_less_room(num_saves, limit) -> None:
    smaller = kept_bytes(one_checkpoint_bytes=1, num_saves=num_saves, save_total_limit=limit)
    larger = kept_bytes(one_checkpoint_bytes=1, num_saves=num_saves, save_total_limit=limit + 1)
    unlimited = kept_bytes(one_checkpoint_bytes=1, num_saves=num_saves, save_total_limit=None)
    assert smaller <= larger <= unlimited
