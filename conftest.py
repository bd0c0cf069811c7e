"""Set up for all tests: the Python examples of the pages run too, and Hypothesis is steady."""

import os
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

ROOT = Path(__file__).parent

# Traces that were made on this machine are no part of what is tested.
_CACHE = tempfile.TemporaryDirectory(prefix="tuneplan-tests-")
os.environ["XDG_CACHE_HOME"] = _CACHE.name
# The sentences that tests compare are English, whatever the locale of the machine.
os.environ["TUNEPLAN_LANG"] = "en"

# A shell ignores Ctrl-C for what it starts in the background, and children inherit that: commands
# that are interrupted here must see it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples each time, and no clock: a check says the same on every machine.
# HYPOTHESIS_PROFILE=dev looks for new ones.
settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("dev", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser()],
    patterns=["README*.md", "docs/**/*.md"],
    fixtures=["in_the_repository"],
).pytest()


@pytest.fixture
def in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples name files as a reader in a fresh clone would."""
    monkeypatch.chdir(ROOT)
