"""The replay of recorded events: no PyTorch is needed, recordings are written by hand."""

from __future__ import annotations

from array import array

from hypothesis import given, settings
from hypothesis import strategies as st

from tuneplan.estimation.allocator import CachingAllocator
from tuneplan.tracing.plays import AHEAD, Play, play, plays
from tuneplan.tracing.recording import Block, Recording
from tuneplan.tracing.replay import (
    HISTORY,
    SHORT,
    DownwardAllocator,
    Played,
    aligned,
    length_share,
    replay,
)

MIB = 2**20
HIDDEN = 1024


def recorded(length: int, *, weight: int = 50 * MIB, kept: bool = False) -> Recording:
    """A weight, then two steps: ids, an activation of ``length`` rows, their square in passing."""
    recording = Recording()

    def make(shape: tuple[int, ...], width: int, phase: str, step: int, stream: int = 0) -> int:
        size = width
        for dimension in shape:
            size *= dimension
        block = Block(size, "made", "model.layers.0", "uint8", shape, phase, 0, step, stream=stream)
        block.born = len(recording.events)
        recording.events.append(len(recording.blocks))
        recording.blocks.append(block)
        return len(recording.blocks) - 1

    def drop(block: int) -> None:
        recording.blocks[block].died = len(recording.events)
        recording.events.append(~block)

    def mark(phase: str, step: int) -> None:
        recording.marks.append((len(recording.events), phase, step))

    mark("load", 0)
    make((weight,), 1, "load", 0)
    before = None
    for step in (0, 1):
        mark("forward", step)
        ids = make((1, length), 8, "forward", step)
        activation = make((1, length, HIDDEN), 2, "forward", step)
        scores = make((length, length), 4, "forward", step)
        if before is not None:
            drop(before)
        drop(scores)
        mark("backward", step)
        gradient = make((1, length, HIDDEN), 2, "backward", step)
        drop(gradient)
        drop(ids)
        if kept:
            before = activation
        else:
            drop(activation)
    mark("other", 1)
    recording.events = array("q", recording.events)
    return recording


def test_the_peak_is_the_sum_of_what_lives_at_once():
    """50 MiB of weight, 2048 x 8 B ids, 2048 x 1024 x 2 B = 4 MiB, 2048 x 2048 x 4 B = 16 MiB."""
    found = replay(Played(recording=recorded(2048)))
    assert found.peak_allocated_bytes == 50 * MIB + 2048 * 8 + 4 * MIB + 16 * MIB
    assert found.fits


def test_the_peak_s_event_is_the_birth_that_made_it():
    recording = recorded(2048)
    at = replay(Played(recording=recording)).peak_at
    assert recording.blocks[recording.events[at]].shape == (2048, 2048)


def test_what_one_step_keeps_dies_in_the_next_however_often_that_is_played():
    """Two activations of 4 MiB at once: the one of the step before, and the new one."""
    played = Played(recording=recorded(2048, kept=True), shorter=recorded(1024, kept=True))
    once = replay(played).peak_allocated_bytes
    often = replay(played, history=(1.0, 1.0, 1.0, 1.0)).peak_allocated_bytes
    assert once == often == 50 * MIB + 2048 * 8 + 4 * MIB + 4 * MIB + 16 * MIB


def test_sizes_at_another_length_follow_each_dimension():
    """At 0.75: ids and activations shrink with the length, the scores with its square."""
    played = Played(recording=recorded(2048), shorter=recorded(1024))
    assert played.sizes_at(0.75) == [block.size for block in recorded(1536).blocks]
    assert played.sizes_at(1.0) == [block.size for block in recorded(2048).blocks]


def test_the_length_of_another_recording_is_read_from_its_first_batch():
    assert length_share(recorded(2048), recorded(512)) == 0.25


def test_recordings_whose_streams_differ_are_not_aligned():
    assert aligned(recorded(2048), recorded(512))
    assert not aligned(recorded(2048), recorded(512, kept=True))


def test_longer_and_longer_batches_reserve_more_unless_segments_expand():
    played = Played(recording=recorded(8192), shorter=recorded(4096))
    fresh = replay(played)
    worst = replay(played, history=HISTORY)
    expanding = replay(played, history=HISTORY, expandable=True)
    assert worst.peak_allocated_bytes == fresh.peak_allocated_bytes
    assert worst.peak_reserved_bytes > fresh.peak_reserved_bytes
    assert expanding.peak_reserved_bytes < worst.peak_reserved_bytes


