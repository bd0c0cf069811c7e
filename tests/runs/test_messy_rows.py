"""Rows as people write them: units in cells, other spellings, blanks, garbage."""

import contextlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuneplan import validate
from tuneplan.errors import InputError
from tuneplan.runs.reading import Record
from tuneplan.runs.rows import KNOWN_COLUMNS, MemoryKind, measured_run

GOOD = {
    "id": "a-1",
    "model": "Llama2-7b",
    "framework": "trl",
    "gpu": "H100-SXM5-80GB",
    "num_gpus": "1",
    "method": "lora",
    "lora_rank": "16",
    "lora_targets": "all-linear",
    "seq_len": "2048",
    "micro_batch_per_gpu": "1",
    "grad_accum": "8",
    "peak_mem_gb": "20 GiB",
    "mem_kind": "allocated",
    "tokens_per_s_per_gpu": "3000",
}


def run(**cells):
    return measured_run(Record(2, {**GOOD, **cells}))


@pytest.mark.parametrize(
    ("column", "text", "name", "value"),
    [
        ("gpu_mem_gb", "48 GB", "accelerator_memory_gb", 48.0),
        ("gpu_mem_gb", "80GiB", "accelerator_memory_gb", 80.0),
        ("num_gpus", "8x", "num_accelerators", 8),
        ("seq_len", "2,048 tokens", "max_length", 2048),
        ("epochs", "3 epochs", "num_epochs", 3.0),
    ],
)
def test_units_behind_numbers_are_read(column, text, name, value):
    found = run(**{column: text})
    assert not found.faults
    assert getattr(found, name) == value


def test_milliseconds_are_seconds():
    assert run(step_time_s="350 ms").measured.step_s == pytest.approx(0.35)
    assert run(step_time_s="1.2 s").measured.step_s == pytest.approx(1.2)
    assert run(tokens_per_s_per_gpu="2500 tok/s").measured.tokens_per_s_per_accelerator == 2500


def test_a_unit_of_something_else_is_a_fault_not_a_guess():
    (fault,) = run(seq_len="2048 GB").faults
    assert fault.column == "seq_len"


@pytest.mark.parametrize("text", ["Allocated", "max_memory_allocated", "peak allocated"])
def test_kinds_of_memory_have_other_names(text):
    assert run(mem_kind=text).measured.memory_kind is MemoryKind.ALLOCATED


@pytest.mark.parametrize(
    ("model", "gpu"),
    [
        ("Llama2-7b", "H100-SXM5-80GB"),
        ("llama-2-7b-hf", "A6000 Ada"),
        ("Qwen2.5 7B Instruct", "H100 80GB HBM3"),
        ("Mistral 7B", "RTX4090"),
    ],
)
def test_names_as_people_write_them_are_predicted(tmp_path, model, gpu):
    path = tmp_path / "runs.csv"
    cells = {**GOOD, "model": model, "gpu": gpu}
    path.write_text(f"{','.join(cells)}\n{','.join(cells.values())}\n", encoding="utf-8")
    (row,) = validate(path).rows
    assert row.status == "predicted", row.reason
    assert row.predicted.verdict is not None


COLUMNS = sorted(KNOWN_COLUMNS)
CELLS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ["", "-", "yes", "no", "0", "-1", "1e308", "nan", "inf", "8 GB", "7B", "fp8", "zero=3",
         "tp=2,pp=2", "Llama-2-7b", "A100", "qlora", "full", "lora", "1", "2048", "bnb nf4"]
    ),
)  # fmt: skip


@given(st.lists(st.dictionaries(st.sampled_from(COLUMNS), CELLS, max_size=14), max_size=3))
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_garbage_is_skipped_with_a_reason_and_never_a_crash(tmp_path, rows):
    import csv

    path = tmp_path / "garbage.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["id", *(name for name in COLUMNS if name != "id")])
        writer.writeheader()
        for number, row in enumerate(rows):
            writer.writerow({**GOOD, **row, "id": f"g-{number}"})
    with contextlib.suppress(InputError):  # of the file as a whole, told by line
        found = validate(path)
        assert all((row.reason is None) is (row.predicted is not None) for row in found.rows)
