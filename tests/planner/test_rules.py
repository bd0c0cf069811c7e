"""Rules of thumb beside our answer; what M8's figures are, with the arithmetic visible."""

from __future__ import annotations

from datetime import date

import pytest

from tuneplan.contract.reading import load_job
from tuneplan.economics import thumb
from tuneplan.planner.rules import JobRules, buckets, rules_of
from tuneplan.planner.sources import Sources

SOURCES = Sources(today=date(2026, 11, 30))
GB = 1e9


def rules(**job) -> JobRules:
    return rules_of(load_job(job), SOURCES)


def by_code(found: JobRules):
    return {one.rule.code: one for one in found.rules}


@pytest.fixture(scope="module")
def llama() -> JobRules:
    return rules(
        model="huggyllama/llama-7b",
        method="lora",
        data={"num_samples": 10_000, "mean_tokens": 1024},
        training={"max_length": 1024, "per_device_train_batch_size": 32, "dtype": "bfloat16"},
        hardware={"accelerator": "A100 SXM 80GB"},
    )


def test_the_differences_by_cause_sum_to_the_whole(llama) -> None:
    for one in llama.rules:
        assert sum(cause.difference_bytes for cause in one.causes) == pytest.approx(
            one.our_bytes.likely - one.rule.total_bytes, abs=10
        )
        assert all(str(cause.reason) for cause in one.causes)


def test_the_eight_bytes_of_llama_7b_and_its_activations(llama) -> None:
    # 6.74e9 x 8 = 53.9 GB; 32 x 1,024 x 4,096 x 32 x 2 = 8.6 GB
    found = by_code(llama)
    assert found["eight_bytes"].rule.total_bytes == 6_738_415_616 * 8
    both = found["eight_bytes_with_activations"].rule
    assert dict(both.terms)["activations"] == 32 * 1024 * 4096 * 32 * 2
    assert both.total_bytes == pytest.approx(62.5 * GB, rel=0.001)
    # AdamW's moments alone are 8 bytes a parameter in fp32, or 4 in bf16 as this job asks
    (optimizer,) = [c for c in found["eight_bytes"].causes if c.bucket == "optimizer"]
    assert optimizer.rule_bytes == 6_738_415_616 * 4
    assert optimizer.our_bytes >= optimizer.rule_bytes


def test_seven_billion_by_every_rule() -> None:
    # 7e9: 14 + 14 + 28 = 56 GB; + 8.6 = 64.6 GB; 18 x 7 x 1.25 = 157.5 GB
    assert thumb.eight_bytes_per_parameter(7e9).total_bytes == 56 * GB
    both = thumb.eight_bytes_with_activations(
        7e9, batch=32, length=1024, hidden_size=4096, num_layers=32
    )
    assert both.total_bytes / GB == pytest.approx(64.6, abs=0.05)
    assert thumb.eighteen_bytes_per_parameter(7e9).total_bytes / GB == pytest.approx(157.5)


def test_what_the_factor_of_a_rule_adds_is_for_activations(llama) -> None:
    one = by_code(llama)["eighteen_bytes"]
    (kept,) = [cause for cause in one.causes if cause.bucket == "activations"]
    # 18 x 1.25 - 18 = 4.5 bytes a parameter
    assert kept.rule_bytes == pytest.approx(6_738_415_616 * 4.5)


def test_each_rule_is_set_beside_the_method_that_it_speaks_of(llama) -> None:
    assert {one.rule.code: one.method for one in llama.rules} == {
        "eight_bytes": "full",
        "eight_bytes_with_activations": "full",
        "eighteen_bytes": "full",
        "optimizer_four_times": "full",
        "qlora_base": "qlora",
        "quantized_weights": "qlora",
    }
    base = by_code(llama)["qlora_base"]
    assert base.weights_only
    # 4-bit layers at 0.5 to 0.57 bytes each; embeddings and head (262 M) stay in 16 bits
    assert 0.55 < base.our_bytes.likely / 6.74e9 < 0.75


