import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tuneplan.cli.commands import COMMANDS
from tuneplan.contract.job import keys
from tuneplan.contract.reading import load_job

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"


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
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for block in re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            document = yaml.safe_load(block)
            if isinstance(document, dict) and "model" in document:
                load_job(document)
