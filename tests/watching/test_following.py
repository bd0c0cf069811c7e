"""Growing logs: every line once, whatever happens to the file."""

import json
from pathlib import Path

from tuneplan.spec.run_log import Metric
from tuneplan.watching.following import Following


def line(step: int) -> str:
    return f"Step {step} | loss:{step}.5 lr:0.1\n"


def steps(following: Following) -> list[int | None]:
    return [one.point.step for one in following.news()]


def test_lines_are_read_once_and_half_lines_later(tmp_path: Path) -> None:
    path = tmp_path / "log_1.txt"
    path.write_text(line(1) + line(2))
    following = Following(tmp_path)
    assert steps(following) == [1, 2]
    assert steps(following) == []
    with path.open("a") as file:
        file.write(line(3) + "Step 4 | lo")
    assert steps(following) == [3]
    with path.open("a") as file:
        file.write("ss:4.5\n")
    assert steps(following) == [4]


def test_a_file_that_is_cut_or_replaced_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "log_1.txt"
    path.write_text("".join(map(line, range(1, 6))))
    following = Following(path)
    assert steps(following) == [1, 2, 3, 4, 5]
    path.write_text(line(1))
    assert steps(following) == [1]
    path.rename(tmp_path / "log_1.txt.1")
    assert steps(following) == []
    path.write_text("".join(map(line, range(2, 9))))
    assert steps(following) == list(range(2, 9))


def test_a_folder_that_vanishes_and_comes_back_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "log_1.txt").write_text(line(1))
    following = Following(folder)
    assert steps(following) == [1]
    folder.rename(tmp_path / "away")
    assert not following.exists
    assert steps(following) == []
    (tmp_path / "away").rename(folder)
    with (folder / "log_1.txt").open("a") as file:
        file.write(line(2))
    assert steps(following) == [2]


def test_a_state_that_is_written_anew_tells_only_what_is_new(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    history = [{"step": step, "loss": 1.0} for step in (1, 2)]
    path.write_text(json.dumps({"log_history": history}))
    following = Following(tmp_path)
    assert steps(following) == [1, 2]
    path.write_text('{"log_history": [')  # half written
    assert steps(following) == []
    history.append({"step": 3, "loss": 0.5})
    path.write_text(json.dumps({"log_history": history}))
    assert steps(following) == [3]


def test_of_two_logs_that_tell_the_same_the_better_one_counts(tmp_path: Path) -> None:
    (tmp_path / "console.log").write_text("{'loss': 1.0, 'epoch': 0.1}\n")
    record = {"current_steps": 5, "total_steps": 10, "loss": 1.0, "elapsed_time": "0:00:05"}
    (tmp_path / "trainer_log.jsonl").write_text(json.dumps(record) + "\n")
    news = Following(tmp_path).news()
    assert [one.format for one in news] == ["llamafactory"]
    assert news[0].point.values[Metric.TOTAL_STEPS] == 10


def test_the_trainers_console_gets_its_steps_from_the_progress_bar(tmp_path: Path) -> None:
    text = (
        "\r  3%|3         | 3/90 [00:06<02:54,  2.00s/it]\r   \r"
        "{'loss': 1.5, 'epoch': 0.1}\n"
        "\r  7%|7         | 6/90 [00:12<02:48,  2.00s/it]\r   \r"
        "{'loss': 1.4, 'epoch': 0.2}\n"
    )
    (tmp_path / "train.log").write_text(text)
    news = Following(tmp_path).news()
    assert [one.point.step for one in news] == [3, 6]
    assert news[0].point.values[Metric.TOTAL_STEPS] == 90


def test_what_comes_to_the_last_step_later_is_told_by_itself(tmp_path: Path) -> None:
    """An evaluation and the end of training have the step of the loss before them."""
    path = tmp_path / "trainer_state.json"

    def write(*entries: dict[str, float]) -> None:
        path.write_text(json.dumps({"log_history": list(entries), "max_steps": 2}))

    loss, evaluation = {"step": 1, "loss": 2.0}, {"step": 1, "eval_loss": 2.5}
    write(loss)
    following = Following(tmp_path)
    assert [dict(one.point.values)[Metric.LOSS] for one in following.news()] == [2.0]
    write(loss, evaluation, {"step": 2, "loss": 1.5})
    told = [(one.point.step, Metric.EVAL_LOSS in one.point.values) for one in following.news()]
    assert told == [(1, True), (2, False)]
