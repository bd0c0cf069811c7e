"""What is written for a framework says the job, or says why it cannot."""

from __future__ import annotations

import json
import subprocess

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from exported_jobs import reread, stated_jobs, without
from tuneplan.contract.reading import load_job
from tuneplan.errors import CannotExport
from tuneplan.formats.exports import ENGINES, WRITERS, engine_files, writer_named
from tuneplan.spec.stated import StatedJob


def written(name: str, job: StatedJob):
    """The files, or the reasons why there are none."""
    try:
        return (engine_files(name, job) if name in ENGINES else writer_named(name).dump(job)), ()
    except CannotExport as error:
        return None, error.mistakes


def sayable(name: str, job: StatedJob) -> StatedJob:
    """The job less what the framework cannot say."""
    for _ in range(8):
        files, mistakes = written(name, job)
        if files is not None:
            return job
        job = without(job, [one.path for one in mistakes if one.path])
    raise AssertionError([(one.path, str(one.message)) for one in mistakes])


@pytest.mark.parametrize("name", [*WRITERS, *ENGINES])
@settings(max_examples=100)
@given(data=st.data())
def test_every_refusal_names_a_key_that_the_job_states(name: str, data: st.DataObject) -> None:
    job = data.draw(stated_jobs(name if name in WRITERS else "trl"))
    files, mistakes = written(name, job)
    assert (files is None) == bool(mistakes)
    paths = [one.path for one in mistakes]
    assert len(paths) == len(set(paths))
    if name not in ENGINES:  # an engine is refused where it is not the job's
        assert set(paths) <= set(job.stated)
        assert written(name, sayable(name, job))[0] is not None


@pytest.mark.parametrize("name", [*WRITERS, *ENGINES])
@settings(max_examples=50)
@given(data=st.data())
def test_every_file_parses(name: str, data: st.DataObject) -> None:
    job = data.draw(stated_jobs(name if name in WRITERS else "trl"))
    for one in written(name, job)[0] or ():
        if one.name.endswith(".json"):
            assert json.loads(one.text)
        elif one.name.endswith(".yaml"):
            assert yaml.safe_load(one.text)
        else:
            assert one.name == "train.sh"


def test_all_reasons_are_told_at_once() -> None:
    job = load_job(
        {
            "model": "Qwen/Qwen2.5-7B-Instruct",
            "framework": "torchtune",
            "method": "lora",
            "training": {"precision": "bf16", "use_liger_kernel": True, "padding": "max_length"},
            "parallelism": "zero3",
        }
    )
    _, mistakes = written("torchtune", job)
    assert {one.path for one in mistakes} == {
        "training.precision",
        "training.use_liger_kernel",
        "training.padding",
        "parallelism.strategy",
    }


def test_a_script_of_ms_swift_is_one_that_bash_reads() -> None:
    job = load_job(
        {
            "model": "models/it's here",
            "framework": "ms-swift",
            "method": "lora",
            "training": {"gradient_checkpointing": True, "use_reentrant": False},
        }
    )
    (script,) = writer_named("ms-swift").dump(job)
    assert subprocess.run(["bash", "-n"], input=script.text, text=True, check=False).returncode == 0
    assert "--model 'models/it'\"'\"'s here'" in script.text


@pytest.mark.parametrize("name", list(ENGINES))
@settings(max_examples=60)
@given(data=st.data())
def test_an_engines_file_reads_as_the_part_of_the_job_that_it_says(
    name: str, data: st.DataObject
) -> None:
    job = data.draw(stated_jobs("trl"))
    files, _ = written(name, job)
    assume(files is not None)
    again = reread(name, files, model=job.model).recipe
    stated = job.recipe
    if stated.parallelism.strategy not in (None, "ddp"):
        assert again.parallelism.strategy == stated.parallelism.strategy
        assert (again.parallelism.offload or "none") == (stated.parallelism.offload or "none")
    if stated.training.precision in ("bf16", "fp16"):
        assert again.training.precision == stated.training.precision
    if name == "deepspeed" and isinstance(stated.training.per_device_train_batch_size, int):
        batch = again.training.per_device_train_batch_size
        assert batch == stated.training.per_device_train_batch_size
