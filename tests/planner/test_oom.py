"""The doctor on whole jobs: what it says is enough is enough, by an estimate of its own."""

from __future__ import annotations

import functools
import json
from datetime import date
from typing import Any

import pytest

from diagnosis import oom_samples as samples
from tuneplan.contract.reading import load_job
from tuneplan.diagnosis.oom_cause import Cause, FoundCause
from tuneplan.diagnosis.oom_stage import IN_A_STEP, Confidence, FoundStage, Stage
from tuneplan.diagnosis.oom_text import read_log
from tuneplan.estimation.uncertainty import Fit
from tuneplan.frameworks.registry import find_framework
from tuneplan.planner.estimate import estimate_job
from tuneplan.planner.oom import Diagnosis, diagnose_job, diagnose_log
from tuneplan.planner.oom_changes import levers
from tuneplan.planner.oom_ranking import Fix
from tuneplan.planner.oom_situation import Situation, evaluation_of
from tuneplan.planner.recipe_changes import lacking
from tuneplan.planner.sources import Sources
from tuneplan.units import GIB

SOURCES = Sources(today=date(2026, 11, 30))
HEADROOM = 0.2
LORA_8B: dict[str, Any] = {
    "model": "meta-llama/Meta-Llama-3-8B",
    "framework": "trl",
    "method": "lora",
    "training": {
        "dtype": "bfloat16", "precision": "bf16", "max_length": 4096, "padding": "max_length",
        "per_device_train_batch_size": 8, "gradient_checkpointing": False, "loss": "full",
    },
    "hardware": {"accelerator": "NVIDIA GeForce RTX 4090", "accelerators_per_node": 1},
}  # fmt: skip
FULL_7B: dict[str, Any] = {
    "model": "meta-llama/Llama-2-7b-hf",
    "framework": "llamafactory",
    "method": "full",
    "training": {"max_length": 1024, "per_device_train_batch_size": 1, "precision": "bf16"},
    "hardware": {"accelerator": "NVIDIA GeForce RTX 3090", "accelerators_per_node": 8},
    "parallelism": "zero2",
}


def diagnosed(job: dict[str, Any], log: str | None = None, **over: Any) -> Diagnosis:
    return _diagnosed(json.dumps(job), log, json.dumps(over))


@functools.cache
def _diagnosed(job: str, log: str | None, over: str) -> Diagnosis:
    stated = load_job(json.loads(job), overrides=json.loads(over))
    return diagnose_job(stated, SOURCES, log=read_log(log) if log is not None else None)


def fix_named(found: Diagnosis, code: str) -> Fix:
    return next(fix for fix in found.fixes if fix.change.kind == code)


def fit_with(job: dict[str, Any], settings: dict[str, Any]) -> Fit:
    fit = estimate_job(load_job(job, overrides=settings), SOURCES, replays=True).memory.fit
    assert fit is not None
    return fit


@pytest.mark.parametrize("job", [LORA_8B, FULL_7B], ids=["lora", "full"])
def test_whether_a_fix_is_enough_is_what_the_job_file_with_it_says(job: dict[str, Any]) -> None:
    judged = [
        fix
        for fix in diagnosed(job).fixes
        if fix.change.settings and fix.enough_alone is not None and not fix.cannot_help_because
    ]
    assert len(judged) >= 6
    for fix in judged:
        fit = fit_with(job, dict(fix.change.settings))
        assert fix.enough_alone is fit.keeps(HEADROOM), fix.change.kind
        assert fix.fit_after is not None
        assert fix.fit_after.verdict is fit.verdict, fix.change.kind


def test_the_smallest_combination_fits_and_none_of_its_parts_does_alone() -> None:
    found = diagnosed(LORA_8B)
    combination = found.smallest_combination
    assert combination is not None
    assert len(combination.changes) > 1
    settings: dict[str, Any] = {}
    for change in combination.changes:
        settings |= change.settings
    fit = fit_with(LORA_8B, settings)
    assert fit.keeps(HEADROOM)
    assert fit.needed_bytes.likely == pytest.approx(combination.needed_bytes.likely, rel=0.01)
    for change in combination.changes:
        assert not fit_with(LORA_8B, dict(change.settings)).keeps(HEADROOM)


