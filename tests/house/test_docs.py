import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import tuneplan
from tuneplan.cli.commands import COMMANDS
from tuneplan.contract.job import keys
from tuneplan.contract.reading import load_job

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
GLOSSARY = "docs/reference/glossary_languages.md"
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def test_the_reference_pages_are_what_the_code_says() -> None:
    check = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "make_reference.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert check.returncode == 0, check.stdout + check.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_documented(command: str) -> None:
    assert f"## tuneplan {command}\n" in (REFERENCE / "cli.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("key", keys())
def test_every_key_of_the_job_file_is_documented(key: str) -> None:
    section, _, name = key.rpartition(".")
    title = f"## `{section}`" if section else "## Top level"
    page = (REFERENCE / "job.md").read_text(encoding="utf-8")
    assert f"| `{name}` |" in page.split(title)[1].split("\n## ")[0]


def test_the_job_files_in_the_docs_are_read() -> None:
    for page in PAGES:
        for block in re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            document = yaml.safe_load(block)
            if isinstance(document, dict) and "model" in document:
                load_job(document)


def test_the_quickstart_shows_the_example_s_job_file_as_it_is() -> None:
    page = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    job = (ROOT / "examples" / "support_chat.yaml").read_text(encoding="utf-8")
    assert f"```yaml\n{job}```\n" in page


READMES = sorted(ROOT.glob("README*.md"))
PAGES = [*READMES, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    missing = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    assert missing == []


@pytest.mark.parametrize("name", sorted(set(tuneplan.__all__) - {"__version__"}))
def test_every_public_name_is_in_the_python_reference(name: str) -> None:
    assert f"`{name}" in (REFERENCE / "python.md").read_text(encoding="utf-8")


def test_the_page_of_the_rooms_says_what_the_contract_says() -> None:
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = contract["tool"]["importlinter"]["contracts"][0]["layers"]
    page = (ROOT / "docs" / "internals" / "rooms.md").read_text(encoding="utf-8")
    assert "\n".join(layers) in page


def test_the_readme_stands_in_three_languages_that_name_each_other() -> None:
    assert [page.name for page in READMES] == ["README.md", "README.zh-CN.md", "README.zh-TW.md"]
    for page in READMES:
        line = page.read_text(encoding="utf-8").splitlines()[2]
        others = {other.name for other in READMES if other != page}
        assert set(re.findall(r"\]\(([^)]+)\)", line)) == others, page


def test_every_language_of_the_readme_shows_the_same_commands_pages_and_examples() -> None:
    def shown(page: Path) -> tuple[list[str], ...]:
        text = page.read_text(encoding="utf-8").split("## Where things are")[0]
        text = re.sub(r" --lang zh-\w\w", "", text)
        blocks = "".join(re.findall(r"(?s)```(?:text|console)\n(.*?)```", text))
        return (
            re.findall(r"(?m)^(?:\$ )?((?:tuneplan|pipx|uvx|pip|make) .*?)(?:  .*)?$", blocks),
            sorted(set(re.findall(r"\]\((docs/[^)]+)\)", text)) - {GLOSSARY}),
            re.findall(r"(?s)```python\n(.*?)```", text),
            re.findall(r"`tuneplan ([a-z]+)", text),
        )

    english, *others = map(shown, READMES)
    assert others == [english] * 2


def test_the_readme_names_every_room() -> None:
    tree = (ROOT / "README.md").read_text(encoding="utf-8")
    rooms = {path.parent.name for path in (ROOT / "src" / "tuneplan").glob("*/__init__.py")}
    assert {room for room in rooms if f"  {room}/ " not in tree} == set()


@pytest.mark.parametrize("target", re.search(r"(?m)^\.PHONY: (.*)$", MAKEFILE)[1].split())
def test_make_help_tells_of_every_target(target: str) -> None:
    assert f'"make {target} ' in MAKEFILE or target == "help"


@pytest.mark.parametrize("module", ["uncertainty", "step_time"])
def test_the_page_of_uncertainty_shows_the_priors_that_the_code_holds(module: str) -> None:
    code = (ROOT / "src" / "tuneplan" / "estimation" / f"{module}.py").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "concepts" / "uncertainty.md").read_text(encoding="utf-8")
    shown = {
        (float(low), float(high)) for low, high in re.findall(r"\| (0\.\d+) \| (1\.\d+) \|", page)
    }
    held = re.findall(r"(?m)^_[A-Z_]+: Final = \((0\.\d+), (1\.\d+)\)", code)
    assert len(held) >= 7
    assert {(float(low), float(high)) for low, high in held} <= shown
