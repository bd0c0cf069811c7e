"""``tuneplan watch``: the real command on a log that is written while it looks."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tuneplan.cli.main import run as command_line

WRITER = """
import sys, time
with open(sys.argv[1], "a") as log:
    for step in range(1, int(sys.argv[2]) + 1):
        log.write("Step %d | loss:1.5 lr:0.1 peak_memory_alloc:2.0\\n" % step)
        log.flush()
        time.sleep(0.05)
"""


def run(*arguments: object) -> int:
    return command_line([str(one) for one in arguments])


def lines(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def test_one_look_tells_where_a_run_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log_1.txt"
    log.write_text("Step 3 | loss:1.5 lr:0.1 peak_memory_alloc:2.0\n")
    assert run("watch", tmp_path, "--once", "--json") == 0
    (look,) = lines(capsys.readouterr().out)
    assert (look["step"], look["loss"], look["memory_bytes"]) == (3, 1.5, 2 * 2**30)
    assert look["eta_s"] is None
    assert look["alerts"] == []


def test_with_a_job_the_plan_gives_steps_arrival_and_cost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log_1.txt").write_text("Step 3 | loss:1.5 lr:0.1\n")
    job = "examples/support_chat.yaml"
    assert run("watch", tmp_path, "--once", "--json", "--job", job, "--gpu", "RTX 4090:1") == 0
    (look,) = lines(capsys.readouterr().out)
    assert look["total_steps"] > 3
    assert look["eta_s"]["low"] < look["eta_s"]["likely"] < look["eta_s"]["high"]
    assert look["cost"]["likely"]["currency"] == "USD"


def test_a_killed_run_is_told_once_and_the_alert_command_runs(tmp_path: Path) -> None:
    log, told = tmp_path / "log_1.txt", tmp_path / "told"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(log), "100000"])
    program = (
        "import os, sys;"
        "file = open(sys.argv[1], 'a');"
        "file.write(os.environ['TUNEPLAN_ALERT_CODE'] + ';');"
        "file.close()"
    )
    command = f'{sys.executable} -c "{program}" {told}'
    watch = subprocess.Popen(
        [
            *(sys.executable, "-m", "tuneplan", "watch", str(tmp_path), "--json"),
            *("--interval", "0.1", "--pid", str(writer.pid), "--alert-command", command),
        ],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert watch.stdout is not None
    seen: list[dict] = []
    after = 0
    for line in watch.stdout:
        seen.append(json.loads(line))
        if writer.poll() is None and (seen[-1]["step"] or 0) >= 10:
            writer.kill()
            writer.wait()
        if seen[-1]["alerts"]:
            after += 1
        if after >= 10 and told.exists() and told.stat().st_size:
            break
    watch.send_signal(signal.SIGINT)
    watch.communicate()
    assert watch.returncode == 130
    new = [alert["code"] for look in seen for alert in look["alerts"] if alert["new"]]
    assert new == ["stopped"]
    assert told.read_text() == "stopped;"


@pytest.mark.parametrize(
    "arguments",
    [
        ("watch", "absent", "--once"),
        ("watch", ".", "--once", "--alert-command", "'"),
        ("watch", ".", "--once", "--alert-command", " "),
        ("watch", ".", "--once", "--job", "absent.yaml"),
        ("watch", ".", "--interval", "0"),
    ],
)
def test_what_the_user_can_mend_is_told_with_status_2(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*arguments) == 2