def test_the_combination_leads_the_fixes_and_what_cannot_help_ends_them() -> None:
    found = diagnosed(LORA_8B)
    assert found.smallest_combination is not None
    chosen = {change.kind for change in found.smallest_combination.changes}
    assert {fix.change.kind for fix in found.fixes[: len(chosen)]} == chosen
    hindered = [fix.cannot_help_because is not None for fix in found.fixes]
    assert hindered == sorted(hindered)


def test_a_smaller_micro_batch_keeps_the_batch_in_all() -> None:
    fix = fix_named(diagnosed(LORA_8B), "smaller_batch")
    rows = fix.change.settings["training.per_device_train_batch_size"]
    steps = fix.change.settings["training.gradient_accumulation_steps"]
    assert isinstance(rows, int)
    assert isinstance(steps, int)
    assert rows * steps == 8


def test_zero_3_is_what_zero_2_lacks_in_full_fine_tuning() -> None:
    # ZeRO-2 keeps 2 B x 6.74e9 = 12.6 GiB of weights and a 3.14 GiB gradient partition whole.
    found = diagnosed(FULL_7B)
    assert found.cause.cause is Cause.SHORTAGE
    fix = fix_named(found, "sharding")
    assert fix.change.settings == {"parallelism.strategy": "zero3"}
    assert fix.saves_bytes is not None
    assert fix.saves_bytes.likely > 8 * GIB


@pytest.mark.parametrize(
    ("changes", "code", "why"),
    [
        ({"training.gradient_checkpointing": True}, "checkpointing", "checkpoints_already"),
        ({"training.attn_implementation": "flash_attention_2"}, "flash_attention", "no_scores"),
        ({"training.per_device_train_batch_size": 1}, "smaller_batch", "batch_is_one"),
        ({"method": "qlora"}, "adapter", "quantized_already"),
        ({}, "sharding", "one_card"),
        ({}, "expandable_segments", "no_fragmentation"),
        ({}, "half_weights", "half_already"),
        ({"training.optim": "adafactor"}, "optimizer_8bit", "small_states"),
        ({"training.loss": "chunked"}, "fused_loss", "no_logits"),
    ],
)
def test_a_fix_that_cannot_help_says_why(changes: dict[str, Any], code: str, why: str) -> None:
    job = load_job(LORA_8B, overrides=changes)
    at = Situation(
        job=job,
        now=estimate_job(job, SOURCES),
        sources=SOURCES,
        failure=None,
        stage=FoundStage(stage=Stage.UNKNOWN, confidence=Confidence.NONE),
        cause=FoundCause(cause=Cause.SHORTAGE),
        capacity_bytes=24 * GIB,
    )
    because = next(lever.cannot for lever in levers(at) if lever.kind == code)
    assert because is not None
    assert because.code == why


def test_adapters_have_so_few_states_that_8_bits_save_nothing() -> None:
    because = fix_named(diagnosed(LORA_8B), "optimizer_8bit").cannot_help_because
    assert because is not None
    assert because.code == "saves_nothing"


def test_a_card_that_nothing_helps_is_too_small() -> None:
    # 70.6e9 weights in 4 bits are 33 GiB: no change of the job puts them on one card of 24 GB.
    job = {**LORA_8B, "model": "meta-llama/Meta-Llama-3-70B", "method": "qlora"}
    found = diagnosed(job, **{"training.gradient_checkpointing": True, "parallelism": "zero2"})
    assert found.stage.stage is Stage.LOAD
    offload = fix_named(found, "offload")
    assert found.card_too_small is (found.smallest_combination is None)
    assert offload.enough_alone is not True or not found.card_too_small


