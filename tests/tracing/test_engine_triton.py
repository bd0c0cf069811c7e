"""Wrappers of Triton kernels run over kernels that do nothing (in a process of their own)."""

import json
import os
import subprocess
import sys
from pathlib import Path

# A library as the listed ones are: it asks for the card, allocates, launches and keeps.
LIBRARY = """
import torch
import triton
import triton.language as tl
from triton.language.extra.libdevice import tanh

@triton.autotune(configs=[triton.Config({"BLOCK": 128})], key=["n"])
@triton.jit
def scale_kernel(x, out, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)

class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        on_card = x.device.type == "cuda"
        count = torch.cuda.get_device_properties(x.device).multi_processor_count if on_card else 1
        parts = torch.empty((count, x.shape[-1]), dtype=torch.float32, device=x.device)
        out = torch.empty_like(x)
        scale_kernel[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), BLOCK=128)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, grad):
        scale_kernel[lambda meta: (1,)](grad, grad, grad.numel(), BLOCK=triton.next_power_of_2(100))
        return grad
"""

PROGRAM = """
import json, sys
from tuneplan.tracing.triton_stub import Card, LAUNCHES, install_triton
install_triton(Card(multiprocessors=46, capability=(8, 9)))
install_triton()
import torch
from tuneplan.tracing.device import fake_device, fake_mode
from tuneplan.tracing.recorder import Recorder
from liger_kernel import Scale
recorder = Recorder()
with fake_mode(), recorder:
    given = torch.empty(4, 32, device=fake_device(), requires_grad=True)
    Scale.apply(given).sum().backward()
sizes = [block.size for block in recorder.recording.blocks[:3]]
print(json.dumps({"launches": dict(LAUNCHES), "sizes": sizes, "grad": given.grad is not None}))
"""


def test_wrappers_allocate_and_keep_while_kernels_are_counted(tmp_path: Path) -> None:
    package = tmp_path / "liger_kernel"
    package.mkdir()
    (package / "__init__.py").write_text(LIBRARY, encoding="utf-8")
    source = Path(__file__).parents[2] / "src"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(source)))},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # Input, a row of single precision for each multiprocessor, output.
    assert json.loads(done.stdout) == {
        "launches": {"scale_kernel": 2},
        "sizes": [4 * 4 * 32, 4 * 46 * 32, 4 * 4 * 32],
        "grad": True,
    }
