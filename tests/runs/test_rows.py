import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.rows_for_tests import FSDP_QLORA, LITGPT, run_of
from tuneplan.runs.rows import MemoryKind, source_of


def test_gb_is_decimal_and_gib_is_binary():
    # 14.14 GB = 14.14e9 B; 5.21 GiB = 5.21 x 1,073,741,824 B
    assert run_of(LITGPT).measured.peak_memory_bytes == 14.14e9
    assert run_of(FSDP_QLORA).measured.peak_memory_bytes == 5.21 * 1_073_741_824


@pytest.mark.parametrize("unit", ["", "unknown", "G"])
def test_a_size_without_a_known_unit_is_no_size(unit):
    assert run_of(mem_unit=unit).measured.peak_memory_bytes is None


def test_a_unit_in_the_cell_wins_over_the_unit_column():
    assert run_of(peak_mem_gb="10 GiB", mem_unit="GB").measured.peak_memory_bytes == 10 * 2**30


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("allocated", MemoryKind.ALLOCATED),
        ("Reserved", MemoryKind.RESERVED),
        ("nvidia-smi", MemoryKind.DEVICE),
        ("unknown", None),
        ("", None),
    ],
)
def test_memory_kinds_are_told_apart(text, kind):
    assert run_of(mem_kind=text).measured.memory_kind is kind


@pytest.mark.parametrize(
    ("column", "text", "code"),
    [
        ("seq_len", "long", "not_a_number"),
        ("seq_len", "1024.5", "not_whole"),
        ("micro_batch_per_gpu", "-2", "not_positive"),
        ("num_gpus", "0", "not_positive"),
        ("oom", "perhaps", "neither_yes_nor_no"),
        ("peak_mem_gb", "14 parsecs", "unknown_unit"),
    ],
)
def test_a_cell_that_does_not_read_is_a_fault_of_its_row(column, text, code):
    (fault,) = run_of(**{column: text}).faults
    assert (fault.column, fault.value.casefold(), fault.message.code) == (column, text, code)


@given(st.integers(min_value=1, max_value=10**9))
def test_thousands_separators_do_not_change_a_number(number):
    assert run_of(seq_len=f"{number:,}").max_length == number
    assert run_of(seq_len=str(number)).max_length == number


@pytest.mark.parametrize(
    ("run_id", "source"),
    [("litgpt-rt-012", "litgpt-rt"), ("fitck-001a", "fitck"), ("lf-0007", "lf"), ("42", "42")],
)
def test_the_source_is_the_id_without_its_number(run_id, source):
    assert source_of(run_id) == source


def test_a_run_that_measured_something_ran():
    assert run_of(oom="").measured.out_of_memory is False
    assert run_of(oom="yes", peak_mem_gb="").measured.out_of_memory is True
    assert run_of(oom="", peak_mem_gb="").measured.out_of_memory is None


def test_unknown_columns_are_kept_and_never_interpreted():
    run = run_of(notes="quality=A; amp flag=bf16", colour="blue")
    assert run.extra["notes"] == "quality=A; amp flag=bf16"
    assert run.extra["colour"] == "blue"
    assert "bf16" not in run.words["amp_dtype"]


def test_a_row_without_an_id_is_named_by_its_line():
    assert run_of(id="").id == "row-2"