def test_a_tiny_card_is_too_small_for_a_large_model() -> None:
    job = {
        "model": "meta-llama/Meta-Llama-3-70B", "method": "qlora",
        "training": {"per_device_train_batch_size": 1, "max_length": 256},
        "hardware": {"accelerator": "NVIDIA T4", "accelerators_per_node": 1},
    }  # fmt: skip
    found = diagnosed(job)
    assert found.card_too_small is True
    assert found.smallest_combination is None


def test_a_log_with_large_pieces_is_cured_by_expandable_segments() -> None:
    training = {
        **LORA_8B["training"],
        "per_device_train_batch_size": 1,
        "gradient_checkpointing": True,
        "max_length": 1024,
    }
    small = {**LORA_8B, "training": training}
    found = diagnosed(small, samples.BEFORE_2_1)
    assert found.cause.cause is Cause.FRAGMENTATION
    first = found.fixes[0]
    assert first.change.kind == "expandable_segments"
    assert first.enough_alone
    assert first.saves_bytes is not None
    assert first.saves_bytes.likely == round(4.25 * GIB)
    assert found.card_too_small is False


def test_without_fragmentation_segments_cannot_help() -> None:
    because = fix_named(diagnosed(LORA_8B, samples.FROM_2_1), "expandable_segments")
    assert because.cannot_help_because is not None


def test_the_need_is_never_less_than_what_the_log_shows() -> None:
    small = {**LORA_8B, "training": {"max_length": 256, "per_device_train_batch_size": 1,
                                     "dtype": "bfloat16"}}  # fmt: skip
    found = diagnosed(small, samples.FROM_2_1)
    # 32.5 GiB allocated + 2 GiB asked for + 33.7 - 33.2 GiB outside the allocator.
    assert found.needed_bytes is not None
    assert found.needed_bytes.likely >= 34.5 * GIB
    assert "more_than_estimated" in {notice.message.code for notice in found.notices}


def test_the_capacity_of_the_log_goes_before_that_of_the_card_and_is_told() -> None:
    found = diagnosed(LORA_8B, samples.FROM_2_1)
    assert found.capacity_bytes == round(39.39 * GIB)
    assert "other_card" in {notice.message.code for notice in found.notices}


def test_other_processes_on_the_card_are_a_fix_of_their_own() -> None:
    fix = fix_named(diagnosed(LORA_8B, samples.FROM_2_1), "stop_others")
    assert fix.saves_bytes is not None
    assert fix.saves_bytes.likely == 5 * GIB


def test_an_estimate_that_fits_and_a_log_without_figures_promise_nothing() -> None:
    small = {**LORA_8B, "training": {"max_length": 256, "per_device_train_batch_size": 1,
                                     "dtype": "bfloat16"}}  # fmt: skip
    found = diagnosed(small, "CUDA out of memory.")
    assert found.card_too_small is None
    assert found.smallest_combination is None
    assert all(not fix.enough_alone for fix in found.fixes)
    assert "fits_but_failed" in {notice.message.code for notice in found.notices}


def test_in_an_evaluation_its_batch_comes_first() -> None:
    training = {
        **LORA_8B["training"],
        "per_device_train_batch_size": 1,
        "gradient_checkpointing": True,
        "max_length": 1024,
        "per_device_eval_batch_size": 16,
    }
    job = {**LORA_8B, "training": training}
    found = diagnosed(job, samples.traceback_of("eval", "CUDA out of memory."))
    assert found.stage.stage is Stage.EVALUATION
    assert found.fixes[0].change.kind == "eval_batch"
    assert found.smallest_combination is not None
    assert [change.kind for change in found.smallest_combination.changes] == ["eval_batch"]


def test_outside_an_evaluation_its_batch_cannot_help() -> None:
    found = diagnosed(LORA_8B, samples.traceback_of("first_forward"))
    assert fix_named(found, "eval_batch").cannot_help_because is not None


