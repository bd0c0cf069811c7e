"""Disks, networks and loaders: worked values with their arithmetic, and laws."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneplan.economics.data_path import COURIER_S, DISKS, loading, uploads
from tuneplan.economics.storage import (
    asynchronous_stall_s,
    checkpoint_bytes,
    gathered_stall_s,
    kept_checkpoints,
    lost_fraction,
    raw_text_bytes,
    sharded_stall_s,
)
from tuneplan.units import DAY_S, HOUR_S

SIZES = st.floats(1, 1e13)
RATES = st.floats(1e6, 1e11)


def test_the_last_three_and_the_best_of_seventy_billion_take_700_gb() -> None:
    # 70e9 parameters x 2 B = 140 GB; 3 + 1 best + 1 while the new one is written = 5; 5 x 140 = 700
    one = checkpoint_bytes(num_saved_parameters=70e9, bytes_per_parameter=2)
    kept = kept_checkpoints(num_saves=40, last=3, best=True)
    assert (one, kept, kept * one) == (140e9, 5, 700e9)
    assert kept_checkpoints(num_saves=40, last=4) == 5  # transformers counts the best in the limit
    assert kept_checkpoints(num_saves=2, last=3, best=True) == 2
    assert kept_checkpoints(num_saves=40, last=None) == 40


def test_gathered_by_one_process_140_gb_stand_still_for_20_or_255_s() -> None:
    # 140e9 / 7e9 = 20 s; 140e9 / 550e6 = 254.5 s
    assert gathered_stall_s(size_bytes=140e9, disk_bytes_per_s=DISKS["nvme"]) == 20
    sata = gathered_stall_s(size_bytes=140e9, disk_bytes_per_s=DISKS["sata_ssd"])
    assert sata == pytest.approx(255, abs=0.6)
    # 7 of 8 parts come over 50 GB/s first: 122.5e9 / 50e9 = 2.45 s
    gathered = gathered_stall_s(
        size_bytes=140e9, disk_bytes_per_s=7e9, gathered_bytes=122.5e9, link_bytes_per_s=50e9
    )
    assert gathered == pytest.approx(22.45)


def test_four_machines_write_in_a_quarter_of_the_time_to_disks_of_their_own() -> None:
    size = {"size_bytes": 140e9, "disk_bytes_per_s": 7e9, "num_nodes": 4}
    assert sharded_stall_s(**size, shared_disk=False) == 5  # type: ignore[arg-type]
    assert sharded_stall_s(**size, shared_disk=True) == 20  # type: ignore[arg-type]


def test_beside_the_training_only_the_copy_stands_still_unless_the_disk_falls_behind() -> None:
    # 17.5e9 / 25e9 = 0.7 s; written in 20 s of the 600 s to the next save
    copy = {"rank_bytes": 17.5e9, "copy_bytes_per_s": 25e9}
    assert asynchronous_stall_s(**copy, write_seconds=20, interval_s=600) == pytest.approx(0.7)
    # 255 s of writing in 100 s of training: 155 s are waited for
    assert asynchronous_stall_s(**copy, write_seconds=255, interval_s=100) == pytest.approx(155.7)


def test_ten_saves_of_255_s_in_ten_hours_lose_a_fifteenth() -> None:
    # 2,550 s of 36,000 + 2,550 = 6.6 %
    assert lost_fraction(num_saves=10, stall_s=255, other_s=36_000) == pytest.approx(
        0.0661, abs=1e-4
    )
    assert lost_fraction(num_saves=0, stall_s=255, other_s=0) == 0


def test_a_terabyte_takes_2_2_h_ideal_and_about_3_h_over_a_gigabit() -> None:
    # 8e12 bit / 1e9 bit/s = 8,000 s = 2.2 h; at 75 %: 10,667 s = 3.0 h
    gigabit = next(one for one in uploads(1e12) if one.uplink == "1 Gbit/s")
    assert gigabit.ideal_s / HOUR_S == pytest.approx(2.2, abs=0.05)
    assert gigabit.likely_s / HOUR_S == pytest.approx(3.0, abs=0.05)
    assert not gigabit.ship_instead


def test_ten_terabytes_over_100_mbit_take_over_a_week_so_a_disk_is_shipped() -> None:
    # 8e13 / 1e8 = 800,000 s = 9.3 d; a courier: 3 d + 2 x 10e12 / 200e6 = 1.2 d, 4.2 d in all
    slow = next(one for one in uploads(10e12) if one.uplink == "100 Mbit/s")
    assert slow.ideal_s > 7 * DAY_S
    assert slow.ship_instead
    assert slow.shipped_s / DAY_S == pytest.approx(4.16, abs=0.01)
    assert COURIER_S == 3 * DAY_S


def test_a_hundred_million_samples_are_250_gb_of_text() -> None:
    # 100e6 x 500 words x 5 bytes = 250e9
    size = raw_text_bytes(num_samples=100e6, words_per_sample=500, bytes_per_word=5)
    assert size == 250e9


def test_a_loader_reads_nine_bytes_a_token() -> None:
    # 7,000 tokens/s x (4 ids + 1 mask + 4 labels) = 63 kB/s; as text of 4 B a token 28 kB/s
    need = loading(tokens_per_s=7_000, raw_bytes_per_token=4)
    assert (need.disk_bytes_per_s, need.raw_bytes_per_s) == (63_000, 28_000)
    assert need.cores_on_the_fly == pytest.approx(0.07)
    assert loading(tokens_per_s=1, raw_bytes_per_token=None).raw_bytes_per_s is None


@given(SIZES, RATES, st.integers(1, 64))
def test_more_machines_never_write_longer(size: float, rate: float, nodes: int) -> None:
    def stall(count: int) -> float:
        return sharded_stall_s(
            size_bytes=size, disk_bytes_per_s=rate, num_nodes=count, shared_disk=False
        )

    assert stall(nodes + 1) <= stall(nodes)
    assert stall(1) == gathered_stall_s(size_bytes=size, disk_bytes_per_s=rate)


@given(st.integers(0, 500), st.integers(1, 20), st.booleans())
def test_no_more_checkpoints_are_kept_than_were_written(saves: int, last: int, best: bool) -> None:
    kept = kept_checkpoints(num_saves=saves, last=last, best=best)
    assert kept <= saves
    assert kept <= kept_checkpoints(num_saves=saves, last=last + 1, best=best)


@given(st.floats(0, 1e4), st.floats(0, 1e6), st.floats(0, 1e6))
def test_a_share_is_a_share(saves: float, stall: float, other: float) -> None:
    assert 0 <= lost_fraction(num_saves=saves, stall_s=stall, other_s=other) <= 1
