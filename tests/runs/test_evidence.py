"""A folder of evidence: one TOML file a source."""

from pathlib import Path

import pytest

from tuneplan.errors import InvalidRequest, UnreadableFile
from tuneplan.runs.evidence import read_evidence
from tuneplan.runs.rows import measured_run

BUNDLED = Path(__file__).parents[2] / "evidence"
GOOD = """
[source]
name = "some-lab"
repository = "some-lab/benchmarks"
commit = "0123abcd"
files = ["a.md"]

[shared]
framework = "trl"
num_gpus = 1

[measured]
runs = [
  { id = "some-lab-001", model = "m", method = "lora", compile = false, counts = ["memory"] },
  { id = "some-lab-002", model = "m", method = "full", framework = "axolotl" },
]
"""


def folder(tmp_path: Path, **files: str) -> Path:
    for name, text in files.items():
        (tmp_path / f"{name}.toml").write_text(text, encoding="utf-8")
    return tmp_path


def test_shared_cells_are_of_every_run_and_its_own_go_before(tmp_path):
    found = read_evidence(folder(tmp_path, lab=GOOD))
    first, second = (measured_run(record) for record in found.records)
    assert (first.framework, second.framework) == ("trl", "axolotl")
    assert first.words["compile"] == "no"
    assert (first.repository, first.commit) == ("some-lab/benchmarks", "0123abcd")
    assert [record.line for record in found.records] == [14, 15]


def test_a_run_counts_for_what_it_says(tmp_path):
    complete = read_evidence(folder(tmp_path, lab=GOOD)).complete
    assert (complete["some-lab-001"].memory, complete["some-lab-001"].throughput) == (True, False)
    assert not complete["some-lab-002"].memory
    assert complete["some-lab-002"].source == "some-lab"


def test_every_mistake_of_every_file_is_told_at_once(tmp_path):
    bad = GOOD.replace('commit = "0123abcd"\n', "").replace("lora", 'lora", lora_rnk = "8', 1)
    with pytest.raises(InvalidRequest) as told:
        read_evidence(folder(tmp_path, a=bad, b="[source", c='[source]\nname = "x"\n'))
    codes = {one.message.code for one in told.value.mistakes}
    assert codes == {
        "evidence_key_missing", "evidence_key_unknown", "toml_broken", "evidence_without_runs"
    }  # fmt: skip
    (unknown,) = (one for one in told.value.mistakes if one.message.code == "evidence_key_unknown")
    assert (unknown.line, unknown.near[0]) == (13, "lora_rank")


def test_an_id_names_one_run_in_all_files(tmp_path):
    with pytest.raises(InvalidRequest, match="stands twice"):
        read_evidence(folder(tmp_path, a=GOOD, b=GOOD))


def test_a_folder_without_files_is_said_to_have_none(tmp_path):
    with pytest.raises(UnreadableFile):
        read_evidence(tmp_path)


def test_the_bundled_evidence_reads_and_says_where_it_is_from():
    found = read_evidence(BUNDLED)
    assert len(found.records) > 1000
    assert sum(one.memory for one in found.complete.values()) > 400
    assert all("/" in where or "PyPI" in where for where in found.published.values())
    assert all(len(record.cells.get("notes", "")) < 80 for record in found.records)  # no prose
