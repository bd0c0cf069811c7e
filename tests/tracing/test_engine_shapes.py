"""What is known of a kind of call is what PyTorch's own shape functions say."""

from __future__ import annotations

import pytest
import torch

from tuneplan.tracing.device import fake_device, fake_mode
from tuneplan.tracing.recorder import Recorder
from tuneplan.tracing.recording import Recording

WIDTH, TOKENS = 48, 32


def _recorded(*, remembers: bool) -> Recording:
    """Three steps of a small network whose operations view, alias, write in place and split."""
    recorder = Recorder(remembers=remembers)
    with fake_mode(), recorder:
        network = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.LayerNorm(3 * WIDTH), torch.nn.SiLU()
        ).to(fake_device())
        optimizer = torch.optim.AdamW(network.parameters(), foreach=True)
        for step in range(3):
            recorder.start("forward", step)
            given = torch.empty(2, TOKENS, WIDTH, device=fake_device())
            query, key, value = network(given).chunk(3, dim=-1)
            scores = (query @ key.transpose(1, 2)).softmax(-1)
            out = (scores @ value).add_(1.0).permute(1, 0, 2).reshape(-1)
            scale = torch.ones((), device=fake_device()).expand(out.shape)
            loss = (out * scale).view(torch.int32).view(torch.float32).float().mean()
            recorder.start("backward")
            (loss + out.mean()).backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        recorder.start("other")
    recorder.finish()
    return recorder.recording


def test_a_recording_is_the_same_with_and_without_known_calls() -> None:
    known, asked = _recorded(remembers=True), _recorded(remembers=False)
    assert known.blocks == asked.blocks
    assert known.events == asked.events
    assert known.marks == asked.marks
    assert known.operations == asked.operations


def test_known_calls_alias_as_the_first_call_did() -> None:
    recorder = Recorder()
    with fake_mode(), recorder:
        for _ in range(2):
            base = torch.empty(4, 6, device=fake_device())
            parts = base.split(2, dim=1)
            row = base[1]
            turned = base.t()
            assert base.add_(1) is base
            assert [p.storage_offset() for p in parts] == [0, 2, 4]
            assert (row.shape, row.storage_offset()) == ((6,), 6)
            assert turned.stride() == (1, 6)
            storage = base.untyped_storage()._cdata
            for view in (*parts, row, turned):
                assert view.untyped_storage()._cdata == storage


def test_the_dtype_that_a_tensor_gets_by_default_is_part_of_a_call() -> None:
    recorder = Recorder()
    default = torch.get_default_dtype()
    with fake_mode(), recorder:
        single = torch.empty(4, device=fake_device())
        torch.set_default_dtype(torch.bfloat16)
        try:
            half = torch.empty(4, device=fake_device())
        finally:
            torch.set_default_dtype(default)
    assert (single.dtype, half.dtype) == (torch.float32, torch.bfloat16)


def test_a_resized_tensor_is_asked_about_every_time() -> None:
    recorder = Recorder()
    with fake_mode(), recorder:
        for _ in range(2):
            tensor = torch.empty(4, device=fake_device())
            assert tensor.resize_(8).shape == (8,)


def test_what_cannot_be_told_without_values_is_an_error() -> None:
    recorder = Recorder()
    with fake_mode(), recorder:
        tensor = torch.empty(4, device=fake_device())
        with pytest.raises(RuntimeError):
            tensor.sum().item()
