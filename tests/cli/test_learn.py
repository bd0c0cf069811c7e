"""``tuneplan learn`` and ``tuneplan store``: the real commands."""

import json
from pathlib import Path

import pytest

from tuneplan.cli.main import run as command_line

LINE = (
    '{{"current_steps": {step}, "total_steps": 100, "loss": 1.5, "lr": 1e-4, "epoch": 0.1, '
    '"elapsed_time": "0:{minutes:02}:{seconds:02}", "total_tokens": {tokens}, '
    '"vram_allocated": 20.5, "vram_reserved": 22.0}}\n'
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Ten entries, 5 steps of 4 s apart, 8,192 tokens a step."""
    where = tmp_path / "run"
    where.mkdir()
    lines = [
        LINE.format(step=step, minutes=4 * step // 60, seconds=4 * step % 60, tokens=8192 * step)
        for step in range(5, 55, 5)
    ]
    (where / "trainer_log.jsonl").write_text("".join(lines))
    return where


def run(*arguments: object) -> int:
    return command_line([str(one) for one in arguments])


def answer(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict:
    assert run(*arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


def test_a_log_is_measured_kept_and_listed(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store.sqlite3"
    learned = answer(capsys, "learn", folder, "--store", store)
    (found,) = learned["runs"]
    figures = {figure["quantity"]: figure["measured"] for figure in found["figures"]}
    assert figures == {
        "step_s": 4.0,
        "peak_bytes": round(20.5 * 2**30),
        "peak_reserved_bytes": 22 * 2**30,
    }
    assert found["logs"][0]["format"] == "llamafactory"
    again = answer(capsys, "learn", folder, "--store", store)
    assert again["runs"][0]["measurement_id"] == found["measurement_id"]
    (kept,) = answer(capsys, "store", "list", "--store", store)["measurements"]
    assert kept["measurement_id"] == found["measurement_id"]


def test_with_the_job_the_prediction_stands_beside(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learned = answer(
        capsys,
        "learn",
        folder,
        "--no-store",
        "--job",
        "examples/support_chat.yaml",
        "--gpu",
        "RTX 4090:1",
    )
    (found,) = learned["runs"]
    figures = {figure["quantity"]: figure for figure in found["figures"]}
    # 8,192 tokens in 4 s on one card.
    assert figures["tokens_per_s_per_accelerator"]["measured"] == 2048
    step = figures["step_s"]
    assert step["error_fraction"] == pytest.approx(step["predicted"]["likely"] / 4 - 1)
    assert found["measurement_id"] is None
    assert learned["job"]["model"] == "Qwen/Qwen2.5-7B-Instruct"


def test_a_store_moves_as_a_file(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, file = (tmp_path / name for name in ("a.db", "b.db", "runs.jsonl"))
    answer(capsys, "learn", folder, "--store", first)
    assert answer(capsys, "store", "export", file, "--store", first) == {"count": 1}
    assert answer(capsys, "store", "import", file, "--store", second) == {"count": 1}
    assert run("store", "list", "--store", second) == 0
    assert "log" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ("learn", "absent"),
        ("learn",),
        ("learn", "README.md", "--no-store"),
        ("store", "import", "README.md"),
        ("store", "import", "absent.jsonl"),
        ("store", "list", "--store", "/proc/none/store"),
    ],
)
def test_what_the_user_can_mend_is_told_with_status_2(
    arguments: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TUNEPLAN_STORE", str(tmp_path / "store.sqlite3"))
    assert run(*arguments) == 2
    assert capsys.readouterr().err


def test_a_folder_of_broken_logs_is_told_log_by_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "trainer_state.json").write_text("{")
    (tmp_path / "a.log").write_text("{'loss': 1.0, 'epoch': 0.5}\n")
    learned = answer(capsys, "learn", tmp_path, "--no-store")
    codes = [warning["code"] for warning in learned["runs"][0]["warnings"]]
    assert codes == ["log_skipped", "log_measures_nothing"]
