import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis import oom_samples as samples
from tuneplan.diagnosis.oom_text import Source, read_log
from tuneplan.units import GIB, MIB


def figures(text: str) -> dict[str, float]:
    failure = read_log(text).failure
    assert failure is not None
    assert failure.source is Source.ALLOCATOR
    names = ("requested", "capacity", "allocated", "reserved", "free")
    return {
        name: printed.size_bytes
        for name in names
        if (printed := getattr(failure, name)) is not None
    }


def test_the_first_generation_calls_reserved_memory_cached() -> None:
    assert figures(samples.OLDEST) == {
        "requested": 512 * MIB,
        "capacity": round(10.92 * GIB),
        "allocated": round(9.80 * GIB),
        "reserved": round(160.25 * MIB),
        "free": round(100.50 * MIB),
    }


def test_until_2_0_the_figures_stand_in_brackets() -> None:
    assert figures(samples.BEFORE_2_1) == {
        "requested": round(1.5 * GIB),
        "capacity": round(23.69 * GIB),
        "allocated": 17 * GIB,
        "reserved": round(21.25 * GIB),
        "free": round(1.19 * GIB),
    }


def test_from_2_1_reserved_is_allocated_and_what_is_unallocated() -> None:
    found = figures(samples.FROM_2_1)
    assert found["capacity"] == round(39.39 * GIB)
    assert found["free"] == 700 * MIB
    assert found["reserved"] == round(32.5 * GIB) + 720 * MIB


def test_other_processes_are_those_that_are_not_this_one() -> None:
    failure = read_log(samples.FROM_2_1).failure
    assert failure is not None
    assert failure.others_bytes == 5 * GIB
    assert failure.process_bytes == round(33.7 * GIB)


def test_a_container_that_hides_its_own_number_tells_nothing_of_other_processes() -> None:
    failure = read_log(samples.FROM_2_5).failure
    assert failure is not None
    assert failure.others_bytes is None
    assert failure.rank == "2"


def test_private_pools_of_cuda_graphs_do_not_hide_what_is_unallocated() -> None:
    assert figures(samples.FROM_2_5)["reserved"] == 74 * GIB + 512 * MIB


@pytest.mark.parametrize("name", ["HIP", "XPU", "NPU"])
def test_other_makers_chips_say_the_same(name: str) -> None:
    assert figures(samples.BEFORE_2_1.replace("CUDA out", f"{name} out"))["requested"] == 1.5 * GIB


@pytest.mark.parametrize("line", samples.HOST)
def test_the_words_of_the_host_are_known(line: str) -> None:
    failure = read_log(f"step 1\n{line}\n").failure
    assert failure is not None
    assert (failure.source, failure.line) == (Source.HOST, 2)


def test_the_host_s_own_allocator_says_how_much_was_asked_for() -> None:
    failure = read_log(samples.HOST[7]).failure
    assert failure is not None
    assert failure.requested is not None
    assert failure.requested.size_bytes == 270_532_608
    assert failure.requested.half_step_bytes == 0


@pytest.mark.parametrize(
    ("source", "line"), [(name, line) for name, lines in samples.OTHERS.items() for line in lines]
)
def test_libraries_that_ran_out_are_told_apart(source: str, line: str) -> None:
    failure = read_log(line).failure
    assert failure is not None
    assert failure.source == source


def test_nccl_says_how_much_it_asked_for() -> None:
    failure = read_log(samples.OTHERS["collective"][1]).failure
    assert failure is not None
    assert failure.requested is not None
    assert failure.requested.size_bytes == 10 * MIB


def test_ranks_that_a_launcher_kills_are_not_the_cause() -> None:
    log = read_log(f"{samples.HOST[1]}\n{samples.BEFORE_2_1}\n{samples.HOST[2]}")
    assert log.failure is not None
    assert log.failure.source is Source.ALLOCATOR
    assert len(log.failures) == 3


def test_a_message_that_was_wrapped_is_one_message() -> None:
    words = samples.BEFORE_2_1.split(" ")
    wrapped = "\n".join(" ".join(words[at : at + 6]) for at in range(0, len(words), 6))
    log = read_log(wrapped)
    assert len(log.failures) == 1
    assert figures(wrapped) == figures(samples.BEFORE_2_1)


def test_colours_and_the_marks_of_ranks_are_no_part_of_a_line() -> None:
    log = read_log(samples.traceback_of("load", mark="\x1b[31m[rank1]:\x1b[0m "))
    assert [frame.function for frame in log.frames] == ["main", "from_pretrained", "to"]


def test_frames_of_another_rank_are_left_aside() -> None:
    mine = samples.traceback_of("first_forward", mark="[rank0]: ").splitlines()
    other = samples.traceback_of("save", mark="[rank1]: ").splitlines()
    mixed = [line for pair in zip(mine, other, strict=False) for line in pair]
    log = read_log("\n".join([*mixed, *mine[len(other) :]]))
    assert log.failure is not None
    assert log.failure.rank == "1"
    functions = [frame.function for frame in log.frames]
    assert functions == ["_maybe_log_save_evaluate", "_save_checkpoint", "full_optim_state"]


@pytest.mark.parametrize(
    "line",
    [
        "│ /env/lib/trainer.py:3485 in training_step                                  │",
        "File ~/env/lib/trainer.py:3485, in Trainer.training_step(self, model, inputs)",
        '  File "C:\\env\\lib\\trainer.py", line 3485, in training_step',
    ],
)
def test_frames_of_rich_and_of_notebooks_are_read(line: str) -> None:
    log = read_log(f"Traceback (most recent call last):\n{line}\n{samples.BEFORE_2_1}")
    assert [(frame.function, frame.line) for frame in log.frames] == [("training_step", 3485)]


def test_a_log_without_a_word_of_memory_has_no_failure() -> None:
    log = read_log("KeyError: 'labels'\nProcess finished with exit code 1\n")
    assert log.failure is None
    assert log.failures == ()


def test_lines_are_counted_from_the_given_one() -> None:
    failure = read_log(f"a\n{samples.OLDEST}", first_line=101).failure
    assert failure is not None
    assert failure.line == 102


@given(st.text(max_size=400))
def test_no_text_is_too_odd_to_be_read(text: str) -> None:
    assert read_log(text).failures == read_log(text).failures


@given(st.integers(1, 2**40), st.sampled_from(["bytes", "KiB", "MiB", "GiB"]))
def test_a_size_is_known_to_half_of_its_last_digit(size: int, unit: str) -> None:
    scale = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}[unit]
    shown = f"{size} bytes" if unit == "bytes" else f"{size / scale:.2f} {unit}"
    failure = read_log(f"CUDA out of memory. Tried to allocate {shown}.").failure
    assert failure is not None
    assert failure.requested is not None
    assert abs(failure.requested.size_bytes - size) <= failure.requested.half_step_bytes + 1


def test_in_a_container_the_smallest_process_that_holds_the_reserved_is_this_one() -> None:
    text = samples.FROM_2_1.replace(
        "Including non-PyTorch memory, this process has 33.70 GiB", "Process 7 has 33.70 GiB"
    )
    (failure,) = read_log(text).failures  # 33.20 GiB reserved: 5.00 GiB cannot be its own
    assert failure.others_bytes == 5 * GIB
