"""Log files: which format each is of, what it says, and how a broken one is refused."""

import json
import os
import pickle
from pathlib import Path

import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from tuneplan.errors import InvalidRequest, UnreadableFile
from tuneplan.logs.registry import find_logs, read_log
from tuneplan.spec.run_log import Metric, RunLog
from tuneplan.units import GIB, MIB


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def values(log: RunLog, metric: Metric) -> list[float]:
    return [value for _, value in log.series(metric)]


def test_a_trainer_state_tells_steps_losses_totals_and_settings(tmp_path: Path) -> None:
    state = {
        "max_steps": 40,
        "train_batch_size": 4,
        "save_steps": 20,
        "eval_steps": 500,
        "num_train_epochs": 2,
        "num_input_tokens_seen": 81_920,
        "log_history": [
            {"epoch": 0.5, "loss": 2.0, "learning_rate": 1e-4, "step": 10},
            {"epoch": 1.0, "eval_loss": 1.9, "eval_runtime": 3.5, "step": 20},
            "no entry",
            {"epoch": 2.0, "train_runtime": 120.0, "train_steps_per_second": 0.333, "step": 40},
        ],
    }
    log = read_log(written(tmp_path / "trainer_state.json", json.dumps(state)))
    assert log.format == "trainer_state"
    assert [point.step for point in log.points] == [10, 20]
    assert values(log, Metric.EVAL_LOSS) == [1.9]
    assert log.totals[Metric.TRAIN_S] == 120.0
    assert log.totals[Metric.TOTAL_STEPS] == 40
    assert log.totals[Metric.TOKENS_SEEN] == 81_920
    assert log.job["training.per_device_train_batch_size"] == 4
    assert [str(notice.message) for notice in log.notices] == [
        "1 entries of log_history tell nothing"
    ]


def test_tensorboard_events_tell_the_time_of_each_step(tmp_path: Path) -> None:
    writer = EventFileWriter(str(tmp_path))
    for step in (10, 20, 30):
        for tag, value in (("train/loss", 3.0 - step / 100), ("train/grad_norm", 1.0)):
            summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
            writer.add_event(Event(wall_time=1000.0 + step * 2, step=step, summary=summary))
    writer.close()
    (path,) = find_logs([tmp_path])
    log = read_log(path)
    assert log.format == "tensorboard"
    assert log.absolute_time
    assert [(point.step, point.at_s) for point in log.points] == [
        (10, 1020.0),
        (20, 1040.0),
        (30, 1060.0),
    ]
    assert values(log, Metric.LOSS) == pytest.approx([2.9, 2.8, 2.7])


def test_an_event_file_cut_in_half_a_record_tells_what_came_before(tmp_path: Path) -> None:
    writer = EventFileWriter(str(tmp_path))
    for step in range(1, 6):
        summary = Summary(value=[Summary.Value(tag="train/loss", simple_value=step)])
        writer.add_event(Event(wall_time=float(step), step=step, summary=summary))
    writer.close()
    (path,) = find_logs([tmp_path])
    path.write_bytes(path.read_bytes()[:-7])
    assert [point.step for point in read_log(path).points] == [1, 2, 3, 4]


def test_exports_of_weights_and_biases_in_both_forms(tmp_path: Path) -> None:
    chart = written(
        tmp_path / "chart.csv",
        '"Step","run-1 - train/loss","run-1 - train/loss__MIN","run-1 - train/loss__MAX"\n'
        '"1","2.5","2.5","2.5"\n"2","2.25","2.25","2.25"\n',
    )
    assert values(read_log(chart), Metric.LOSS) == [2.5, 2.25]
    history = written(
        tmp_path / "history.csv",
        "_step,_runtime,_timestamp,train/loss,train/epoch\n"
        "0,12.5,1700000012.5,2.5,0.1\n1,14.5,1700000014.5,,0.2\nx,1,1,1,1\n",
    )
    log = read_log(history)
    assert [(point.step, point.at_s) for point in log.points] == [
        (0, 1700000012.5),
        (1, 1700000014.5),
    ]
    assert values(log, Metric.EPOCH) == [0.1, 0.2]
    assert len(log.notices) == 1


@pytest.mark.parametrize("units", [True, False])
def test_nvidia_smi_tells_memory_power_and_use_of_each_card(tmp_path: Path, units: bool) -> None:
    mib, percent, watt = (" MiB", " %", " W") if units else ("", "", "")
    rows = [
        f"2026/03/04 05:06:0{second}.000, {card}, NVIDIA L4, {20_000 + second}{mib}, "
        f"{90 + second}{percent}, 70.5{watt}, 61\n"
        for second in range(3)
        for card in range(2)
    ]
    path = written(
        tmp_path / "smi.csv",
        "timestamp, index, name, memory.used [MiB], utilization.gpu [%], power.draw [W], "
        "temperature.gpu\n" + "".join(rows) + "2026/03/04 05:06:09.000, 0, NVIDIA L4, [N/A]\n",
    )
    log = read_log(path)
    assert log.format == "nvidia_smi"
    assert log.accelerator == "NVIDIA L4"
    assert max(values(log, Metric.DEVICE_BYTES)) == 20_002 * MIB
    assert values(log, Metric.UTILIZATION_FRACTION)[0] == pytest.approx(0.90)
    assert {point.device for point in log.points} == {0, 1}
    assert values(log, Metric.POWER_W) == [70.5] * 6


