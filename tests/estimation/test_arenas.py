"""The quick replay: the same figures as the allocator with all its rules, request by request."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from settings import LLAMA_3_8B, MIXTRAL, TINY_LLAMA, recipe
from tuneplan.estimation import arenas
from tuneplan.estimation.allocator import CachingAllocator
from tuneplan.estimation.arenas import Arenas
from tuneplan.estimation.replay import _Cut, _Limited, _Player, replay_job
from tuneplan.estimation.replayed_job import Loading, job_of
from tuneplan.estimation.stretches import stretch_of
from tuneplan.estimation.walking import walk_model
from tuneplan.spec.parallelism import Parallelism

from .test_replay import RECIPES

SIZES = st.sampled_from(
    [512, 1024, 700 * 512, 2**20, 2**20 + 512, 3 * 2**20, 10 * 2**20 - 512, 14 * 2**20, 2**25 + 512]
)


def in_full(job):
    """The figures of ``replay_job``, from the allocator with all its rules."""

    def played(batches):
        allocator = CachingAllocator()
        player = _Player(job, _Limited(allocator), _Cut(job.recipe))
        player.load()
        player.steps(batches)
        return allocator

    usual = played((*job.history[-1:], job.batch, job.batch))
    whole = played((*job.history, job.batch))
    return (
        usual.peak_allocated_bytes,
        usual.peak_reserved_bytes,
        max(usual.peak_reserved_bytes, whole.peak_reserved_bytes),
        usual.fragmentation_bytes,
    )


def quickly(job):
    found = replay_job(job)
    return (
        found.peak_allocated_bytes,
        found.peak_reserved_bytes,
        found.reserved_after_history_bytes,
        found.fragmentation_bytes,
    )


def job_with(model, settings, lengths, sequences=2.0):
    *history, batch = (
        walk_model(model, settings, Parallelism(), sequences=sequences, length=length, record=True)
        for length in lengths
    )
    return job_of(
        batch,
        settings,
        Parallelism(),
        compute_capability=8.0,
        loading=Loading(empties_cache=True),
        history=history,
    )


CASES = [(TINY_LLAMA, name) for name in RECIPES] + [
    (LLAMA_3_8B, name) for name in ("LoRA", "full, no checkpointing")
]


@pytest.mark.parametrize(("model", "name"), CASES, ids=[f"{m.name} {n}" for m, n in CASES])
def test_a_job_has_the_figures_of_the_allocator_with_all_its_rules(model, name) -> None:
    job = job_with(model, recipe(**RECIPES[name]), (1228.0, 1433.0, 1638.0, 1842.0, 2047.0))
    assert quickly(job) == in_full(job)


@limits(max_examples=8)
@given(
    name=st.sampled_from(sorted(RECIPES)),
    length=st.integers(100, 9000),
    sequences=st.integers(1, 9),
    accumulation=st.sampled_from([1, 4]),
)
def test_so_has_one_of_any_length_and_batch(name, length, sequences, accumulation) -> None:
    settings = replace(recipe(**RECIPES[name]), gradient_accumulation_steps=accumulation)
    lengths = [round(share * length) for share in (0.6, 0.8, 0.9, 1.0)]
    job = job_with(TINY_LLAMA, settings, list(map(float, lengths)), float(sequences))
    whole = in_full(job)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arenas, "QUIET_TIMES", 10**9)  # every layer is played
        assert quickly(job) == whole
    # What is not played again is no proof, and it is not far off.
    assert quickly(job)[:3] == pytest.approx(whole[:3], rel=0.03)


def test_so_has_one_with_experts() -> None:
    job = job_with(MIXTRAL, recipe(**RECIPES["QLoRA"]), (800.0, 1000.0))
    assert quickly(job) == in_full(job)


@st.composite
def streams(draw):
    """Stretches: births and deaths, of what the same stretch bore and of what others did."""
    alive: list[int] = []
    stretches, slot = [], 0
    for _ in range(draw(st.integers(1, 6))):
        steps = []
        for _ in range(draw(st.integers(1, 30))):
            if alive and draw(st.booleans()):
                steps.append((alive.pop(draw(st.integers(0, len(alive) - 1))), 0))
            else:
                steps.append((slot, draw(SIZES)))
                alive.append(slot)
                slot += 1
        stretches.append((tuple(steps), draw(st.integers(1, 3))))
    return stretches, slot


@given(streams(), st.booleans())
def test_stretches_take_what_the_allocator_takes(drawn, tracks) -> None:
    stretches, num_slots = drawn
    quick, allocator = Arenas(tracks=tracks), CachingAllocator()
    slots, blocks = [0] * num_slots, {}
    for steps, _ in stretches:
        quick.play(stretch_of(steps), slots)
        for slot, size in steps:
            if size:
                blocks[slot] = allocator.malloc(size)
            else:
                allocator.free(blocks.pop(slot))
        assert quick.peak_reserved_bytes == allocator.peak_reserved_bytes
    if tracks:
        assert quick.peak_allocated_bytes == allocator.peak_allocated_bytes
        assert quick.fragmentation_bytes == allocator.fragmentation_bytes


@given(st.lists(SIZES, min_size=1, max_size=40), st.data())
def test_blocks_by_themselves_are_the_allocators_too(sizes, data) -> None:
    quick, allocator = Arenas(tracks=True), CachingAllocator()
    blocks = quick.take_all(sizes)
    others = [allocator.malloc(size) for size in sizes]
    gone = data.draw(st.lists(st.sampled_from(range(len(sizes))), unique=True))
    quick.give_all([blocks[at] for at in gone])
    for at in gone:
        allocator.free(others[at])
    quick.empty_cache()
    allocator.empty_cache()
    quick.take(sizes[0])
    allocator.malloc(sizes[0])
    copy = quick.untracked()
    copy.take(sizes[-1])
    allocator.malloc(sizes[-1])
    quick.take(sizes[-1])
    assert quick.peak_reserved_bytes == copy.peak_reserved_bytes == allocator.peak_reserved_bytes
    assert quick.peak_allocated_bytes == allocator.peak_allocated_bytes
    assert quick.fragmentation_bytes == allocator.fragmentation_bytes