def test_a_limit_says_which_request_failed_and_where():
    """The card gives 70 MiB: weight (50), small pool (2), activation's segment (20): no scores."""
    recording = recorded(8192)  # scores of 256 MiB
    found = replay(Played(recording=recording), limit_bytes=100 * MIB)
    assert not found.fits
    assert found.out_of_memory.requested_bytes == 256 * MIB
    assert recording.blocks[recording.events[found.failed_at]].shape == (8192, 8192)


def test_the_limit_may_be_what_is_reserved_and_less_where_the_cache_can_be_given_back():
    played = Played(recording=recorded(8192), shorter=recorded(4096))
    worst = replay(played, history=HISTORY)
    assert replay(played, history=HISTORY, limit_bytes=worst.peak_reserved_bytes).fits
    fresh = replay(played)
    assert replay(played, history=HISTORY, limit_bytes=fresh.peak_reserved_bytes + 40 * MIB).fits


def test_the_loader_s_first_block_is_reserved_and_can_be_used_afterwards():
    """A block of 90 MiB is cached: the weight of 50 and the rest of the job come from it."""
    plain = replay(Played(recording=recorded(2048)))
    warm = replay(Played(recording=recorded(2048), warm_up_bytes=90 * MIB))
    assert plain.peak_reserved_bytes < 90 * MIB
    assert warm.peak_reserved_bytes == 90 * MIB + 2 * MIB  # the ids: the small pool


def test_blocks_that_come_after_loading_stay():
    plain = replay(Played(recording=recorded(2048)))
    more = replay(Played(recording=recorded(2048), resident_bytes=(26 * MIB, 26 * MIB)))
    assert more.peak_allocated_bytes == plain.peak_allocated_bytes + 52 * MIB


def test_emptying_the_cache_is_played_where_it_happened():
    """Given back before the weight comes, the loader's block does not stand beside the ids."""
    recording = recorded(2048)
    assert replay(Played(recording=recording, warm_up_bytes=900 * MIB)).peak_reserved_bytes == (
        902 * MIB
    )
    recording.emptied = [0]
    found = replay(Played(recording=recording, warm_up_bytes=900 * MIB))
    assert found.peak_reserved_bytes == 900 * MIB
    kept = Played(recording=recording, warm_up_bytes=900 * MIB, empties_cache=False)
    assert replay(kept).peak_reserved_bytes == 902 * MIB


def test_blocks_of_another_stream_do_not_reuse_this_stream_s_cache():
    one, other = recorded(2048), recorded(2048)
    for block in other.blocks:
        if block.phase == "backward":
            block.stream = 1
    alone = replay(Played(recording=one)).peak_reserved_bytes
    assert replay(Played(recording=other)).peak_reserved_bytes > alone


lengths = st.integers(1, 4096)


@given(lengths, lengths, st.lists(st.floats(0.05, 1.0), max_size=5), st.booleans(), st.booleans())
@settings(deadline=None, max_examples=50)
def test_blocks_never_overlap_and_reserved_never_falls_below_allocated(
    length, shorter, history, kept, expandable
):
    played = Played(
        recording=recorded(length + 1, kept=kept),
        shorter=recorded(min(shorter, length), kept=kept),
    )
    allocator = CachingAllocator(expandable=expandable)
    checked = []

    def watch(_index, allocator):
        assert allocator.reserved_bytes >= allocator.allocated_bytes
        checked.append(allocator.allocated_bytes)

    found = replay(played, history=history, watch=watch, allocator=allocator)
    assert max(checked) == found.peak_allocated_bytes
    assert found.peak_reserved_bytes >= found.peak_allocated_bytes


def test_where_the_longest_batch_is_the_first_no_step_finds_its_cache():
    longer = recorded(1300, weight=20 * MIB)
    kept = Played(recording=longer)
    given_back = Played(recording=longer, longest_first=True)
    seen: list[int] = []
    starts = [at for at, phase, _ in longer.marks if phase == "forward"]

    def watch(at: int, allocator: CachingAllocator) -> None:
        if at == starts[1]:
            seen.append(allocator.reserved_bytes)

    assert replay(given_back).peak_allocated_bytes == replay(kept).peak_allocated_bytes
    replay(kept, watch=watch)
    replay(given_back, watch=watch)
    assert seen[1] < seen[0]


def test_of_equal_free_blocks_the_one_in_the_newest_segment_is_used():
    """Eager attention on a T4 reserved what it did so, and not the other way round."""
    allocator = DownwardAllocator()
    old, new = allocator.malloc(30 * MIB), allocator.malloc(30 * MIB)
    assert old is not None
    assert new is not None
    assert new.address < old.address
    addresses = {"old": old.address, "new": new.address}
    allocator.free(old)
    allocator.free(new)
    taken = allocator.malloc(30 * MIB)
    assert taken is not None
    assert taken.address == addresses["new"]