def test_the_table_has_ours_for_every_method(llama) -> None:
    assert llama.row.parameters == 7e9
    cells = {cell.method: cell for cell in llama.table}
    assert cells["qlora"].rule_bytes == (10 * GB, 10 * GB)
    assert (cells["full"].rule_bytes, cells["full"].rule_cards) == ((140 * GB, 160 * GB), 2)
    sizes = [cells[method].our_bytes.likely for method in ("qlora", "lora", "full")]
    assert sizes == sorted(sizes)
    assert cells["full"].our_cards >= 1


def test_the_sayings_about_time_are_computed_for_the_job(llama) -> None:
    found = {one.code: one for one in llama.time}
    # with a frozen base 4 P become 6 P: a third at most
    assert 0.15 < found["checkpointing_fifth"].ours <= 0.34
    # 3.2 x the arithmetic, 1.6 x the bandwidth
    assert 1.5 < found["h100_twice_a100"].ours < 3.2
    assert found["more_cards"].ours >= 1
    assert found["zero3_pcie"].ours > 0
    assert all(str(one.why) for one in llama.time)


def test_six_operations_a_parameter_and_token(llama) -> None:
    # 6 x 6.74e9 x 10,000 x about 1,000 tokens (some are cut at 1,024) x 3 epochs = 1.0e18
    assert llama.flop == pytest.approx(6 * 6_738_415_616 * 3 * 10_000 * 800, rel=0.35)
    assert thumb.petaflop_s_days(llama.flop) < 0.015


def test_the_wrong_rule_for_experts_is_shown_beside_what_the_base_takes() -> None:
    found = rules(
        model="Qwen/Qwen3-235B-A22B", method="lora", training={"dtype": "bfloat16"},
        adapter={"target_modules": ["q_proj", "v_proj"]},
    )  # fmt: skip
    one = by_code(found)["mixture_of_experts_lora"]
    assert one.rule.total_bytes == pytest.approx(30 * GB, rel=0.02)
    (weights,) = [cause for cause in one.causes if cause.bucket == "weights"]
    # 235e9 x 2 B = 470 GB
    assert weights.our_bytes == pytest.approx(470 * GB, rel=0.01)
    # in 4 bits transformers 5 leaves the fused experts as they are: about 460 GB
    base = by_code(found)["qlora_base"]
    assert base.our_bytes.likely == pytest.approx(460 * GB, rel=0.02)
    assert found.time == ()
    assert found.flop is None


def test_a_layout_over_many_cards_is_compared_as_one_card() -> None:
    job = {
        "model": "Qwen/Qwen2.5-0.5B-Instruct", "method": "full",
        "data": {"num_samples": 4000, "mean_tokens": 500},
    }  # fmt: skip
    many = rules(
        **job,
        hardware={"accelerator": "A100 SXM 80GB", "accelerators_per_node": 8},
        parallelism="zero3",
    )
    one = rules(**job, hardware={"accelerator": "A100 SXM 80GB"})
    assert [r.our_bytes.likely for r in many.rules[:4]] == pytest.approx(
        [r.our_bytes.likely for r in one.rules[:4]]
    )


def test_every_term_of_ours_has_a_word(llama) -> None:
    held = buckets(llama.estimate)
    peak = llama.estimate.memory.ranges.peak_bytes.likely
    assert sum(held.values()) == pytest.approx(peak, rel=0.001)
    assert held["other"] < 0.05 * peak


def test_a_method_that_the_job_cannot_have_is_told_by_name() -> None:
    found = rules(model="Qwen/Qwen2.5-0.5B-Instruct", method="qlora", framework="megatron")
    missing = [one for one in found.rules if one.our_bytes is None]
    for one in missing:
        assert str(one.no_answer)
    assert len(found.table) == 3
