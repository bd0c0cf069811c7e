"""What a stranger gets: the wheel, the base install, the source archive."""

import json
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from house.installing import (
    ROOT,
    base_distributions,
    build,
    install_without_extras,
    size_bytes,
)

PACKAGE = ROOT / "src" / "tuneplan"


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
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {"tuneplan/py.typed", "tuneplan/catalog/data/models.json"} <= files
    assert files <= names
    others = {name.split("/", 1)[1] for name in names - files}
    assert {"licenses/LICENSE", "licenses/THIRD_PARTY.md", "entry_points.txt"} <= others
    assert not [name for name in names - files if ".dist-info/" not in name]


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
    sizes["tuneplan"] = sum(p.stat().st_size for p in PACKAGE.rglob("*") if p.is_file())
    assert sum(sizes.values()) < 150e6, sizes


def test_a_trace_without_the_extra_is_answered_with_the_command_that_installs_it(installed) -> None:
    answered = installed(
        "trace", "--model", "7B", "--method", "lora", "--framework", "transformers"
    )
    assert answered.returncode == 2
    assert "pip install 'tuneplan[trace]'" in answered.stderr
    assert "Traceback" not in answered.stderr
