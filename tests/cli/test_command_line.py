import io
import json
import os
import subprocess
import sys
from pathlib import Path

import click
import jsonschema
import pytest

from tuneplan import __version__
from tuneplan.cli.commands import COMMANDS, Entry, LateGroup
from tuneplan.cli.main import cli, run
from tuneplan.cli.options import JobRequest, answer_options, job_options, language_of
from tuneplan.cli.output import page
from tuneplan.contract.schema import NAMES, json_schema
from tuneplan.errors import CatalogError
from tuneplan.language import message

SOURCE = Path(__file__).parents[2] / "src"


def command_line(*arguments: str, **settings: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    return subprocess.run(
        [sys.executable, "-m", "tuneplan", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        **settings,  # type: ignore[call-overload]
    )


@click.command("read-job")
@job_options
@answer_options
def read_job(job: JobRequest, *, as_json: bool) -> None:
    stated = job.read()
    click.echo(json.dumps({"model": stated.model, "json": as_json, "stated": stated.stated}))


@click.command("break")
def break_down() -> None:
    msg = "the cat stepped on a wire"
    raise RuntimeError(msg)


@click.command("interrupt")
def interrupt() -> None:
    raise KeyboardInterrupt


@click.command("wrong-facts")
def wrong_facts() -> None:
    raise CatalogError(message("bad_fact", "a bundled fact is wrong"))


EXTRA = {command.name or "": command for command in (read_job, break_down, interrupt, wrong_facts)}


@pytest.fixture
def extra_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands of this file beside the real ones, in the real group."""
    module = sys.modules[__name__]
    for name, command in EXTRA.items():
        holder = type(module)(f"extra_{name}")
        holder.command = command  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, holder.__name__, holder)
        assert isinstance(cli, LateGroup)
        monkeypatch.setitem(cli.entries, name, Entry(holder.__name__, "only here"))


def test_help_lists_every_command_with_a_line() -> None:
    text = command_line("--help").stdout
    for name, entry in COMMANDS.items():
        assert f"  {name}" in text
        assert entry.summary.split(maxsplit=1)[0] in text


def test_without_a_command_the_help_is_shown() -> None:
    result = command_line()
    assert result.returncode == 0
    assert result.stdout == command_line("--help").stdout


def test_the_version_is_the_package_s() -> None:
    assert command_line("--version").stdout == f"tuneplan {__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_help_text(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"Usage: tuneplan {name}")


@pytest.mark.parametrize("name", NAMES)
def test_schema_prints_a_schema(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", name]) == 0
    assert json.loads(capsys.readouterr().out) == json_schema(name)


def test_schema_without_a_name_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema"]) == 0
    assert capsys.readouterr().out.split() == list(NAMES)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    assert "_TUNEPLAN_COMPLETE" in capsys.readouterr().out


def test_completion_without_a_shell_names_the_shells(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion"]) == 2
    first = capsys.readouterr().err.splitlines()[0]
    assert all(shell in first for shell in ("bash", "zsh", "fish"))


@pytest.mark.parametrize(
    ("columns", "width"),
    [("100", 100), ("60", 60), ("160", 160), ("59", 80), ("161", 80), ("wide", 80), ("", 80)],
)
def test_a_pipe_is_as_wide_as_columns_says_where_that_is_sane(
    columns: str, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert page().width == width
    capsys.readouterr()


def test_a_shell_completes_commands() -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "_TUNEPLAN_COMPLETE": "bash_complete"}
    result = subprocess.run(
        [sys.executable, "-m", "tuneplan"],
        env={**environment, "COMP_WORDS": "tuneplan sch", "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "plain,schema" in result.stdout


def test_an_unknown_command_has_near_matches_and_status_2() -> None:
    result = command_line("shema")
    assert result.returncode == 2
    assert result.stdout == ""
    assert "nearest: schema" in result.stderr


def test_an_unknown_option_has_near_matches_and_status_2() -> None:
    result = command_line("schema", "--lan", "en")
    assert result.returncode == 2
    assert "--lang" in result.stderr


def test_with_json_an_error_is_an_object_on_stdout_too() -> None:
    result = command_line("schema", "nothing", "--json")
    assert result.returncode == 2
    document = json.loads(result.stdout)
    jsonschema.validate(document, json_schema("errors"))
    assert document["errors"][0]["code"] == "unknown_schema"
    assert "there is no schema" in result.stderr


@pytest.mark.usefixtures("extra_commands")
class TestTheJob:
    def read(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
        assert run(["read-job", *arguments]) == 0
        return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]

    def test_flags_alone_make_a_job(self, capsys: pytest.CaptureFixture[str]) -> None:
        job = self.read(
            capsys,
            *("--model", "7B", "--method", "lora", "--accelerator", "H100", "--count", "8"),
            *("--max-length", "2048", "--framework", "trl", "--data", "x.jsonl"),
            *("--set", "training.packing=true"),
        )
        assert job["stated"] == [
            *("model", "framework", "method", "data.path"),
            *("training.max_length", "training.packing"),
            *("hardware.accelerator", "hardware.accelerators_per_node"),
        ]

    def test_a_file_and_flags_go_together(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "job.yaml").write_text("model: 7B\n")
        job = self.read(
            capsys, str(tmp_path / "job.yaml"), "--model", "13B", "--method", "lora,full"
        )
        assert job["model"] == "13B"

    def test_standard_input_is_a_file(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"model: 7B\n")))
        assert self.read(capsys, "-")["model"] == "7B"

    def test_json_may_stand_before_the_command(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["--json", "read-job", "--model", "7B"]) == 0
        assert json.loads(capsys.readouterr().out)["json"]

    def test_mistakes_go_to_stderr_with_file_and_line(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "job.yaml"
        path.write_text("model: 7B\ntraining:\n  max_lenght: 5\n  max_length: -5\n")
        assert run(["read-job", str(path), "--json"]) == 2
        printed = capsys.readouterr()
        assert f"{path}:3: training.max_lenght: there is no key" in printed.err
        assert "nearest: training.max_length" in printed.err
        assert "2 mistakes in all." in printed.err
        assert [error["line"] for error in json.loads(printed.out)["errors"]] == [3, 4]

    def test_no_job_at_all_says_how_to_give_one(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["read-job"]) == 2
        assert "--model" in capsys.readouterr().err

    def test_a_broken_file_is_told_with_its_line(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "job.yaml"
        path.write_text("model: 7B\ntraining: [\n")
        assert run(["read-job", str(path)]) == 2
        assert f"{path}:3: broken YAML" in capsys.readouterr().err


@pytest.mark.usefixtures("extra_commands")
class TestStatus:
    def test_a_defect_of_ours_is_status_1_without_a_traceback(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(["break"]) == 1
        text = capsys.readouterr().err
        assert "a defect of tuneplan" in text
        assert "TUNEPLAN_TRACEBACK=1" in text
        assert "Traceback" not in text

    def test_the_traceback_is_there_when_asked_for(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TUNEPLAN_TRACEBACK", "1")
        assert run(["break"]) == 1
        assert "Traceback" in capsys.readouterr().err

    def test_wrong_bundled_facts_are_our_defect(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["wrong-facts"]) == 1
        assert "a bundled fact is wrong" in capsys.readouterr().err

    def test_an_interruption_is_status_130(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["interrupt"]) == 130
        assert "Traceback" not in capsys.readouterr().err

    def test_a_reader_that_leaves_early_hears_nothing(self) -> None:
        result = subprocess.run(
            ["bash", "-o", "pipefail", "-c", f"{sys.executable} -m tuneplan schema plan | head -1"],
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (result.returncode, result.stdout, result.stderr) == (0, "{\n", "")

    def test_an_ascii_terminal_gets_an_answer_too(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONIOENCODING": "ascii"}
        result = subprocess.run(
            [sys.executable, "-m", "tuneplan", "schema", "模型"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 2
        assert "there is no schema" in result.stderr


def test_the_language_comes_from_the_flag_then_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert language_of(["plan"]) == "en"
    monkeypatch.setenv("TUNEPLAN_LANG", "zh-CN")
    assert language_of(["plan"]) == "zh-CN"
    assert language_of(["plan", "--lang", "zh-TW"]) == "zh-TW"
    assert language_of(["plan", "--lang=zh-TW"]) == "zh-TW"
    assert language_of(["plan", "--lang", "klingon"]) == "en"


def test_help_imports_neither_the_contract_nor_rich() -> None:
    code = (
        "import sys\nfrom tuneplan.cli.main import run\nrun(['--help'])\n"
        "heavy = {'pydantic', 'yaml', 'rich', 'numpy', 'torch'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        check=True,
        capture_output=True,
    )


@pytest.mark.parametrize("redirect", [">&-", ">/dev/full", ">&- 2>&-", ">/dev/full 2>/dev/full"])
@pytest.mark.parametrize("flags", ["", "--json"])
def test_an_answer_that_cannot_be_written_is_no_defect_of_ours(redirect: str, flags: str) -> None:
    command = f"{sys.executable} -m tuneplan estimate --model gpt2 {flags} {redirect}"
    ended = in_a_shell(command)
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    assert ("standard output cannot be written" in ended.stderr) == ("2>" not in redirect)


def test_a_closed_standard_input_is_told() -> None:
    ended = in_a_shell(f"{sys.executable} -m tuneplan estimate - <&-")
    assert (ended.returncode, ended.stderr) == (2, "-: standard input is closed\n")


def in_a_shell(command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    return subprocess.run(
        ["/bin/sh", "-c", command], capture_output=True, text=True, check=False, env=environment
    )


@pytest.mark.parametrize("flag", ["--accelerator", "--gpu"])
def test_an_accelerator_may_be_named_with_its_count(flag: str) -> None:
    words = ("--model", "7B", "--method", "qlora", "--json")
    answer = json.loads(command_line("estimate", *words, flag, "RTX 4090:2").stdout)
    assert answer["hardware"]["count"] == 2
    answer = json.loads(command_line("estimate", *words, flag, "L4:4x2").stdout)
    assert answer["hardware"]["count"] == 8


@pytest.mark.parametrize("more", [("--gpu", "L40S:4"), ("--gpu", "L40S"), ("--count", "4")])
def test_several_counts_behind_names_of_accelerators_are_refused(more: tuple[str, str]) -> None:
    refused = command_line("plan", "--model", "7B", "--gpu", "RTX 4090:2", *more)
    assert refused.returncode == 2
    assert "--count" in refused.stderr
