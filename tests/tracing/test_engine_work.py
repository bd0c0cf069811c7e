"""FLOPs and bytes of small models, against arithmetic by hand."""

import torch

from tracing.small_jobs import (
    HIDDEN,
    INNER,
    LAYERS,
    LENGTH,
    SEQUENCES,
    TOKENS,
    VOCABULARY,
    recipe_for,
    small_llama,
    traced,
)
from tuneplan.estimation.operations import OperationKind
from tuneplan.tracing.device import fake_device, fake_mode
from tuneplan.tracing.recorder import Recorder
from tuneplan.tracing.work import by_kind

STEPS = 2
LINEAR_WEIGHTS = LAYERS * (4 * HIDDEN * HIDDEN + 3 * HIDDEN * INNER) + VOCABULARY * HIDDEN


def test_full_fine_tuning_costs_six_flops_a_weight_and_token() -> None:
    architecture = small_llama()
    recording = traced(architecture, recipe_for(architecture, attention_mask=False))
    kinds = by_kind(recording.operations)
    products = STEPS * 6 * LINEAR_WEIGHTS * TOKENS
    assert kinds[OperationKind.MATMUL][1] == products
    # Two products of half of length x length scores; five of them backward.
    scores = 2 * SEQUENCES * LENGTH * LENGTH * HIDDEN // 2
    assert kinds[OperationKind.ATTENTION][1] == STEPS * LAYERS * (2 + 5) * scores


def test_a_mask_makes_attention_compute_every_score() -> None:
    architecture = small_llama()
    kinds = by_kind(traced(architecture, recipe_for(architecture)).operations)
    scores = 2 * SEQUENCES * LENGTH * LENGTH * HIDDEN
    assert kinds[OperationKind.ATTENTION][1] == STEPS * LAYERS * (2 + 5) * scores


def test_checkpointing_adds_the_layers_forward_again() -> None:
    architecture = small_llama()
    training = {"gradient_checkpointing": True}
    recording = traced(architecture, recipe_for(architecture, training=training))
    # Not the last product of a layer: the second forward ends where everything saved is remade.
    outside = VOCABULARY * HIDDEN + LAYERS * INNER * HIDDEN
    once_more = 2 * (LINEAR_WEIGHTS - outside) * TOKENS
    kinds = by_kind(recording.operations)
    expected = STEPS * (6 * LINEAR_WEIGHTS * TOKENS + once_more)
    assert kinds[OperationKind.MATMUL][1] == expected


def test_frozen_weights_need_no_gradients_of_their_own() -> None:
    architecture = small_llama()
    rank = 8
    recording = traced(architecture, recipe_for(architecture, method="lora"))
    adapters = LAYERS * rank * (4 * 2 * HIDDEN + 3 * (HIDDEN + INNER))
    kinds = by_kind(recording.operations)
    # Nothing below the first layer is trained: no gradient for the input of the first q, k and v,
    # nor for that of their adapters.
    first = 2 * 3 * HIDDEN * (HIDDEN + rank) * TOKENS
    expected = 4 * LINEAR_WEIGHTS * TOKENS + 6 * adapters * TOKENS - first
    assert kinds[OperationKind.MATMUL][1] == STEPS * expected


def test_bytes_are_what_is_read_and_written() -> None:
    recorder = Recorder()
    recorder.start("forward", 0)
    with fake_mode(), recorder:
        left = torch.empty(8, 16, dtype=torch.bfloat16, device=fake_device())
        right = torch.empty(16, 4, dtype=torch.bfloat16, device=fake_device())
        out = left @ right
        wide = out[:, :1].expand(8, 4) + out
        wide.add_(out)
        wide.fill_(0)
        out.view(-1).float()
        table = torch.empty(1000, 6, device=fake_device())
        torch.nn.functional.embedding(
            torch.empty(5, dtype=torch.int64, device=fake_device()), table
        )
    recorder.finish()
    moved = {name.split(".")[1]: figures for name, figures in recorder.recording.operations.items()}
    assert moved["mm"] == (1, 2 * 8 * 16 * 4, 2 * (8 * 16 + 16 * 4 + 8 * 4))
    assert moved["add"][2] == 2 * (8 + 8 * 4 + 8 * 4)  # one column, read once, and the rest
    assert moved["add_"][2] == 3 * 2 * 8 * 4
    assert moved["fill_"][2] == 2 * 8 * 4
    assert moved["_to_copy"][2] == (2 + 4) * 8 * 4
    assert moved["view"] == (1, 0, 0)
    assert moved["embedding"][2] == 5 * 8 + 2 * 5 * 6 * 4
    assert moved["empty"][2] == 0


def test_grouped_products_multiply_every_row_once() -> None:
    recorder = Recorder()
    recorder.start("forward", 0)
    experts, rows, inner, outer = 4, 32, 16, 8
    with fake_mode(), recorder:
        given = torch.empty(rows, inner, dtype=torch.bfloat16, device=fake_device())
        weights = torch.empty(experts, inner, outer, dtype=torch.bfloat16, device=fake_device())
        ends = torch.empty(experts, dtype=torch.int32, device=fake_device())
        torch.nn.functional.grouped_mm(given, weights, offs=ends)
    recorder.finish()
    kinds = by_kind(recorder.recording.operations)
    assert kinds[OperationKind.GROUPED_MATMUL][1] == 2 * rows * inner * outer