def test_an_evaluation_grows_with_its_batch_by_the_logits_in_fp32_at_least() -> None:
    def batch_bytes(rows: int) -> float:
        over = {"training.per_device_eval_batch_size": rows}
        return evaluation_of(
            estimate_job(load_job(LORA_8B, overrides=over), SOURCES).resolved
        ).batch_bytes

    # A sequence more: 4096 x 128256 x 4 B = 2.1e9 B of fp32 logits.
    assert batch_bytes(3) - batch_bytes(2) >= 4096 * 128_256 * 4


def test_where_main_memory_ran_out_the_card_s_fixes_cannot_help() -> None:
    found = diagnosed(FULL_7B, samples.traceback_of("save", samples.HOST[7]))
    assert found.cause.cause is Cause.HOST
    assert found.fixes[0].change.kind == "sharded_checkpoints"
    because = fix_named(found, "smaller_batch").cannot_help_because
    assert because is not None
    assert because.code == "host_ran_out"


def test_a_rank_that_loads_the_whole_model_can_load_in_shards() -> None:
    job = {**FULL_7B, "parallelism": "zero3", "model": "Qwen/Qwen2.5-14B"}
    found = diagnosed(job, samples.traceback_of("load"))
    fix = fix_named(found, "sharded_loading")
    # 14.77e9 x 2 B x 7/8 = 24 GiB that seven other ranks hold.
    assert fix.saves_bytes is not None
    assert fix.saves_bytes.likely == pytest.approx(24.1 * GIB, rel=0.01)


def test_a_request_that_only_the_optimizer_makes_tells_the_stage() -> None:
    # 6,738,415,616 x 4 B / 8 = 3.14 GiB; all states are there: 12.6 + 3.1 + 6.3 = 22 GiB < 30.
    text = (
        "CUDA out of memory. Tried to allocate 3.14 GiB (GPU 0; 31.75 GiB total capacity; 30.00 "
        "GiB already allocated; 1.00 GiB free; 30.10 GiB reserved in total by PyTorch)"
    )
    found = diagnosed(FULL_7B, text)
    assert found.matches[0].tensor.kind == "optimizer_partition_fp32"
    assert found.matches[0].exact
    assert (found.stage.stage, found.stage.confidence) == (
        Stage.OPTIMIZER_STEP, Confidence.MEDIUM,
    )  # fmt: skip


def test_without_a_log_the_first_moment_that_does_not_fit_is_the_stage() -> None:
    found = diagnosed(LORA_8B)
    assert found.stage.confidence is Confidence.LOW
    assert found.stage.stage is Stage.FIRST_FORWARD


def test_a_job_that_fits_has_no_cause_and_says_so() -> None:
    found = diagnosed(LORA_8B, **{"hardware.accelerator": "NVIDIA H200 SXM",
                                  "training.per_device_train_batch_size": 1})  # fmt: skip
    assert found.cause.cause is None
    assert found.card_too_small is False
    assert "fits_by_estimate" in {notice.message.code for notice in found.notices}


def test_a_log_alone_tells_stage_cause_and_figures_but_no_savings() -> None:
    found = diagnose_log(read_log(samples.traceback_of("first_forward")))
    assert found.stage.stage is Stage.FIRST_FORWARD
    assert found.cause.cause is Cause.FRAGMENTATION
    assert found.capacity_bytes == round(23.69 * GIB)
    assert found.fixes[0].change.kind == "expandable_segments"
    assert all(fix.time_fraction is None for fix in found.fixes)
    assert "no_job" in {notice.message.code for notice in found.notices}


def test_a_log_alone_leaves_out_what_its_stage_excludes() -> None:
    found = diagnose_log(read_log(samples.traceback_of("optimizer_step", samples.FROM_2_1)))
    because = {fix.change.kind: fix.cannot_help_because for fix in found.fixes}
    assert because["checkpointing"] is not None
    assert because["optimizer_8bit"] is None


def test_a_log_without_a_word_of_memory_says_so() -> None:
    found = diagnose_log(read_log("KeyError: 'labels'"))
    assert found.fixes == ()
    assert found.cause.cause is None
    assert "nothing_in_log" in {notice.message.code for notice in found.notices}


