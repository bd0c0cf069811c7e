"""What the device does as CUDA does it: fused operations, sizes, streams, hidden buffers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import library

from tuneplan.tracing.device import fake_device, fake_mode
from tuneplan.tracing.one_kernel import BACKWARDS, FORWARDS
from tuneplan.tracing.recorder import Recorder
from tuneplan.tracing.recording import Recording


def recorded(run: Callable[[], object]) -> Recording:
    recorder = Recorder()
    recorder.start("forward", 0)
    with fake_mode(), recorder:
        run()
    recorder.finish()
    return recorder.recording


def made(*shape: int, dtype: torch.dtype = torch.bfloat16, trained: bool = False) -> torch.Tensor:
    return torch.empty(*shape, dtype=dtype, device=fake_device(), requires_grad=trained)


def called(recording: Recording) -> set[str]:
    return {name.split(".")[1] for name in recording.operations}


def test_every_operation_with_a_cuda_kernel_and_a_composition_is_known() -> None:
    import torchgen

    listed = Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml"
    functions = {
        function["func"].split("(")[0]: function
        for function in yaml.safe_load(listed.read_text(encoding="utf-8"))
    }

    def kernels(function: Any) -> set[str]:
        groups = function.get("dispatch") or {}
        return {key.strip() for group in groups for key in group.split(",")}

    def on_cuda(function: Any) -> bool:
        own = function.get("structured_delegate")
        return "CUDA" in kernels(function) or bool(own and "CUDA" in kernels(functions[own]))

    found = {
        name
        for name, function in functions.items()
        if "CompositeImplicitAutograd" in kernels(function) and on_cuda(function)
    }
    assert found <= {*BACKWARDS, *FORWARDS}


@pytest.mark.parametrize("function", [torch.softmax, torch.log_softmax])
def test_softmax_reads_float16_into_float32_in_one_kernel(function: Any) -> None:
    def run(dtype: torch.dtype) -> Recording:
        return recorded(
            lambda: function(made(4, 8, dtype=dtype, trained=True), -1, dtype=torch.float32)
        )

    assert "_to_copy" not in called(run(torch.float16))
    assert "_to_copy" in called(run(torch.bfloat16))


def test_the_gradient_of_a_fused_softmax_is_half_and_its_product_single() -> None:
    def run() -> None:
        given = made(4, 8, dtype=torch.float16, trained=True)
        given.softmax(-1, dtype=torch.float32).sum().backward()
        assert given.grad is not None
        assert given.grad.dtype is torch.float16

    blocks = recorded(run).blocks
    inside = [b for b in blocks if b.operation.startswith("_softmax_backward_data (in")]
    assert [block.size for block in inside] == [4 * 4 * 8]


def test_root_mean_square_and_silu_are_one_kernel_each_way() -> None:
    def run() -> None:
        given = made(4, 8, trained=True)
        normed = torch.nn.functional.rms_norm(given, (8,), made(8, trained=True), 1e-6)
        torch.nn.functional.silu(normed).sum().backward()

    operations = called(recorded(run))
    assert {"_fused_rms_norm", "_fused_rms_norm_backward", "silu", "silu_backward"} <= operations
    assert not {"rsqrt", "pow", "sigmoid"} & operations


def test_a_storage_that_is_emptied_and_filled_again_is_two_blocks() -> None:
    def run() -> None:
        tensor = made(1024)
        storage = tensor.untyped_storage()
        storage.resize_(0)
        made(8)
        storage.resize_(2048)

    recording = recorded(run)
    assert [block.size for block in recording.blocks] == [2048, 16, 2048]
    assert recording.events.tolist() == [0, -1, 1, -2, 2, -3]


def test_an_emptied_storage_dies_once() -> None:
    def run() -> None:
        made(1024).untyped_storage().resize_(0)

    assert recorded(run).events.tolist() == [0, -1]


def test_a_tensor_resized_by_an_operation_takes_another_block() -> None:
    def run() -> None:
        made(16).resize_(64)

    assert [block.size for block in recorded(run).blocks] == [32, 128]


def test_blocks_carry_the_stream_they_are_made_on() -> None:
    def run() -> None:
        module = torch.get_device_module(fake_device())
        other = module.Stream()
        first = made(8)
        with module.stream(other):
            second = made(8)
        assert module.current_stream() == module.default_stream()
        del first, second

    first, second = recorded(run).blocks
    assert first.stream == 0
    assert second.stream > 0


def test_cached_memory_that_is_given_back_is_marked() -> None:
    def run() -> None:
        made(8)
        torch.get_device_module(fake_device()).empty_cache()
        made(8)

    assert recorded(run).emptied == [2]


@pytest.mark.parametrize(
    ("tokens", "inside"),
    [
        (3072, []),
        # Two lists of sorted indices; runs; per segment twice; per part; fp32 sums of the parts.
        (4096, [32768, 32768, 32768, 8000, 8000, 8 * 1409, 4 * 1409 * 64]),
    ],
)
def test_the_gradient_of_an_embedding_sums_in_single_precision(
    tokens: int, inside: list[int]
) -> None:
    def run() -> None:
        indices = made(tokens, dtype=torch.int64)
        torch.nn.functional.embedding(indices, made(1000, 64, trained=True)).sum().backward()

    recording = recorded(run)
    blocks = [b for b in recording.blocks if b.operation.startswith("embedding_dense_backward (in")]
    assert [block.size for block in blocks] == inside


def test_operations_from_other_libraries_are_noted_by_name() -> None:
    @library.custom_op("tests::doubled", mutates_args=())
    def doubled(given: torch.Tensor) -> torch.Tensor:
        return given * 2

    doubled.register_fake(torch.empty_like)
    recording = recorded(lambda: doubled(made(8)))
    assert recording.notes == {"operation tests.doubled.default": 1}
