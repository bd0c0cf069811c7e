"""Loops over experts: every expert that is said to be hit is called, with its share of tokens."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from tracing.small_jobs import HIDDEN, LAYERS, LENGTH, SEQUENCES, TOKENS, recipe_for
from tuneplan.catalog.architectures import build_architecture
from tuneplan.estimation.operations import OperationKind
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.tracing.device import fake_device, fake_mode
from tuneplan.tracing.recorder import Recorder
from tuneplan.tracing.recording import Recording
from tuneplan.tracing.routing import Routing, Spread
from tuneplan.tracing.session import record
from tuneplan.tracing.work import by_kind

EXPERTS, PER_TOKEN, STEPS = 6, 2, 2


def small_mixture(implementation: str) -> ModelArchitecture:
    config = {
        "model_type": "mixtral",
        "hidden_size": HIDDEN,
        "intermediate_size": 128,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "vocab_size": 512,
        "num_local_experts": EXPERTS,
        "num_experts_per_tok": PER_TOKEN,
    }
    built = build_architecture(config, name="small", hf_id=None, source="test")[0]
    return replace(built, hf_config={**built.hf_config, "experts_implementation": implementation})


def trained(implementation: str, spread: Spread = Spread.BALANCED) -> Recording:
    model = small_mixture(implementation)
    return record(
        model, recipe_for(model), sequences=SEQUENCES, length=LENGTH, compute_capability=8.0,
        spread=spread,
    )[0]  # fmt: skip


@pytest.fixture(scope="module")
def grouped() -> Recording:
    return trained("grouped_mm")


def products(recording: Recording) -> int:
    kinds = by_kind(recording.operations)
    return sum(
        kinds[kind][1]
        for kind in (OperationKind.MATMUL, OperationKind.GROUPED_MATMUL)
        if kind in kinds
    )


@pytest.mark.parametrize(("spread", "hit"), [(Spread.BALANCED, EXPERTS), (Spread.WORST, PER_TOKEN)])
def test_a_loop_calls_every_expert_that_is_hit(
    grouped: Recording, spread: Spread, hit: int
) -> None:
    looped = trained("eager", spread)
    assert looped.notes["experts_hit"] == hit * LAYERS * STEPS
    assert looped.notes["expert_calls"] == hit * LAYERS * STEPS
    # No token is lost and none is computed twice: the same arithmetic as in grouped products.
    assert products(looped) == products(grouped)


def test_older_cards_take_the_fallback_which_makes_gradients_of_frozen_experts_too() -> None:
    model = small_mixture("grouped_mm")
    recipe = recipe_for(model, method="lora", adapter={"target_modules": ["q_proj", "v_proj"]})

    def on(capability: float) -> Recording:
        shape = {"sequences": SEQUENCES, "length": LENGTH}
        return record(model, recipe, compute_capability=capability, **shape)[0]

    def whole(recording: Recording) -> int:
        experts = (EXPERTS, 2 * 128, HIDDEN)
        made = [block for block in recording.blocks if block.phase == "backward"]
        return sum(sorted(block.shape) == sorted(experts) for block in made)

    old, new = on(7.5), on(8.0)
    assert whole(old) == LAYERS * STEPS
    assert whole(new) == 0
    assert any("grouped_mm_fallback" in name for name in old.notes)


def test_shares_add_up_and_differ_by_one_at_most() -> None:
    counts = Routing(EXPERTS, PER_TOKEN).counts(TOKENS * PER_TOKEN + 3)
    assert sum(counts) == TOKENS * PER_TOKEN + 3
    assert max(counts) - min(counts) <= 1
    worst = Routing(EXPERTS, PER_TOKEN, Spread.WORST).counts(TOKENS * PER_TOKEN)
    assert worst == [TOKENS, TOKENS, 0, 0, 0, 0]


def routed(run: Callable[[torch.Tensor], object]) -> tuple[Recording, Routing]:
    """Run with the choice of two experts for each of 12 tokens, shape (12, 2)."""
    routing = Routing(EXPERTS, PER_TOKEN)
    recorder = Recorder(values=routing)
    recorder.start("forward", 0)
    with fake_mode(), recorder:
        scores = torch.empty(12, EXPERTS, device=fake_device())
        run(scores.topk(PER_TOKEN, dim=-1).indices)
    recorder.finish()
    return recorder.recording, routing


def test_a_loop_over_numbers_asks_for_the_tokens_of_each() -> None:
    shapes = []

    def run(chosen: torch.Tensor) -> None:
        hidden = torch.empty(12, 8, device=fake_device())
        mask = torch.nn.functional.one_hot(chosen, num_classes=EXPERTS).permute(2, 1, 0)
        for expert in range(EXPERTS):
            place, token = torch.where(mask[expert])
            assert place.shape == token.shape
            if token.shape[0]:
                shapes.append(tuple(hidden[token].shape))

    _, routing = routed(run)
    assert shapes == [(4, 8)] * EXPERTS
    assert routing.answered == EXPERTS


def test_an_index_by_booleans_is_one_by_places_and_so_is_its_gradient() -> None:
    def run(chosen: torch.Tensor) -> None:
        hidden = torch.empty(12, 8, device=fake_device(), requires_grad=True)
        taken = [hidden[(chosen == expert).any(-1)] for expert in range(EXPERTS)]
        assert [tuple(one.shape) for one in taken] == [(4, 8)] * EXPERTS
        torch.cat(taken).sum().backward()
        assert hidden.grad is not None
        assert hidden.grad.shape == hidden.shape

    routed(run)


def test_counts_of_tokens_are_read_by_the_program() -> None:
    read = []

    def run(chosen: torch.Tensor) -> None:
        counts = chosen.flatten().bincount(minlength=EXPERTS)
        read.append(counts.tolist())
        read.append(counts.cumsum(0).tolist())
        sums = torch.empty(12, EXPERTS, device=fake_device()).long().sum(0)
        read.append(sums.tolist())

    routed(run)
    assert read == [[4] * 6, [4, 8, 12, 16, 20, 24], [4] * 6]


def test_comparisons_with_an_index_are_computed_and_not_guessed() -> None:
    passed = []

    def run(chosen: torch.Tensor) -> None:
        mask = torch.nn.functional.one_hot(chosen, num_classes=EXPERTS + 1).permute(2, 1, 0)
        hit = torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero()
        for index in hit:
            if index[0] == EXPERTS:
                continue
            passed.append(int(index[0]))

    routed(run)
    assert passed == list(range(EXPERTS))


def test_what_no_routing_says_stays_an_error() -> None:
    with pytest.raises(RuntimeError):
        routed(lambda chosen: chosen.float().mean().item())