QLORA_70B: dict[str, Any] = {
    "model": "meta-llama/Meta-Llama-3-70B",
    "framework": "axolotl",
    "date": "2024-06",
    "method": "qlora",
    "training": {"per_device_train_batch_size": 1, "max_length": 1024},
    "hardware": {"accelerator": "NVIDIA GeForce RTX 3090", "accelerators_per_node": 4},
    "parallelism": "zero3",
    # Scales are not shared: 68.5e9 / 64 x 4 B = 4 GiB a card, quantised themselves 1 GiB.
    "quantization": {"double_quant": True},
    "limits": {"headroom": 0.1},
}


def test_a_quantised_model_under_zero_3_is_loaded_whole_and_fsdp_cures_it() -> None:
    # 70.6e9 weights: 68.5e9 in layers x 0.5 B + scales + 2.1e9 in bf16 = 36 GiB on every card.
    found = diagnosed(QLORA_70B, **{"training.gradient_checkpointing": True})
    assert found.stage.stage is Stage.LOAD
    assert found.fixes[0].change.settings == {"parallelism.strategy": "fsdp"}
    assert found.fixes[0].cannot_help_because is None
    assert found.card_too_small is False


def test_what_helps_only_with_another_change_is_found_too() -> None:
    # Loading and training are both too large: each cure alone saves nothing at the other.
    found = diagnosed(QLORA_70B, **{"training.gradient_checkpointing": False})
    assert found.smallest_combination is not None
    codes = {change.kind for change in found.smallest_combination.changes}
    assert {"sharded_loading", "checkpointing"} <= codes
    assert all(fix.cannot_help_because is None for fix in found.fixes[: len(codes)])


def test_less_offload_helps_main_memory_only_where_the_card_has_room() -> None:
    job = {**FULL_7B, "parallelism": {"strategy": "zero3", "offload": "params"}}
    killed = samples.traceback_of("load", samples.HOST[7])
    tight = diagnosed(job, killed)
    levels = [fix for fix in tight.fixes if fix.change.kind == "less_offload"]
    wide = diagnosed(job, killed, **{"hardware.accelerator": "NVIDIA H200 SXM"})
    roomy = [fix for fix in wide.fixes if fix.change.kind == "less_offload"]
    assert [fix.change.settings["parallelism.offload"] for fix in roomy] == ["optimizer", "none"]
    assert all(fix.cannot_help_because is None for fix in roomy)
    assert all(fix.saves_bytes and fix.saves_bytes.likely > 10 * GIB for fix in roomy)
    for fix in levels:
        changed = load_job(job, overrides=dict(fix.change.settings))
        need = estimate_job(changed, SOURCES).memory.ranges.needed_bytes.likely
        hindered = fix.cannot_help_because is not None
        assert hindered is (need > (1 - HEADROOM) * tight.capacity_bytes)
    assert fix_named(wide, "nvme_offload").time_fraction is None


def test_logits_of_a_shorter_batch_are_a_guess_that_says_so() -> None:
    # 4006 tokens x 128256 x 2 B = 979.98 MiB, in steps of 2 MiB 980.
    text = samples.traceback_of(
        "first_forward", "CUDA out of memory. Tried to allocate 980.00 MiB."
    )
    job = {**LORA_8B, "data": {"num_samples": 1000, "mean_tokens": 500},
           "training": {"max_length": 2048, "per_device_train_batch_size": 4,
                        "loss": "full"}}  # fmt: skip
    (guess,) = diagnosed(job, text).matches
    assert guess.tensor.kind == "perhaps_logits"
    assert guess.tensor.formula in ("4006 x 128256 x 2 B", "2003 x 128256 x 4 B")
    assert str(guess.tensor.name).startswith("perhaps")
    packed = {**job, "training": {**job["training"], "padding": "max_length"}}
    assert diagnosed(packed, text).matches == ()
    chunked = {**job, "training": {**job["training"], "loss": "chunked"}}
    assert diagnosed(chunked, text).matches == ()
    step = samples.traceback_of("optimizer_step", "CUDA out of memory. Tried to allocate 980 MiB.")
    assert diagnosed(job, step).matches == ()


