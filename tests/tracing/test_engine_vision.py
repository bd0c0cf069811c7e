"""Batches with images: whole numbers are followed, and the tower sees every patch."""

from collections.abc import Callable
from itertools import accumulate

import pytest
import torch
from peft import LoraConfig

from tracing.small_jobs import recipe_for
from tuneplan.catalog.architectures import build_architecture
from tuneplan.catalog.models import load_models
from tuneplan.errors import NotSupported
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.tracing.device import fake_device, fake_mode
from tuneplan.tracing.images import ImageSize
from tuneplan.tracing.recorder import Recorder
from tuneplan.tracing.recording import Recording
from tuneplan.tracing.session import record
from tuneplan.tracing.values import on_host

LENGTH = 512
PATCH, MERGE = 14, 2


def shallow_model() -> ModelArchitecture:
    """Qwen2.5-VL with one layer and two blocks in its tower, one of them windowed."""
    entry = load_models().entry("Qwen2.5-VL-3B-Instruct")
    config = dict(entry.config)
    config["num_hidden_layers"] = 1
    if "text_config" in config:
        config["text_config"] = {**config["text_config"], "num_hidden_layers": 1}
    config["vision_config"] = {
        **config["vision_config"], "depth": 2, "fullatt_block_indexes": [1],
    }  # fmt: skip
    return build_architecture(config, name="shallow", hf_id=None, source="test")[0]


def traced(
    images: tuple[ImageSize, ...],
    length: int = LENGTH,
    *,
    trains_tower: bool = False,
    compute_capability: float = 8.0,
    folds_windows: bool = True,
) -> Recording:
    model = shallow_model()
    recipe = recipe_for(model, method="lora", adapter={"target_modules": ["q_proj", "v_proj"]})
    in_tower = LoraConfig(target_modules=["qkv"]) if trains_tower else None
    return record(
        model, recipe, sequences=1, length=length, compute_capability=compute_capability,
        images=images, folds_windows=folds_windows,
        peft_config=in_tower,
    )[0]  # fmt: skip


@pytest.fixture(scope="module")
def recording() -> Recording:
    return traced((ImageSize(280, 420),))


def test_every_patch_passes_the_tower_and_every_fourth_becomes_a_token(
    recording: Recording,
) -> None:
    rows, columns = 280 // PATCH, 420 // PATCH
    patches = rows * columns
    shapes = {
        block.shape for block in recording.blocks if block.module.startswith("base_model")
        and ".visual." in block.module and block.phase == "forward"
    }  # fmt: skip
    assert any(patches in shape for shape in shapes)
    merged = {block.shape for block in recording.blocks if ".visual.merger" in block.module}
    assert any(patches // MERGE**2 in shape for shape in merged)


def test_each_window_is_a_call_of_attention_in_the_loop_of_the_code() -> None:
    recording = traced((ImageSize(280, 420),), folds_windows=False)
    # 20 x 30 patches are 10 x 15 tokens; a window spans 112 pixels, four tokens each way.
    windows = -(-10 // 4) * -(-15 // 4)
    steps, whole = 2, 1
    assert recording.notes["attention_flash"] == steps * (windows + whole)
    assert recording.notes["attention_efficient"] == steps  # the language model's, with a mask


def test_windows_of_one_length_are_one_call(recording: Recording) -> None:
    # Of 10 x 15 tokens, windows are 4 or 2 high and 4 or 3 wide: four lengths.
    steps, lengths, whole = 2, 4, 1
    assert recording.notes["attention_flash"] == steps * (lengths + whole)
    assert "windowed attention" in recording.stand_ins


def calls(recording: Recording) -> int:
    """Of attention, forward and backward."""
    return sum(figures[0] for name, figures in recording.operations.items() if "flash" in name)


def attention_flops(recording: Recording) -> int:
    return sum(figures[1] for name, figures in recording.operations.items() if "flash" in name)


def peak_of(recording: Recording, part: str) -> int:
    """Most bytes of activations of a part, in blocks of 512."""
    changes = []
    for block in recording.blocks:
        if part in block.module and "weight" not in block.kind and block.kind != "gradient":
            size = -(-block.size // 512) * 512
            changes += [(block.born, size), (block.died, -size)]
    return max(accumulate(change for _, change in sorted(changes)))


@pytest.mark.parametrize("compute_capability", [7.5, 8.0])
def test_the_tower_takes_what_the_loop_over_its_windows_takes(compute_capability: float) -> None:
    loop, folded = (
        traced((ImageSize(560, 840),), 1024, trains_tower=True,
               compute_capability=compute_capability, folds_windows=folds)
        for folds in (False, True)
    )  # fmt: skip
    for part in (".visual.", ".visual.blocks.0.attn"):
        assert peak_of(folded, part) == pytest.approx(peak_of(loop, part), rel=0.01)
    assert attention_flops(folded) == attention_flops(loop)


def test_calls_do_not_grow_with_the_number_of_windows() -> None:
    # 448 x 448 pixels are 4 x 4 windows of 112 pixels, 896 x 896 are 8 x 8.
    few, many, looped = (
        calls(traced((ImageSize(side, side),), 2048, trains_tower=True, folds_windows=folds))
        for side, folds in ((448, True), (896, True), (896, False))
    )
    both_ways, steps, whole = 2, 2, 1
    assert few == many == both_ways * steps * (1 + whole)
    assert looped == both_ways * steps * (8 * 8 + whole)


def test_images_that_do_not_fit_are_refused_with_their_tokens() -> None:
    with pytest.raises(NotSupported, match="150 tokens"):
        traced((ImageSize(280, 420),), length=100)


def followed(run: Callable[[torch.Tensor], object]) -> list[object]:
    """Run with a tensor that is known to hold 3, 1, 2."""
    found: list[object] = []
    recorder = Recorder()
    with fake_mode(), recorder:
        given = torch.empty(3, dtype=torch.int64, device=fake_device())
        with on_host():
            real = torch.tensor([3, 1, 2])
        recorder.values.tell(given, real)
        found.append(run(given))
    return found


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (lambda x: x.tolist(), [3, 1, 2]),
        (lambda x: (x * 2 + 1).cumsum(0).tolist(), [7, 10, 15]),
        (lambda x: x[x > 1].tolist(), [3, 2]),
        (lambda x: torch.repeat_interleave(x, x).tolist(), [3, 3, 3, 1, 2, 2]),
        (lambda x: torch.arange(int(x[0]), device=x.device).flip(0).tolist(), [2, 1, 0]),
        (lambda x: torch.cat([x, torch.zeros_like(x)]).unique_consecutive().tolist(), [3, 1, 2, 0]),
        (lambda x: x.view(3, 1).expand(3, 2).reshape(-1).tolist(), [3, 3, 1, 1, 2, 2]),
        (lambda x: bool((x == 3).any()), True),
    ],
)
def test_operations_on_known_numbers_are_computed(
    run: Callable[[torch.Tensor], object], expected: object
) -> None:
    assert followed(run) == [expected]


def test_what_is_written_in_place_is_followed_or_forgotten() -> None:
    def written(x: torch.Tensor) -> list[int]:
        x[1:].add_(10)
        x[0] = 7
        return x.tolist()

    assert followed(written) == [[7, 11, 12]]

    def unknown(x: torch.Tensor) -> None:
        x.copy_(torch.empty(3, dtype=torch.int64, device=x.device).random_(5))
        x.tolist()

    with pytest.raises(RuntimeError):
        followed(unknown)
