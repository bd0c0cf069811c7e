"""``garbage_collection_threshold``: its rule with the arithmetic, and the laws that still hold."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tuneplan.estimation.allocator import CachingAllocator
from tuneplan.estimation.collecting import CollectingAllocator

MIB = 2**20


def test_below_the_threshold_nothing_is_collected():
    """40 + 60 MiB are cached; 100 are not more than 0.8 x 200 = 160."""
    allocator = CollectingAllocator(limit_bytes=200 * MIB, threshold_fraction=0.8)
    for block in (allocator.malloc(40 * MIB), allocator.malloc(60 * MIB)):
        allocator.free(block)
    allocator.malloc(70 * MIB)
    assert allocator.collected_bytes == 0
    assert allocator.reserved_bytes == 170 * MIB


def test_above_it_the_segment_that_was_passed_over_most_goes_first():
    """60 and 50 MiB are cached; 60 + 50 + 100 + 90 = 300 are reserved, 250 may be.

    When the fifth request comes, the 60 were passed over three times and the 50 twice: the mean is
    2.5, so the 60 go, and with 50 to reclaim that is enough.
    """
    allocator = CollectingAllocator(limit_bytes=500 * MIB, threshold_fraction=0.5)
    old, young = allocator.malloc(60 * MIB), allocator.malloc(50 * MIB)
    allocator.free(old)
    allocator.malloc(100 * MIB)
    allocator.free(young)
    allocator.malloc(90 * MIB)
    assert allocator.reserved_bytes == 300 * MIB
    assert allocator.collected_bytes == 0
    allocator.malloc(130 * MIB)
    assert allocator.collected_bytes == 60 * MIB
    assert [block.size for block in allocator.blocks()] == [50 * MIB]


def test_collecting_goes_on_until_enough_is_reclaimed():
    """As above with 120 in place of 90: 80 are to be reclaimed, so the 50 go after the 60."""
    allocator = CollectingAllocator(limit_bytes=500 * MIB, threshold_fraction=0.5)
    old, young = allocator.malloc(60 * MIB), allocator.malloc(50 * MIB)
    allocator.free(old)
    allocator.malloc(100 * MIB)
    allocator.free(young)
    allocator.malloc(120 * MIB)
    allocator.malloc(130 * MIB)
    assert allocator.collected_bytes == 110 * MIB


def test_a_segment_of_which_a_part_is_in_use_is_not_collected():
    """Of the 60 MiB 20 are in use: only the 40 can go, though 75 should."""
    allocator = CollectingAllocator(limit_bytes=100 * MIB + 2**30, threshold_fraction=0.02)
    partly, whole = allocator.malloc(60 * MIB), allocator.malloc(40 * MIB)
    allocator.free(partly)
    allocator.malloc(20 * MIB)
    allocator.free(whole)
    allocator.malloc(70 * MIB)
    assert allocator.collected_bytes == 40 * MIB
    assert allocator.reserved_bytes == (60 + 70) * MIB


requests = st.lists(st.one_of(st.integers(1, 60 * MIB), st.integers(-30, -1)), max_size=60)


@given(requests, st.floats(0.05, 0.95))
def test_blocks_never_overlap_and_what_is_reserved_is_never_less_than_what_is_allocated(
    moves, threshold
):
    limit = 400 * MIB
    allocator = CollectingAllocator(limit_bytes=limit, threshold_fraction=threshold)
    held = []
    for move in moves:
        if move > 0:
            block = allocator.malloc(move)
            held += [block] if block is not None else []
        elif held:
            allocator.free(held.pop(move % len(held)))
        blocks = sorted([*held, *allocator.blocks()], key=lambda block: block.address)
        assert all(one.address + one.size <= two.address for one, two in pairwise(blocks))
        assert sum(block.size for block in blocks) == allocator.reserved_bytes <= limit
        assert allocator.allocated_bytes == sum(block.size for block in held)


@given(requests)
def test_with_a_threshold_that_is_never_reached_it_is_the_plain_allocator(moves):
    plain = CachingAllocator(limit_bytes=2**45)
    collecting = CollectingAllocator(limit_bytes=2**45, threshold_fraction=0.99)
    for allocator in (plain, collecting):
        held = []
        for move in moves:
            if move > 0:
                held.append(allocator.malloc(move))
            elif held:
                allocator.free(held.pop(move % len(held)))
    assert plain.reserved_bytes == collecting.reserved_bytes
    assert plain.peak_reserved_bytes == collecting.peak_reserved_bytes
