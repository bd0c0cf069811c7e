"""The allocator: laws that hold for any stream of requests, and its rules with the arithmetic."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneplan.estimation.allocator import CachingAllocator
from tuneplan.estimation.blocks import rounded, segment_bytes

KIB, MIB = 2**10, 2**20

sizes = st.one_of(
    st.integers(1, 4 * KIB),
    st.integers(4 * KIB, MIB),
    st.integers(MIB + 1, 10 * MIB),
    st.integers(10 * MIB, 90 * MIB),
)
# A request, or the release of the n-th of what is held.
moves = st.lists(st.one_of(sizes, st.integers(-40, -1)), min_size=1, max_size=120)
modes = st.sampled_from(
    [{}, {"expandable": True}, {"max_split_bytes": 25 * MIB}, {"max_split_bytes": 60 * MIB}]
)


def play(allocator, moves, *, check=lambda _held: None):
    held = []
    for move in moves:
        if move > 0:
            block = allocator.malloc(move)
            if block is None:
                return held
            held.append(block)
        elif held:
            allocator.free(held.pop(move % len(held)))
        check(held)
    return held


@given(moves, modes)
@settings(deadline=None)
def test_reserved_is_never_less_than_allocated_and_peaks_never_less_than_now(moves, mode):
    allocator = CachingAllocator(**mode)

    def check(held):
        assert allocator.allocated_bytes == sum(block.size for block in held)
        assert allocator.reserved_bytes >= allocator.allocated_bytes
        assert allocator.peak_allocated_bytes >= allocator.allocated_bytes
        assert allocator.peak_reserved_bytes >= allocator.reserved_bytes

    play(allocator, moves, check=check)


@given(moves, modes)
@settings(deadline=None)
def test_used_and_free_blocks_are_disjoint_and_fill_what_is_reserved(moves, mode):
    allocator = CachingAllocator(**mode)

    def check(held):
        blocks = sorted([*held, *allocator.blocks()], key=lambda block: block.address)
        for one, other in pairwise(blocks):
            assert one.address + one.size <= other.address
        assert sum(block.size for block in blocks) == allocator.reserved_bytes

    play(allocator, moves, check=check)


@given(moves, modes)
@settings(deadline=None)
def test_no_two_free_blocks_of_a_segment_lie_side_by_side(moves, mode):
    allocator = CachingAllocator(**mode)

    def check(_held):
        for block in allocator.blocks():
            assert block.following is None or not block.following.is_free
            assert block.previous is None or not block.previous.is_free

    play(allocator, moves, check=check)


@given(moves, modes)
@settings(deadline=None)
def test_when_all_is_freed_and_the_cache_emptied_the_card_has_everything_back(moves, mode):
    allocator = CachingAllocator(**mode)
    for block in play(allocator, moves):
        allocator.free(block)
    assert allocator.allocated_bytes == 0
    allocator.empty_cache()
    assert allocator.reserved_bytes == 0
    assert allocator.blocks() == []


@given(moves, modes, st.integers(20, 300))
@settings(deadline=None)
def test_the_limit_is_never_exceeded_and_a_refusal_says_what_was_missing(moves, mode, limit_mib):
    limit = limit_mib * MIB
    allocator = CachingAllocator(limit_bytes=limit, **mode)
    play(allocator, moves)
    assert allocator.peak_reserved_bytes <= limit
    refused = allocator.out_of_memory
    if refused is not None:
        assert refused.card_free_bytes < refused.segment_bytes
        assert refused.largest_free_bytes <= refused.cached_bytes
        assert refused.reserved_bytes + refused.card_free_bytes == limit


@given(moves)
@settings(deadline=None)
def test_the_free_part_of_segments_in_use_is_what_emptying_the_cache_leaves(moves):
    allocator = CachingAllocator()

    def check(_held):
        expected = sum(block.size for block in allocator.blocks() if block.is_split)
        assert allocator.split_free_bytes == expected

    play(allocator, moves, check=check)
    allocator.empty_cache()
    left = allocator.reserved_bytes - allocator.allocated_bytes
    assert left == allocator.split_free_bytes


@given(moves)
@settings(deadline=None)
def test_where_the_unlimited_run_reserves_no_more_than_the_card_has_nothing_fails(moves):
    free = CachingAllocator()
    held = play(free, moves)
    limited = CachingAllocator(limit_bytes=max(free.peak_reserved_bytes, 2 * MIB))
    assert len(play(limited, moves)) == len(held)
    assert limited.out_of_memory is None
    assert limited.num_retries == 0


def test_requests_are_rounded_to_512_bytes():
    assert [rounded(size) for size in (0, 1, 512, 513, 1000)] == [512, 512, 512, 1024, 1024]


@pytest.mark.parametrize(
    ("request_bytes", "expected"),
    [
        (512, 2 * MIB),  # the small pool
        (MIB, 2 * MIB),
        (MIB + 512, 20 * MIB),  # shares a segment with others
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),  # a segment of its own, in steps of 2 MiB
        (11 * MIB, 12 * MIB),
    ],
)
def test_the_card_gives_2_or_20_mib_or_the_request_rounded_up(request_bytes, expected):
    assert segment_bytes(request_bytes) == expected
    allocator = CachingAllocator()
    allocator.malloc(request_bytes)
    assert allocator.reserved_bytes == expected


def test_two_requests_of_8_mib_share_a_segment_and_a_third_of_5_does_not_fit_beside_them():
    allocator = CachingAllocator()
    for size in (8 * MIB, 8 * MIB, 5 * MIB):  # 20 - 8 - 8 = 4 MiB are left
        allocator.malloc(size)
    assert allocator.reserved_bytes == 40 * MIB
    assert allocator.split_free_bytes == (4 + 15) * MIB


def test_the_smallest_block_that_is_large_enough_serves_and_of_equals_the_lowest():
    allocator = CachingAllocator()
    first, second, third = (allocator.malloc(size * MIB) for size in (40, 30, 30))
    addresses = (first.address, second.address, third.address)
    for block in (third, first, second):
        allocator.free(block)
    assert allocator.malloc(29 * MIB).address == addresses[1]
    assert allocator.malloc(30 * MIB).address == addresses[2]
    assert allocator.malloc(30 * MIB).address == addresses[0]


def test_a_large_block_with_a_rest_of_at_most_1_mib_is_given_whole():
    """A request for 39 MiB in a block of 40: the rest counts as allocated (physics: F8)."""
    allocator = CachingAllocator()
    allocator.free(allocator.malloc(40 * MIB))
    assert allocator.malloc(39 * MIB).size == 40 * MIB
    assert allocator.allocated_bytes == 40 * MIB


def test_a_large_block_with_a_larger_rest_is_split():
    allocator = CachingAllocator()
    allocator.free(allocator.malloc(40 * MIB))
    assert allocator.malloc(39 * MIB - 512).size == 39 * MIB - 512
    assert allocator.split_free_bytes == MIB + 512


def test_a_cached_segment_goes_back_when_the_card_is_full_but_one_in_use_does_not():
    allocator = CachingAllocator(limit_bytes=100 * MIB)
    whole, partly = allocator.malloc(40 * MIB), allocator.malloc(60 * MIB)
    allocator.free(whole)
    allocator.free(partly)
    kept = allocator.malloc(44 * MIB)  # from the 60: 16 stay behind it
    assert kept.size == 44 * MIB
    assert allocator.malloc(42 * MIB) is None  # 40 came back, 60 are held
    refused = allocator.out_of_memory
    assert (refused.card_free_bytes, refused.cached_bytes) == (40 * MIB, 16 * MIB)
    assert refused.largest_free_bytes == 16 * MIB
    assert allocator.num_retries == 1


def test_a_longer_batch_than_the_last_one_takes_new_segments_where_segments_do_not_expand():
    """Batches of 1.0, 1.1, 1.2 times 64 MiB: 64 + 72 + 78 MiB, or one segment that grows."""
    reserved = {}
    for expandable in (False, True):
        allocator = CachingAllocator(expandable=expandable)
        for size in (64, 71, 77):
            allocator.free(allocator.malloc(size * MIB))
        reserved[expandable] = allocator.reserved_bytes // MIB
    assert reserved == {False: 64 + 72 + 78, True: 80}  # 77 MiB in pages of 20 MiB


def test_a_block_from_max_split_size_on_is_not_split():
    allocator = CachingAllocator(max_split_bytes=50 * MIB)
    allocator.free(allocator.malloc(60 * MIB))
    allocator.malloc(20 * MIB)  # may not take the block of 60
    assert allocator.reserved_bytes == 80 * MIB
    assert allocator.malloc(55 * MIB).size == 60 * MIB  # may, and takes it whole


def test_another_stream_has_its_own_pools():
    allocator = CachingAllocator()
    allocator.free(allocator.malloc(40 * MIB))
    allocator.malloc(40 * MIB, stream=1)
    assert allocator.reserved_bytes == 80 * MIB


def test_a_block_cannot_be_freed_twice():
    allocator = CachingAllocator()
    block = allocator.malloc(MIB)
    allocator.free(block)
    with pytest.raises(ValueError, match="free already"):
        allocator.free(block)