def snapshot(device: int = 0) -> dict[str, object]:
    """2 GiB are alive at the end; 3 GiB more were, and were given back."""

    def entry(action: str, size: int) -> dict[str, object]:
        return {"action": action, "size": size, "addr": 1, "stream": 0, "frames": []}

    trace = [
        entry("segment_alloc", 6 * GIB),
        entry("alloc", 2 * GIB),
        entry("alloc", 3 * GIB),
        entry("free_requested", 3 * GIB),
        entry("free_completed", 3 * GIB),
    ]
    segment = {"device": device, "allocated_size": 2 * GIB, "total_size": 6 * GIB, "blocks": []}
    return {"segments": [segment], "device_traces": [[]] * device + [trace]}


def test_a_memory_snapshot_tells_the_peak_of_its_history(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(snapshot()))
    log = read_log(path)
    (point,) = log.points
    assert point.values[Metric.PEAK_ALLOCATED_BYTES] == 5 * GIB
    assert point.values[Metric.PEAK_RESERVED_BYTES] == 6 * GIB


class Malicious:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("nested", [False, True])
def test_a_pickle_that_would_run_code_is_refused_and_runs_nothing(
    tmp_path: Path, nested: bool
) -> None:
    mark = tmp_path / "was_here"
    held: object = Malicious(mark)
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps({"segments": [held]} if nested else held))
    with pytest.raises(UnreadableFile, match=r"asks for posix\.mkdir.*nothing of it was run"):
        read_log(path)
    assert not mark.exists()
    pickle.loads(path.read_bytes())  # noqa: S301 - the same file does its work where everything is allowed
    assert mark.exists()


def test_a_run_that_began_again_counts_once(tmp_path: Path) -> None:
    lines = [f"Step {step} | loss:{step}.0\n" for step in (1, 2, 3, 2, 3, 4)]
    log = read_log(written(tmp_path / "log_1.txt", "".join(lines)))
    assert [point.step for point in log.points] == [1, 2, 3, 4]


def test_console_lines_of_another_format_are_counted(tmp_path: Path) -> None:
    text = (
        "".join(f"{{'loss': {step}.0, 'epoch': 0.{step}}}\n" for step in range(1, 5))
        + "Step 3 | loss:1.0\n"
    )
    log = read_log(written(tmp_path / "console.log", text))
    assert log.format == "trainer"
    assert "1 lines look like those of torchtune" in str(log.notices[0].message)


def test_a_folder_is_searched_and_the_newest_state_taken(tmp_path: Path) -> None:
    for step in (10, 20):
        history = [{"step": one, "loss": 1.0} for one in range(1, step)]
        text = json.dumps({"log_history": history})
        written(tmp_path / f"checkpoint-{step}" / "trainer_state.json", text)
    written(tmp_path / "notes.md", "nothing")
    written(tmp_path / "train.log", "{'loss': 1.0, 'epoch': 0.5}\n")
    found = find_logs([tmp_path])
    assert [path.relative_to(tmp_path).as_posix() for path in found] == [
        "checkpoint-20/trainer_state.json",
        "train.log",
    ]


def test_absent_and_empty_sources_are_named_all_at_once(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InvalidRequest) as caught:
        find_logs([tmp_path / "absent", empty])
    assert [one.message.code for one in caught.value.mistakes] == [
        "no_such_log",
        "no_log_in_folder",
    ]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("trainer_state.json", b"{"),
        ("trainer_state.json", b"[]"),
        ("trainer_state.json", b'{"log_history": 3}'),
        ("trainer_state.json", b"\xff\xfe\x00"),
        ("a.csv", b"\x00\x01\x02"),
        ("a.csv", b"name,colour\n1,2\n"),
        ("a.log", b""),
        ("a.log", b"hello\n" * 10),
        ("snapshot.pickle", b"\x80\x04cut"),
        ("snapshot.pickle", pickle.dumps([1, 2])),
        ("snapshot.pickle", pickle.dumps({"segments": [{"device": 0}]})),
        ("events.out.tfevents.1", b"no events"),
    ],
)
def test_a_file_that_is_no_log_is_refused_with_its_name(
    tmp_path: Path, name: str, content: bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UnreadableFile) as caught:
        read_log(path)
    assert str(path) in str(caught.value)
