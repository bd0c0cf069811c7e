"""What a stranger gets: the wheel, the base install, the source archive."""

import json
import re
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import httpx
import pytest

from house.installing import (
    ROOT,
    base_distributions,
    build,
    install_without_extras,
    size_bytes,
)
from tuneplan.cli.commands import COMMANDS

PACKAGE = ROOT / "src" / "tuneplan"
NUMBERS = (
    *("--model", "7B", "--method", "lora", "--accelerator", "H100 SXM"),
    *("--set", "data.num_samples=1000", "--set", "data.mean_tokens=500"),
)
GPU = ("--gpu", "H100 SXM", "--set", "data.num_samples=1000", "--set", "data.mean_tokens=500")
# What the base install answers, among the examples of a clone.
ANSWERED = (
    ("plan", *NUMBERS),
    ("estimate", *NUMBERS, "--all"),
    ("check", "axolotl_chat.yml", *GPU),
    ("import", "axolotl_chat.yml"),
    ("oom", "out_of_memory.yaml", "--log", "out_of_memory.log"),
    ("export", *NUMBERS, "--model", "Qwen/Qwen2.5-7B", "--to", "trl", "--launch", "slurm"),
    ("report", *NUMBERS, "--to", "report.md", "--to", "report.json"),
    ("rules", *NUMBERS),
    ("explain", *NUMBERS, "time.step_s"),
    ("budget", "chat_project.yaml", "--draws", "1000"),
    ("data", "profile", "support_chat.jsonl", "--tokenizer", "approximate"),
    ("learn", "small_run", "--no-store"),
    ("watch", "small_run", "--once"),
    ("store", "list"),
    ("validate", "runs.csv"),
    ("catalog", "models"),
    ("prices", "break-even", "h100-hour", "h100-month", "--file", "prices.yaml"),
    ("schema", "job"),
    ("completion", "bash"),
)
# What needs an extra, and which.
LACKING = (
    (("data", "profile", "support_chat.jsonl", "--model", "Qwen/Qwen2.5-7B"), "tokens"),
    (("data", "tokenize", "support_chat.jsonl", "--model", "qwen3", "-o", "shards"), "tokens"),
    (("trace", "--model", "7B", "--method", "lora", "--framework", "transformers"), "trace"),
    (("pilot", *NUMBERS), "pilot"),
    (("schedule", "--pool", "team_pool.yaml"), "schedule"),
    (("report", *NUMBERS, "--to", "report.html"), "report"),
    (("report", *NUMBERS, "--to", "report.xlsx"), "report"),
    (("prices", "refresh"), "prices"),
    (("learn", "events", "--no-store"), "logs"),
    (("mcp",), "mcp"),
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def commands(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_without_extras(wheel, tmp_path_factory.mktemp("environment") / "base")


@pytest.fixture
def installed(commands: Path, tmp_path: Path):
    """Run the installed command in a folder that knows nothing of the sources."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": str(commands), "COLUMNS": "80", "HOME": str(tmp_path)}
        command = [str(commands / "tuneplan"), *arguments]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    return run


def test_the_wheel_holds_every_file_of_the_package_and_the_licence(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    files = {
        str(path.relative_to(PACKAGE.parent))
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in (".po", ".pot")
    }
    assert {"tuneplan/py.typed", "tuneplan/catalog/data/models.json"} <= files
    assert files <= names
    others = {name.split("/", 1)[1] for name in names - files}
    assert {"licenses/LICENSE", "licenses/THIRD_PARTY.md", "entry_points.txt"} <= others
    assert not [name for name in names - files if ".dist-info/" not in name]


def test_what_is_installed_speaks_chinese(installed) -> None:
    told = installed("--lang", "zh-TW", "estimate", "--model", "7B", "--accelerator", "H100 SXM")
    assert told.returncode == 0
    assert "顯存" in told.stdout
    assert "显存" in installed("--lang", "zh-CN", "estimate", "--model", "7B").stdout


def test_the_source_archive_can_be_built_and_tested_from(tmp_path: Path) -> None:
    with tarfile.open(build("sdist", tmp_path)) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    wanted = {
        *("pyproject.toml", "Makefile", "README.md", "LICENSE", "CHANGELOG.md", "THIRD_PARTY.md"),
        *("src/tuneplan/py.typed", "tests/house/test_installed.py", "docs/index.md"),
        *("examples/support_chat.yaml", "tools/make_reference.py", "bench/run.py"),
        *("zensical.toml", "docs/pictures/memory_by_method.svg"),
    }
    assert wanted <= names
    assert not [name for name in names if "__pycache__" in name or name.startswith(".venv")]


def test_the_wheel_of_the_source_archive_is_that_of_the_clone(wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(build("sdist", tmp_path)) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    again = build("wheel", tmp_path / "again", source=unpacked)
    assert again.name == wheel.name
    assert contents(again) == contents(wheel)


def contents(wheel: Path) -> dict[str, int]:
    """The files of a wheel with their check sums."""
    with zipfile.ZipFile(wheel) as archive:
        return {one.filename: one.CRC for one in archive.infolist()}


def test_the_installed_command_says_its_version(installed) -> None:
    assert installed("--version").stdout.startswith("tuneplan 0.")


def test_the_installed_command_lists_accelerators(installed) -> None:
    answered = installed("catalog", "accelerators", "--json")
    names = {entry["name"] for entry in json.loads(answered.stdout)["entries"]}
    assert {"NVIDIA H100 SXM", "NVIDIA L4"} <= names


def test_an_estimate_from_numbers_needs_no_extra(installed) -> None:
    answered = installed(
        *("estimate", "--model", "7B", "--method", "lora", "--accelerator", "H100 SXM"),
        *("--set", "data.num_samples=1000", "--set", "data.mean_tokens=500", "--json"),
    )
    assert answered.returncode == 0, answered.stderr
    estimate = json.loads(answered.stdout)
    assert estimate["fit"]["verdict"] == "fits"
    assert float(estimate["cost"]["total"]["likely"]["amount"]) > 0


def test_data_files_without_the_extra_are_answered_with_the_command_that_installs_it(
    installed, tmp_path: Path
) -> None:
    row = {"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}]}
    (tmp_path / "chat.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    (tmp_path / "vocabulary.tiktoken").write_text("IQ== 0\n", encoding="utf-8")
    of_chat = ("estimate", "--model", "Qwen/Qwen2.5-7B-Instruct", "--data", "chat.jsonl")
    for more in ((), ("--set", "data.tokenizer=vocabulary.tiktoken")):
        answered = installed(*of_chat, *more)
        assert answered.returncode == 2
        assert "pip install 'tuneplan[tokens]'" in answered.stderr
        assert "Traceback" not in answered.stderr


def test_the_base_install_stays_under_150_megabytes() -> None:
    sizes = {name: size_bytes(one) for name, one in base_distributions().items()}
    ours = [p for p in PACKAGE.rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    sizes["tuneplan"] = sum(p.stat().st_size for p in ours)
    assert sum(sizes.values()) < 150e6, sizes


def test_every_command_is_tried_without_extras() -> None:
    tried = {words[0] for words in ANSWERED} | {words[0] for words, _ in LACKING}
    assert set(COMMANDS) - tried == {"serve"}


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "examples", tmp_path, dirs_exist_ok=True)
    header = "id,model,method,accelerator,num_gpus,seq_len,micro_batch,tokens_per_s\n"
    (tmp_path / "runs.csv").write_text(f"{header}a,7B,lora,H100 SXM,1,1024,1,4000\n", "utf-8")
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "events.out.tfevents.1").write_bytes(b"")
    return tmp_path


@pytest.mark.parametrize("words", ANSWERED, ids=lambda words: " ".join(words[:2]))
@pytest.mark.usefixtures("examples")
def test_the_base_install_answers(installed, words: tuple[str, ...]) -> None:
    answered = installed(*words)
    assert answered.returncode == 0, answered.stdout + answered.stderr
    assert answered.stdout.strip()
    assert "pip install" not in answered.stderr


@pytest.mark.parametrize(
    ("words", "extra"), LACKING, ids=[f"{words[0]} {words[-1]}" for words, _ in LACKING]
)
@pytest.mark.usefixtures("examples")
def test_a_command_without_its_extra_names_the_line_that_installs_it(
    installed, words: tuple[str, ...], extra: str
) -> None:
    answered = installed(*words)
    assert answered.returncode == 2, answered.stdout
    assert f"pip install 'tuneplan[{extra}]'" in answered.stderr
    assert "Traceback" not in answered.stderr


def test_the_base_install_serves_the_page_with_all_that_it_loads(
    commands: Path, tmp_path: Path
) -> None:
    environment = {"PATH": str(commands), "HOME": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    command = [str(commands / "tuneplan"), "serve", "--port", "0"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as server:
        try:
            told = b""
            while not (found := re.search(rb"http://127\.0\.0\.1:\d+", told)):
                line = server.stdout.readline()
                assert line, told
                told += line
            origin = found[0].decode()
            page = fetched(f"{origin}/fit").decode()
            loaded = re.findall(r'(?:src|href)="(/static/[^"]+)"', page)
            assert {Path(one.partition("?")[0]).suffix for one in loaded} >= {".css", ".js"}
            assert all(fetched(origin + one) for one in loaded)
        finally:
            server.terminate()


def fetched(address: str) -> bytes:
    return httpx.get(address, timeout=60).raise_for_status().content