def loading(matrices: int, matrix: int = 40 * MIB) -> Recording:
    """Each matrix passes through the card in 16 bits and stays in 4; then two steps."""
    found = Recording()
    found.marks.append((0, "load", 0))
    events: list[int] = []

    def make(shape: tuple[int, ...], operation: str, phase: str) -> int:
        size = shape[0] if len(shape) == 1 else shape[0] * shape[1]
        block = Block(size, operation, "", "uint8", shape, phase, len(events), 0)
        found.blocks.append(block)
        events.append(len(found.blocks) - 1)
        return len(found.blocks) - 1

    def drop(block: int) -> None:
        found.blocks[block].died = len(events)
        events.append(~block)

    for _ in range(matrices):
        staged = make((matrix // 1024, 1024), "empty", "load")
        make((matrix // 4,), "empty", "load")
        drop(staged)
    for step in (0, 1):
        found.marks.append((len(events), "forward", step))
        drop(make((MIB,), "made", "forward"))
    found.marks.append((len(events), "other", 1))
    found.events = array("q", events)
    return found


def test_weights_that_are_read_ahead_stand_on_the_card_together():
    """Ten of 40 MiB: one at a time beside what is packed; four; all of them."""
    played = Played(recording=loading(10), reads_ahead=True)
    packed = 10 * MIB
    most = [replay(played, ahead=ahead).peak_allocated_bytes for ahead in (0, 4, 10, AHEAD[-1])]
    assert most[0] == 10 * packed + 40 * MIB
    assert most[1] == max((7 + number) * packed + (4 - number) * 40 * MIB for number in range(4))
    assert most[2] == most[3] == packed + 10 * 40 * MIB
    assert {one.ahead for one in plays(played)} == set(AHEAD)


def test_a_bucket_s_longest_batch_comes_upon_an_emptied_cache_and_the_last_batch_s_outputs():
    """What one step keeps dies in the next: kept by a short batch, it is small."""
    longer, shorter = recorded(1300, kept=True), recorded(780, kept=True)
    loop = Played(recording=longer, shorter=shorter, longest_first=True, empties_cache_steps=1)
    plain = Played(recording=longer, shorter=shorter)
    assert replay(loop).peak_allocated_bytes < replay(plain).peak_allocated_bytes
    found = plays(loop)
    assert [one.history for one in found] == [(first, SHORT) for first in (*HISTORY, 1.0)]
    assert not any(one.after for one in found)
    tenth = Played(recording=longer, shorter=shorter, longest_first=True, empties_cache_steps=10)
    assert all(one.after == HISTORY[::-1] for one in plays(tenth))
    most = max(play(tenth, one).peak_reserved_bytes for one in plays(tenth))
    assert most >= replay(tenth).peak_reserved_bytes


def test_the_cache_is_emptied_while_the_gradients_are_there():
    """They die afterwards, so their segment is not given back."""
    recording = recorded(1300, weight=2 * MIB)
    events = list(recording.events)
    end = len(events)
    for step in (1, 0):
        at = end if step else next(a for a, phase, of in recording.marks if of == 1)
        block = Block(64 * MIB, "made", "", "uint8", (64 * MIB,), "backward", 0, step)
        block.kind = "gradient"
        number = len(recording.blocks)
        recording.blocks.append(block)
        events[at:at] = [number, ~number]
        recording.marks = [
            (mark + 2 * (mark >= at and (phase, of) != ("backward", step)), phase, of)
            for mark, phase, of in recording.marks
        ]
    recording.events = array("q", events)
    for at, event in enumerate(events):
        block = recording.blocks[event if event >= 0 else ~event]
        if event >= 0:
            block.born = at
        else:
            block.died = at
    begin = [at for at, phase, _ in recording.marks if phase == "forward"][1]
    seen: list[int] = []

    def watch(at: int, allocator: CachingAllocator) -> None:
        if at == begin:
            seen.append(allocator.reserved_bytes - allocator.allocated_bytes)

    replay(Played(recording=recording, empties_cache_steps=1), watch=watch)
    assert seen[0] >= 64 * MIB


def test_where_nothing_is_open_nothing_is_played():
    assert plays(Played(recording=recorded(2048))) == ()
    assert plays(Played(recording=recorded(2048), shorter=recorded(1024))) == (
        Play(history=HISTORY),
    )
