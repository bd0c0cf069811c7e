"""What a plan holds fixed (the samples of a step), what it may call cheap, what it warns of."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from tuneplan.contract.reading import load_job
from tuneplan.planner.candidates import Table
from tuneplan.planner.dataset import read_dataset
from tuneplan.planner.estimate import estimate_job
from tuneplan.planner.plan import Plan, plan_job
from tuneplan.planner.searching import Search
from tuneplan.planner.sources import Sources
from tuneplan.planner.space import space_of
from tuneplan.spec.stated import StatedJob

SOURCES = Sources(today=date(2026, 11, 30))
A100 = "NVIDIA A100 SXM 80GB"


def job(**changes: object) -> StatedJob:
    written = {
        "model": "Qwen/Qwen2.5-0.5B-Instruct",
        "method": "lora",
        "data": {"num_samples": 4000, "mean_tokens": 500},
        "hardware": {"accelerator": A100, "accelerators_per_node": [1, 2, 8], "num_nodes": 1},
        "training": {"per_device_train_batch_size": [1, 8, 64]},
    }
    return load_job({**written, **changes})


def searched(asked: StatedJob) -> Table:
    model = SOURCES.models.resolve(asked.model).architecture
    return Search(asked, space_of(asked, SOURCES), model, read_dataset(asked), SOURCES).table()


def samples_of_steps(table: Table) -> set[int]:
    cards = np.array([nodes * per_node for nodes, per_node in table.space.shapes])
    return set((table.micro_batch * table.accumulation * cards[table.shape]).tolist())


def codes(plan: Plan) -> set[str]:
    return {notice.message.code for notice in plan.notices}


def sheet(tmp_path: Path, *offers: str) -> Sources:
    written = tmp_path / "prices.yaml"
    written.write_text("offers:\n" + "".join(f"  - {{{offer}}}\n" for offer in offers))
    return replace(SOURCES, price_files=(written,))


def offer(price: str, *, accelerator: str = A100, more: str = "") -> str:
    return (
        f"provider: Own, accelerator: {accelerator}, num_accelerators: 1, price: {price}, "
        f"per: hour, as_of: 2026-11-01{more}"
    )


def test_every_unpacked_candidate_trains_on_the_same_samples_in_a_step():
    """32 = 1 x 1 x 32 = ... = 8 x 4 x 1; a micro-batch of 64 makes no 32 and is refused."""
    unpacked = {"per_device_train_batch_size": [1, 8, 64], "packing": False}
    table = searched(job(training=unpacked))
    assert samples_of_steps(table) == {32}
    refused = {one.code: one for one in table.refusals}["other_global_batch"]
    assert refused.example["training.per_device_train_batch_size"] == 64


def test_more_cards_than_samples_of_a_step_raise_the_assumed_batch():
    """64 cards of one sample each cannot see 32: the batch that is assumed is 64."""
    hardware = {"accelerator": A100, "accelerators_per_node": 8, "num_nodes": 8}
    training = {"per_device_train_batch_size": [1], "packing": False}
    table = searched(job(hardware=hardware, training=training))
    assert samples_of_steps(table) == {64}


def test_a_stated_accumulation_is_kept_and_said_to_grow_the_batch():
    training = {
        "per_device_train_batch_size": [1, 8],
        "packing": False,
        "gradient_accumulation_steps": 4,
    }
    asked = job(training=training)
    assert set(searched(asked).accumulation.tolist()) == {4}
    assert "growing_global_batch" in codes(plan_job(asked, SOURCES))


def test_packed_steps_hold_about_the_samples_that_were_asked_for():
    """A packed row of 1024 tokens holds about two samples of 500."""
    training = {"per_device_train_batch_size": [1, 8], "max_length": 1024}
    table = searched(job(training=training))
    packed = np.array([bool(table.variants[v].packing) for v in table.variant])
    assert packed.any()
    cards = np.array([nodes * per_node for nodes, per_node in table.space.shapes])
    rows = table.micro_batch * table.accumulation * cards[table.shape]
    assert (np.abs(rows[packed] * 2.0 / 32 - 1) < 0.5).all()


def test_packing_that_every_candidate_does_counts_rows_as_the_frameworks_do():
    training = {"per_device_train_batch_size": [1, 8], "packing": True, "global_batch_size": 16}
    assert samples_of_steps(searched(job(training=training))) == {16}


def test_packing_that_the_plan_chose_keeps_samples_apart_with_flash_attention():
    plan = plan_job(job(), SOURCES)
    packed = [entry for entry in plan.entries if entry.settings["training.packing"]]
    assert packed
    for entry in packed:
        assert entry.settings["training.attn_implementation"] == "flash_attention_2"
        assert entry.job.recipe.training.attn_implementation == "flash_attention_2"


def test_without_any_price_nothing_is_called_cheap():
    """No price of an NVIDIA H20 is known: the cards that work least are shown first."""
    hardware = {"accelerator": "NVIDIA H20", "accelerators_per_node": [1, 2, 8], "num_nodes": 1}
    plan = plan_job(job(hardware=hardware), SOURCES)
    assert plan.entries
    assert not {label for one in plan.entries for label in one.labels} & {"cheapest", "balanced"}
    hours = [one.estimate.time.run.accelerator_hours.likely for one in plan.entries
             if one.estimate.time and one.estimate.time.run]  # fmt: skip
    assert hours[0] == pytest.approx(min(hours))


def test_the_users_own_currency_compares_costs_where_no_budget_is_stated(tmp_path):
    sources = sheet(tmp_path, offer("100 THB"))
    cost = plan_job(job(), sources).entries[0].estimate.cost
    assert cost is not None
    assert cost.total.likely.currency == "THB"


def test_a_budget_in_a_currency_without_a_rate_is_named_as_the_reason(tmp_path):
    hardware = {"accelerator": A100, "accelerators_per_node": 1}
    limits = {"providers": ["Own"], "budget": "50 USD"}
    plan = plan_job(job(hardware=hardware, limits=limits), sheet(tmp_path, offer("100 THB")))
    assert plan.entries == ()
    assert "currency_without_rate" in {one.code for one in plan.rejected}


def test_an_offer_that_stands_elsewhere_is_refused_for_its_place(tmp_path):
    sources = sheet(tmp_path, offer("2 USD", more=", region: us-east"))
    hardware = {"accelerator": A100, "accelerators_per_node": 1}
    plan = plan_job(job(hardware=hardware, limits={"residency": "eu"}), sources)
    assert plan.entries == ()
    assert "residency" in {one.code for one in plan.rejected}


def test_the_first_entrys_notices_are_those_of_the_plan():
    plan = plan_job(job(), SOURCES)
    first = {notice.message.code for notice in plan.entries[0].estimate.notices}
    assert first <= codes(plan)
    said = [str(notice.message) for notice in plan.notices]
    assert len(said) == len(set(said))


def estimate_codes(**changes: object) -> set[str]:
    one = {"hardware": {"accelerator": A100}, "training": {}, **changes}
    answer = estimate_job(job(**one), SOURCES)
    return {notice.message.code for notice in answer.notices}


def test_an_estimate_says_which_limit_it_misses():
    loose = {"deadline": "900 h", "budget": "90000 USD"}
    assert not estimate_codes(limits=loose) & {"deadline_missed", "budget_missed"}
    assert "deadline_missed" in estimate_codes(limits={"deadline": "1 s"})
    assert "budget_missed" in estimate_codes(limits={"budget": "0.001 USD"})
    assert "headroom_missed" in estimate_codes(limits={"headroom": 0.99})


def test_cut_samples_are_counted():
    assert "samples_cut" in estimate_codes(training={"max_length": 100})
    assert "samples_cut" not in estimate_codes(training={"max_length": 32768})


def test_a_base_that_the_framework_loads_in_float32_is_named():
    assert "base_in_float32" in estimate_codes(framework="trl")
    assert "base_in_float32" not in estimate_codes(framework="trl", training={"dtype": "bfloat16"})


def test_experts_that_stay_unquantised_are_named_with_their_size():
    assert "experts_not_quantized" in estimate_codes(
        model="mistralai/Mixtral-8x7B-v0.1", method="qlora"
    )
    assert "experts_not_quantized" not in estimate_codes(method="qlora")


def test_packed_plans_say_how_many_samples_a_step_really_sees():
    """Rows of 4,096 hold some eight samples of 500: with one row a step sees 8 of the wanted 10."""
    training = {"per_device_train_batch_size": [1], "max_length": 4096, "global_batch_size": 10}
    hardware = {"accelerator": A100, "accelerators_per_node": 1}
    plan = plan_job(job(training=training, hardware=hardware), SOURCES)
    packed = [entry for entry in plan.entries if entry.settings["training.packing"]]
    assert packed
    assert "packed_steps_differ" in codes(plan)


def test_a_limit_says_what_it_excludes_and_what_that_costs(tmp_path: Path) -> None:
    sources = sheet(
        tmp_path,
        offer("4 USD", more=", region: TW, name: near"),
        offer("2 USD", more=", region: US, name: far"),
        offer("9 USD", more=", region: TW, name: safe, certifications: [ISO 27001]"),
    )
    asked = job(
        hardware={"accelerator": A100, "accelerators_per_node": 1, "num_nodes": 1},
        training={"per_device_train_batch_size": 8},
    )

    def told(**limits: object) -> dict[str, dict[str, object]]:
        limited = load_job(
            {
                "model": asked.model,
                "method": "lora",
                "data": {"num_samples": 4000, "mean_tokens": 500},
                "hardware": {"accelerator": A100},
                "limits": {"providers": ["Own"], **limits},
            }
        )
        found = estimate_job(limited, sources).notices
        return {n.path: dict(n.message.params) for n in found if n.message.code == "limit_costs"}

    # 4 USD an hour instead of 2
    (one,) = told(residency="TW").values()
    assert one["now"] == pytest.approx(2 * one["without"])
    # 9 instead of 4 without the certificate; without residency it stays at 9
    both = told(residency="TW", certifications=["ISO 27001"])
    assert list(both) == ["limits.certifications"]
    assert both["limits.certifications"]["now"] == pytest.approx(
        9 / 4 * both["limits.certifications"]["without"]
    )


def test_a_plan_ranks_spot_offers_with_what_interruptions_cost(tmp_path: Path) -> None:
    spot = ", interruptible: true, name: spot, interrupted_every: %s, restart: 30 min"
    limits = {"allow_interruptible": True, "providers": ["Own"]}

    def chosen(every: str) -> str:
        sources = sheet(
            tmp_path,
            offer("4 USD", more=", name: steady"),
            offer("2 USD", more=spot % every),
        )
        plan = plan_job(
            job(
                hardware={"accelerator": A100, "accelerators_per_node": 1, "num_nodes": 1},
                training={"per_device_train_batch_size": 8},
                limits=limits,
            ),
            sources,
        )
        best = plan.entries[0].estimate
        assert best.cost is not None
        # the search ranks with the same likely cost that the estimate tells
        return best.cost.offer.name

    assert chosen("100 h") == "spot"
    assert chosen("3 min") == "steady"


def test_samples_longer_than_a_packed_row_are_counted_by_estimate_and_plan():
    """A tenth lies above the 90th percentile; rows of that length lose as much as single ones."""
    written = {
        "data": {"num_samples": 400, "quantiles": {"p50": 40, "p90": 100, "max": 400}},
        "hardware": {"accelerator": A100, "accelerators_per_node": 1},
    }
    single = {"max_length": 100, "per_device_train_batch_size": 1}
    (cut,) = (
        one.message
        for one in estimate_job(job(**written, training=single), SOURCES).notices
        if one.message.code == "samples_cut"
    )
    asked = job(**written, training={**single, "packing": True})
    for notices in (estimate_job(asked, SOURCES).notices, plan_job(asked, SOURCES).notices):
        (told,) = (one.message for one in notices if one.message.code == "samples_cut_packed")
        assert "10% of the samples" in str(told)
        assert told.params["lost"] == cut.params["lost"] > 0.1
    whole = job(**written, training={**single, "packing": True, "max_length": 400})
    assert "samples_cut_packed" not in codes(plan_job(whole, SOURCES))
