"""Whatever stands in a job file: a job, or an error for people; never a traceback."""

import contextlib
import json
import math
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tuneplan.contract.job import keys
from tuneplan.contract.reading import load_job, load_job_text
from tuneplan.contract.spellings import IRRELEVANT, SPELLINGS
from tuneplan.errors import InvalidRequest, UnreadableFile
from tuneplan.report.errors import errors_document, errors_text

FULL = Path(__file__).parent / "jobs" / "full.yaml"
WRITTEN = sorted({*keys(), *IRRELEVANT, *(name for s in SPELLINGS for name in s.written)})
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["auto", "lora", "24 h", "500 USD", "80 GiB", "1e999 GB", "NT$ 5", "trl==1"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


def read_text(text: str, form: str) -> None:
    refused: InvalidRequest | UnreadableFile | None = None
    try:
        load_job_text(text, form=form)
    except (InvalidRequest, UnreadableFile) as error:
        refused = error
    if refused is not None:
        assert errors_text(refused.mistakes).strip()
        json.dumps(errors_document(refused.mistakes), allow_nan=False)


@given(st.text(max_size=300), st.sampled_from(["yaml", "json", "toml"]))
@settings(max_examples=300, deadline=None)
@example("model: 2026-99-99", "yaml")
@example("model: 0x" + "f" * 300, "yaml")
@example("training: {max_length: 0x" + "f" * 300 + "}", "yaml")
@example("model: " + "9" * 5000, "yaml")
@example('{"model": ' + "9" * 5000 + "}", "json")
@example("model = " + "9" * 5000, "toml")
@example("? [a]\n: b", "yaml")
@example("<<: 5", "yaml")
@example("&a [*a]", "yaml")
@example("a: &a {b: *a}", "yaml")
@example("!!set {a, b}", "yaml")
@example("=: 5", "yaml")
@example("model: =", "yaml")
@example("12:30:45: 1_0", "yaml")
@example('{"model": NaN}', "json")
@example("\ud800", "yaml")
@example("[a.b]\nc = 1979-05-27T07:32:00Z", "toml")
def test_any_text_reads_or_is_refused(text: str, form: str) -> None:
    read_text(text, form)


@given(st.integers(0, 2000), st.integers(0, 40), st.text(max_size=12))
@settings(max_examples=150, deadline=None)
def test_a_job_with_a_piece_torn_out_reads_or_is_refused(at: int, length: int, text: str) -> None:
    written = FULL.read_text()
    read_text(written[:at] + text + written[at + length :], "yaml")


@given(st.dictionaries(st.sampled_from(WRITTEN), VALUES, max_size=6))
@settings(max_examples=300, deadline=None)
def test_any_value_at_any_key_reads_or_is_refused(overrides: dict[str, object]) -> None:
    with contextlib.suppress(InvalidRequest, UnreadableFile):
        load_job({"model": "7B"}, overrides=overrides)


@given(VALUES.filter(lambda value: isinstance(value, dict)))
@settings(max_examples=200, deadline=None)
def test_any_mapping_reads_or_is_refused(source: dict[str, object]) -> None:
    with contextlib.suppress(InvalidRequest, UnreadableFile):
        load_job(source)


@given(st.text(max_size=60))
@settings(max_examples=200, deadline=None)
def test_any_setting_reads_or_is_refused(text: str) -> None:
    with contextlib.suppress(InvalidRequest, UnreadableFile):
        load_job({"model": "7B"}, set_=[text])


@given(st.sampled_from([k for k in keys() if "." in k]), st.sampled_from([-1, 0, 10**18, math.inf]))
def test_no_number_is_taken_that_no_run_can_have(key: str, value: float) -> None:
    allowed = {
        *("adapter.lora_dropout", "limits.headroom", "data.eval_fraction"),
        "training.max_grad_norm",
        *("parallelism.max_live_parameters", "parallelism.persistence_threshold"),
        *("project.num_experiments", "project.num_sweep_runs"),
        *("project.failure_fraction", "project.idle_fraction"),
    }
    if value == 0 and key in allowed:
        load_job({"model": "7B"}, overrides={key: value})
    else:
        with pytest.raises(InvalidRequest):
            load_job({"model": "7B"}, overrides={key: value})
