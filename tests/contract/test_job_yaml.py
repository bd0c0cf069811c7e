import yaml
from hypothesis import given
from hypothesis import strategies as st

from tuneplan.contract.job_yaml import job_yaml

JOB = {
    "training": {"max_length": 4096, "optim": "adamw_torch", "packing": False},
    "model": "Qwen/Qwen2.5-7B-Instruct",
    "data": {"quantiles": {"p50": 610, "max": 16000}, "path": ["a.jsonl", "b: c.jsonl"]},
    "software": {"torch": "2.10"},
    "hardware": {"disk": {"size": "4 TB"}},
}


def test_a_job_reads_back_as_it_was_in_the_order_of_the_reference() -> None:
    text = job_yaml(JOB, {"training.max_length": "cutoff_len, line 7"}, head="From\n\ntrain.yaml")
    assert yaml.safe_load(text) == JOB
    lines = text.splitlines()
    assert lines[:3] == ["# From", "#", "# train.yaml"]
    assert lines.index("training:") < lines.index("hardware:")
    assert "  max_length: 4096  # cutoff_len, line 7" in lines
    assert "  quantiles: {p50: 610, max: 16000}" in lines
    assert "    size: 4 TB" in lines


@given(st.text() | st.integers() | st.booleans() | st.none() | st.lists(st.text(), max_size=4))
def test_any_value_reads_back_whatever_the_remark(value: object) -> None:
    text = job_yaml({"model": value}, {"model": "# odd: {remark}\nof two lines"})
    assert yaml.safe_load(text)["model"] == value


def test_a_remark_that_reaches_beyond_80_columns_stands_above_its_key():
    text = job_yaml({"training": {"max_length": 512}}, {"training.max_length": "x" * 70})
    assert text == f"training:\n  # {'x' * 70}\n  max_length: 512\n"
