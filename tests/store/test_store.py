"""The store keeps facts: once each, never changed, whole, with several processes at once."""

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneplan.contract.measurements import measurement_from, measurement_id, measurement_text
from tuneplan.errors import InvalidRequest, UnreadableFile
from tuneplan.spec.measurement import (
    Environment,
    MeasuredPeak,
    MeasuredStep,
    Measurement,
    Origin,
    Status,
)
from tuneplan.store.migrations import MIGRATIONS
from tuneplan.store.paths import store_path
from tuneplan.store.store import Store

WRITER = """
import sys
from tuneplan.spec.measurement import Measurement, Origin
from tuneplan.store.store import Store
path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with Store(path) as store:
    print("open", flush=True)
    for number in range(count):
        store.append(Measurement(origin=Origin.LOG, num_steps=number, source=(name,)))
        print(number, flush=True)
"""


def measured(**facts: object) -> Measurement:
    return Measurement(origin=Origin.PILOT, **facts)


def writer(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), name, str(count)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


positive = st.floats(1e-6, 1e9)
counts = st.integers(0, 2**40)
measurements = st.builds(
    Measurement,
    origin=st.sampled_from(Origin),
    status=st.sampled_from(Status),
    job=st.dictionaries(st.text(max_size=8), st.one_of(st.none(), counts, st.text(max_size=8))),
    environment=st.builds(
        Environment,
        accelerator=st.none() | st.text(max_size=8),
        num_accelerators=st.none() | st.integers(1, 4096),
        software=st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3),
    ),
    steps=st.lists(
        st.builds(MeasuredStep, step_s=positive, tokens=st.none() | counts), max_size=4
    ).map(tuple),
    step_s=st.none() | positive,
    peak=st.builds(MeasuredPeak, allocated_bytes=st.none() | counts),
    source=st.lists(st.text(max_size=8), max_size=2).map(tuple),
)


@given(measurements)
def test_a_measurement_comes_back_from_its_line_as_it_was(one: Measurement) -> None:
    text = measurement_text(one)
    assert "\n" not in text
    assert measurement_from(text) == one
    assert measurement_id(measurement_text(measurement_from(text))) == measurement_id(text)


def test_the_same_fact_is_kept_once(tmp_path: Path) -> None:
    with Store(tmp_path / "store.sqlite3") as store:
        first = store.append(measured(step_s=1.5))
        assert store.append(measured(step_s=1.5)) == first
        assert store.append(measured(step_s=1.6)) != first
        assert [kept.measurement.step_s for kept in store.find()] == [1.5, 1.6]


def test_a_measurement_is_found_by_model_chip_and_the_beginning_of_its_id(tmp_path: Path) -> None:
    a = measured(job={"model": "a"}, environment=Environment(accelerator="X"))
    b = measured(job={"model": "b"}, environment=Environment(accelerator="X"))
    with Store(tmp_path / "store.sqlite3") as store:
        name, _ = store.append_all([a, b])
        assert [kept.measurement for kept in store.find(model="a")] == [a]
        assert [kept.measurement for kept in store.find(accelerator="X")] == [a, b]
        found = store.get(name[:12])
        assert found is not None
        assert found.measurement == a
        assert store.get("") is None


def test_rows_can_neither_be_changed_nor_deleted(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    with Store(path) as store:
        store.append(measured(step_s=1.0))
    with sqlite3.connect(path) as connection:
        for sentence in ("UPDATE measurements SET document = ''", "DELETE FROM measurements"):
            with pytest.raises(sqlite3.IntegrityError, match="kept as they are"):
                connection.execute(sentence)
    connection.close()


def test_an_exported_file_imports_into_the_same_store(tmp_path: Path) -> None:
    with Store(tmp_path / "a.sqlite3") as a, Store(tmp_path / "b.sqlite3") as b:
        names = a.append_all(measured(step_s=number + 0.5) for number in range(20))
        file = StringIO()
        assert a.export_to(file) == 20
        file.seek(0)
        assert b.import_from(file, name="runs.jsonl") == names
        assert [kept.id for kept in b.find()] == list(names)


def test_a_broken_import_keeps_nothing_and_names_every_line(tmp_path: Path) -> None:
    good = measurement_text(measured(step_s=1.0))
    lines = [good, '{"measurement":1,"origin":"guess"}', "", "no json", good]
    with Store(tmp_path / "store.sqlite3") as store:
        with pytest.raises(InvalidRequest) as caught:
            store.import_from(StringIO("\n".join(lines)), name="runs.jsonl")
        assert [(one.file, one.line) for one in caught.value.mistakes] == [
            ("runs.jsonl", 2),
            ("runs.jsonl", 4),
        ]
        assert store.count() == 0


def test_two_processes_append_at_once_and_one_is_killed(tmp_path: Path) -> None:
    """What a process was told is kept, is kept; the other loses nothing; every row is whole."""
    path = tmp_path / "store.sqlite3"
    steady, killed = writer(path, "steady", 150), writer(path, "killed", 100_000)
    assert killed.stdout is not None
    told = -1
    for line in killed.stdout:
        told = int(line) if line.strip().isdigit() else told
        if told >= 50:
            killed.send_signal(signal.SIGKILL)
            break
    rest = [int(line) for line in killed.stdout if line.strip().isdigit()]
    told = max([told, *rest])
    assert killed.wait() == -signal.SIGKILL
    killed.stdout.close()
    output, _ = steady.communicate()
    assert steady.returncode == 0, output
    with Store(path) as store:
        kept = [one.measurement for one in store.find()]
    numbers = {
        name: [one.num_steps for one in kept if one.source == (name,)]
        for name in ("steady", "killed")
    }
    assert numbers["steady"] == list(range(150))
    assert numbers["killed"] == list(range(len(numbers["killed"])))
    assert told < len(numbers["killed"]) <= told + 2


def test_a_newer_file_and_a_file_that_is_no_store_are_refused(tmp_path: Path) -> None:
    newer = tmp_path / "newer.sqlite3"
    Store(newer).close()
    with sqlite3.connect(newer) as connection:
        connection.execute("INSERT INTO migrations VALUES ('m999_from_the_future')")
    connection.close()
    with pytest.raises(UnreadableFile, match="m999_from_the_future"):
        Store(newer)
    other = tmp_path / "other.sqlite3"
    other.write_text("this is no database, and quite long enough to be looked at " * 20)
    with pytest.raises(UnreadableFile, match="cannot be used"):
        Store(other)
    with pytest.raises(UnreadableFile, match="cannot be used"):
        Store(other / "below" / "store.sqlite3")


def test_every_migration_is_named_in_order() -> None:
    assert [step.__name__[:4] for step in MIGRATIONS] == [
        f"m{number:03}" for number in range(1, len(MIGRATIONS) + 1)
    ]


def test_the_store_lies_where_the_variables_say() -> None:
    assert store_path({"TUNEPLAN_STORE": "/data/runs.db"}) == Path("/data/runs.db")
    assert store_path({"XDG_DATA_HOME": "/data"}) == Path("/data/tuneplan/measurements.sqlite3")
    assert store_path({"XDG_DATA_HOME": "relative"}).is_absolute()


def test_the_database_of_another_program_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite3"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE bookmarks (address TEXT)")
        other.commit()
    before = path.read_bytes()
    with pytest.raises(UnreadableFile, match="another program"):
        Store(path)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["other.sqlite3"]
