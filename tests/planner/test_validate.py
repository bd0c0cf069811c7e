from dataclasses import replace

import pytest

from runs.rows_for_tests import FSDP_QLORA, LITGPT
from tuneplan.errors import NotSupported, UnreadableFile
from tuneplan.language import message
from tuneplan.planner.validate import Prediction, validate
from tuneplan.spec.answer import Estimate, Term


def about(likely: float) -> Estimate:
    return Estimate(low=likely * 0.9, likely=likely, high=likely * 1.1)


class Planner:
    """Predicts the same for every job, counts its calls, refuses what it cannot do."""

    def __init__(self) -> None:
        self.jobs = []

    def __call__(self, job):
        self.jobs.append(job)
        if job.recipe.parallelism.tensor > 1:
            raise NotSupported(message("tensor_parallel", "tensor parallelism has no formula yet"))
        return Prediction(
            peak_bytes=about(14e9),
            peak_reserved_bytes=about(6 * 2**30),
            tokens_per_s_per_accelerator=about(700.0),
            verdict="fits",
            memory_terms=(Term(kind="weights", value=13e9, formula="2 P"),),
        )


def file_of(tmp_path, *rows, name="runs.csv"):
    columns = list(dict.fromkeys(column for row in rows for column in row))
    cells = [[f'"{row.get(column, "")}"' for column in columns] for row in rows]
    lines = [",".join(line) for line in (columns, *cells)]
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_a_file_of_runs_is_predicted_compared_and_summed_up(tmp_path):
    validation = validate(file_of(tmp_path, LITGPT, FSDP_QLORA), predict=Planner())
    first, second = validation.rows
    # 14 / 14.14 - 1 = -1.0 %; 6 / 5.21 - 1 = +15.2 %; 700 / 670.4 - 1 = +4.4 %
    assert first.compared[0].error_fraction == pytest.approx(-0.0099, abs=1e-4)
    assert [round(item.error_fraction, 3) for item in second.compared] == [0.152, 0.044]
    assert [row.status for row in validation.rows] == ["predicted", "predicted"]
    assert (validation.verdicts.num_ran, validation.verdicts.missed_oom) == (2, 0)
    by_source = {item.source for item in validation.summary if item.source}
    assert by_source == {"litgpt-rt", "fsdpq"}


def test_what_the_planner_refuses_is_skipped_by_name_and_the_rest_goes_on(tmp_path):
    tensor = {**FSDP_QLORA, "id": "x-1", "parallelism": "tp=2,pp=1,dp=1"}
    validation = validate(file_of(tmp_path, tensor, LITGPT), predict=Planner())
    assert [row.status for row in validation.rows] == ["skipped", "predicted"]
    (reason,) = validation.skipped
    assert (reason.code, reason.count, reason.counted) == ("tensor_parallel", 1, 1)
    assert "no formula" in str(validation.rows[0].reason)


def test_only_complete_rows_count_in_the_tables_but_all_get_a_verdict(tmp_path):
    complete = file_of(
        tmp_path,
        {
            "id": "litgpt-rt-012",
            "source": "litgpt tables",
            "memory_complete": "yes",
            "throughput_complete": "no",
        },
        name="complete.csv",
    )
    runs = file_of(tmp_path, LITGPT, FSDP_QLORA)
    validation = validate(runs, predict=Planner(), complete=complete)
    assert [len(row.compared) for row in validation.rows] == [1, 0]
    assert validation.verdicts.num_ran == 2
    assert {item.source for item in validation.summary if item.source} == {"litgpt tables"}


def test_one_run_in_three_memory_kinds_is_predicted_once(tmp_path):
    rows = [
        {**LITGPT, "id": f"t-1{suffix}", "mem_kind": kind}
        for suffix, kind in (("a", "allocated"), ("r", "reserved"), ("n", "nvidia-smi"))
    ]
    planner = Planner()
    validation = validate(file_of(tmp_path, *rows), predict=planner)
    assert len(planner.jobs) == 1
    assert [len(row.compared) for row in validation.rows] == [1, 1, 0]  # no device figure given
    assert {row.run.source for row in validation.rows} == {"t"}


def test_a_missed_and_a_false_out_of_memory_are_counted_apart(tmp_path):
    failed = {**LITGPT, "id": "x-1", "oom": "yes", "peak_mem_gb": ""}

    def pessimist(job):
        return replace(Planner()(job), verdict="does_not_fit")

    runs = file_of(tmp_path, LITGPT, failed)
    assert validate(runs, predict=Planner()).verdicts.missed_oom_rate == 1.0
    assert validate(runs, predict=pessimist).verdicts.false_oom_rate == 1.0
    assert validate(runs, predict=pessimist).verdicts.missed_oom == 0


def test_the_worst_rows_come_first(tmp_path):
    far = {**LITGPT, "id": "far-1", "peak_mem_gb": "7"}
    validation = validate(file_of(tmp_path, LITGPT, far, FSDP_QLORA), predict=Planner())
    assert [row.run.id for row in validation.worst(2, memory=True)] == ["far-1", "fsdpq-002"]
    assert [row.run.id for row in validation.worst(9, memory=False)] == ["fsdpq-002"]


def test_a_bug_in_the_planner_is_not_taken_for_bad_input(tmp_path):
    def broken(job):
        raise ZeroDivisionError(job.model)

    with pytest.raises(ZeroDivisionError):
        validate(file_of(tmp_path, LITGPT), predict=broken)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UnreadableFile) as caught:
        validate(tmp_path / "none.csv", predict=Planner())
    assert caught.value.path.endswith("none.csv")
