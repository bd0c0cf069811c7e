"""Trainings in this process: each file in one of its own, where nothing was traced before.

A trace puts kernels of its own into PyTorch, and what stands for bitsandbytes into the modules.
"""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.mark.parametrize("name", ["alone_training.py", "alone_callback.py"])
def test_trainings_pass_in_a_process_of_their_own(name: str) -> None:
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(HERE / name))
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