def test_a_training_step_in_the_traceback_rules_out_loading_and_evaluation() -> None:
    frames = (
        '  File "/env/transformers/trainer.py", line 3698, in training_step\n'
        '  File "/env/torch/nn/modules/module.py", line 1751, in _call_impl\n'
    )
    said = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.83 GiB."
    job = load_job(
        {
            "model": "Llama-3.1-8B",
            "method": "full",
            "framework": "trl",
            "data": {"num_samples": 20_000, "mean_tokens": 900},
            "training": {"max_length": 4096, "per_device_train_batch_size": 4},
            "hardware": {"accelerator": "A100 SXM 80GB", "accelerators_per_node": 1},
        }
    )
    # 8 x 4096 x 128256 x 2 B: the logits of an evaluation batch, and this job's training makes none
    alone = diagnose_job(job, SOURCES, log=read_log(said)).stage.stage
    shown = diagnose_job(
        job, SOURCES, log=read_log(f"Traceback (most recent call last):\n{frames}{said}")
    ).stage.stage
    assert alone is Stage.EVALUATION
    assert shown in IN_A_STEP


def test_more_cards_keep_the_batch_or_say_that_it_grows() -> None:
    accumulating = diagnosed(FULL_7B, **{"training.gradient_accumulation_steps": 8})
    fix = fix_named(accumulating, "more_cards")
    times = fix.change.settings["hardware.num_nodes"]
    assert fix.change.settings["training.gradient_accumulation_steps"] * times == 8
    fix = fix_named(diagnosed(FULL_7B, **{"training.gradient_accumulation_steps": 1}), "more_cards")
    assert fix.change.message.code == "change_count_grown"


def test_more_cards_than_a_stated_batch_can_be_split_over_are_no_fix() -> None:
    found = diagnosed(FULL_7B, **{"training.global_batch_size": 8})
    assert "more_cards" not in {fix.change.kind for fix in found.fixes}


@pytest.mark.parametrize("framework", ["megatron", "nemo", "torchtune", "litgpt"])
@pytest.mark.parametrize("cards", [1, 8])
def test_no_fix_asks_for_what_the_framework_cannot_do(framework: str, cards: int) -> None:
    changes = {"framework": framework, "hardware.accelerators_per_node": cards}
    found = diagnosed({**FULL_7B, "data": {"num_samples": 1000, "mean_tokens": 800}}, **changes)
    can = {one.value for one in find_framework(framework).strategies} | {"single"}
    for fix in found.fixes:
        if fix.cannot_help_because is None:
            assert fix.change.settings.get("parallelism.strategy", "single") in can
            assert lacking(framework, fix.change) is None


def test_a_larger_card_is_enough_where_check_says_that_it_fits() -> None:
    # 35 GiB allocated: by a usual ratio of fragments a card of 48 GB keeps 20 % free, in a replay
    # of the allocator it does not.
    job = {
        "model": "meta-llama/Meta-Llama-3-8B", "method": "lora",
        "data": {"num_samples": 20_000, "mean_tokens": 600},
        "training": {"max_length": 2048, "per_device_train_batch_size": 4},
        "hardware": {"accelerator": "RTX 4090"},
    }  # fmt: skip
    found = diagnose_job(load_job(job), SOURCES)
    card = fix_named(found, "larger_card")
    fit = fit_with(job, dict(card.change.settings))
    assert card.enough_alone is True
    assert card.fit_after is not None
    assert (card.fit_after.verdict, card.enough_alone) == (fit.verdict, fit.keeps(HEADROOM))
    too_small = fit_with(job, {"hardware.accelerator": "NVIDIA RTX A6000"})
    assert not too_small.keeps(HEADROOM)
    assert found.needed_bytes == fit_with(job, {}).needed_bytes
