"""A configuration to an estimate, findings at the user's own lines, and what would help."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tuneplan.contract.reading import load_job
from tuneplan.errors import InvalidRequest, NotSupported
from tuneplan.formats.foreign import Fate
from tuneplan.planner.changes import changes_of
from tuneplan.planner.changing import with_settings
from tuneplan.planner.check import JobCheck, check_configuration
from tuneplan.planner.estimate import estimate_job, resolve_job
from tuneplan.planner.importing import Configuration, read_configuration
from tuneplan.planner.outcomes import outcome_of
from tuneplan.planner.sources import Sources
from tuneplan.planner.variants import Trying

SOURCES = Sources(today=date(2026, 11, 30))
CHATS = {"num_samples": 20_000, "mean_tokens": 600}
AXOLOTL = """\
base_model: Qwen/Qwen2.5-7B-Instruct
adapter: lora
lora_r: 16
lora_alpha: 32
lora_target_linear: true
datasets:
  - path: our/chats
    type: chat_template
sequence_len: 16384
sample_packing: false
micro_batch_size: 2
gradient_accumulation_steps: 8
num_epochs: 3
optimizer: adamw_torch_fused
learning_rate: 2.0e-4
bf16: true
gradient_checkpointing: true
flash_attention: true
"""
ON_H100 = {"hardware.accelerator": "H100 SXM", "data.num_samples": 20_000, "data.mean_tokens": 600}


def checked(job: dict[str, Any]) -> JobCheck:
    read = Configuration(job=load_job(job), imported=None, files=())
    return check_configuration(read, SOURCES)


@pytest.fixture(name="axolotl")
def of_axolotl(tmp_path: Path) -> Path:
    path = tmp_path / "train.yml"
    path.write_text(AXOLOTL)
    return path


def test_findings_stand_at_the_keys_and_lines_of_the_user_s_file(axolotl: Path) -> None:
    check = check_configuration(read_configuration(axolotl, overrides=ON_H100), SOURCES)
    assert check.configuration.format == "axolotl"
    found = {finding.rule: finding for finding in check.findings}
    origin = check.configuration.origin(found["context_beyond_data"].keys[0])
    assert origin is not None
    assert (origin.path, origin.file, origin.line) == ("sequence_len", str(axolotl), 9)
    assert found["context_beyond_data"].evidence["max_length"] == 16_384


def test_a_data_set_is_asked_for_only_where_nothing_states_it(axolotl: Path) -> None:
    def why(read: Configuration) -> list[str]:
        assert read.imported is not None
        keys = read.imported.with_fate(Fate.NOT_CARRIED)
        return [key.why.code for key in keys if key.path == "datasets" and key.why is not None]

    assert why(read_configuration(axolotl)) == ["data_not_here"]
    assert why(read_configuration(axolotl, overrides=ON_H100)) == ["data_stated"]


@pytest.mark.parametrize(("framework", "split"), [("torchtune", "fsdp2"), ("trl", "zero3")])
def test_more_cards_split_the_weights_as_the_framework_does(framework: str, split: str) -> None:
    job = load_job(
        {
            "model": "Qwen/Qwen2.5-7B",
            "framework": framework,
            "hardware": {"accelerator": "H100 SXM"},
        }
    )
    changes = changes_of(resolve_job(job, SOURCES))
    more = next(one for one in changes if one.name == "cards_8")
    assert more.settings["parallelism.strategy"] == split


def test_one_card_is_not_told_to_keep_whole_weights_on_each() -> None:
    tree = {"model": "Qwen/Qwen2.5-7B", "parallelism": {"strategy": "zero3"}}
    names = [one.name for one in changes_of(resolve_job(load_job(tree), SOURCES))]
    assert "single" in names
    assert "ddp" not in names


def test_a_mistake_that_the_catalogue_finds_stands_in_the_user_s_file_too(axolotl: Path) -> None:
    axolotl.write_text(AXOLOTL.replace("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7C"))
    read = read_configuration(axolotl, overrides=ON_H100)
    with pytest.raises(InvalidRequest) as caught:
        check_configuration(read, SOURCES)
    (mistake,) = caught.value.mistakes
    assert (mistake.path, mistake.file, mistake.line) == ("base_model", str(axolotl), 1)
    assert mistake.near


def test_what_has_no_formula_is_refused_at_the_user_s_own_line(axolotl: Path) -> None:
    axolotl.write_text(AXOLOTL + "context_parallel_size: 2\n")
    flags = {**ON_H100, "hardware.accelerators_per_node": 2}
    with pytest.raises(NotSupported) as caught:
        check_configuration(read_configuration(axolotl, overrides=flags), SOURCES)
    (mistake,) = caught.value.mistakes
    assert (mistake.path, mistake.line) == ("context_parallel_size", 19)


def test_the_version_of_the_command_line_decides_the_defaults(axolotl: Path) -> None:
    old = read_configuration(axolotl, framework="axolotl==0.5.0")
    assert old.job.recipe.framework_version == "0.5.0"


JOBS = [
    {"model": "Qwen/Qwen2.5-1.5B-Instruct", "method": "lora", "data": CHATS,
     "hardware": {"accelerator": "A100 SXM 80GB"}},
    {"model": "Qwen/Qwen2.5-7B-Instruct", "method": "full", "data": CHATS,
     "hardware": {"accelerator": "RTX 4090"}},
    {"model": "Qwen/Qwen2.5-1.5B-Instruct", "method": "qlora",
     "data": CHATS, "training": {"max_steps": 500, "max_length": 2048},
     "hardware": {"accelerator": "L4", "accelerators_per_node": 4}, "goal": "fastest"},
    {"model": "Qwen/Qwen2.5-0.5B-Instruct", "method": "lora"},
]  # fmt: skip


@pytest.mark.parametrize("job", JOBS, ids=["fits", "does not fit", "steps", "no card"])
def test_what_a_change_buys_is_what_the_changed_job_is_estimated_at(job: dict[str, Any]) -> None:
    check = checked(job)
    assert 0 < len(check.best_changes) <= 3
    for best in check.best_changes:
        settings = dict(best.change.settings)
        if "training.max_steps" in check.configuration.job.stated:
            settings["training.max_steps"] = best.outcome.steps
        then = with_settings(check.configuration.job, settings)
        assert outcome_of(estimate_job(then, SOURCES, replays=True)) == best.outcome


def test_where_the_job_fits_the_changes_save_time_and_the_best_comes_first() -> None:
    saved = [one.difference.accelerator_hours or 0.0 for one in checked(JOBS[0]).best_changes]
    assert saved == sorted(saved, reverse=True)
    assert min(saved) > 0


def test_where_it_does_not_fit_the_first_change_makes_it_fit() -> None:
    check = checked(JOBS[1])
    assert check.estimate.memory.fit is not None
    assert check.estimate.memory.fit.verdict == "does_not_fit"
    first = check.best_changes[0]
    assert first.outcome.fits
    assert first.difference.peak_bytes > 0


def test_where_it_does_not_fit_the_smallest_cards_that_hold_it_are_tried() -> None:
    job = load_job(JOBS[1])
    tried = Trying(job, estimate_job(job, SOURCES), SOURCES).all()
    cards = {one.change.name: one.outcome for one in tried if one.change.kind == "larger_card"}
    assert cards
    assert all(outcome.fits and outcome.keeps(0.2) for outcome in cards.values())
    fitting = load_job(JOBS[0])
    tried = Trying(fitting, estimate_job(fitting, SOURCES), SOURCES).all()
    assert "card" not in {one.change.kind for one in tried}


def test_stated_steps_are_changed_so_that_the_same_samples_are_seen() -> None:
    # 500 steps of unpacked rows; a packed row holds several samples, so it takes fewer steps
    packed = [one for one in checked(JOBS[2]).best_changes if one.change.name == "packing"]
    assert packed
    assert (packed[0].outcome.steps or 500) < 500


@pytest.mark.parametrize(
    ("rule", "job"),
    [
        ("no_packing", JOBS[0]),
        ("more_cards", JOBS[0] | {"hardware": {"accelerator": "A100 SXM 80GB",
                                               "accelerators_per_node": 8}}),
        ("single_card_first", JOBS[0] | {"hardware": {"accelerator": "A100 SXM 80GB",
                                                      "accelerators_per_node": 8}}),
        ("bf16_not_native", JOBS[0] | {"hardware": {"accelerator": "T4"},
                                       "training": {"precision": "bf16", "max_length": 512}}),
        ("full_or_adapter", JOBS[1]),
        ("zero2_splits_no_weights", JOBS[0] | {"parallelism": "zero2", "hardware": {
            "accelerator": "A100 SXM 80GB", "accelerators_per_node": 2}}),
        ("checkpointing_with_room", JOBS[0] | {"training": {
            "gradient_checkpointing": True, "packing": True, "max_length": 2048,
            "per_device_train_batch_size": 1, "attn_implementation": "flash_attention_2"}}),
        ("samples_as_tokens", JOBS[0] | {"data": {"num_samples": 20_000, "total_tokens": 20_000}}),
        ("peak_throughput", JOBS[0] | {"limits": {"deadline": "35 min"}}),
        ("evaluation_forgotten", JOBS[0] | {
            "data": CHATS | {"eval_fraction": 0.2}, "training": {"eval_steps": 50}}),
        ("no_headroom", JOBS[0] | {"limits": {"headroom": 0.95}}),
        ("context_beyond_data", JOBS[0] | {"training": {"max_length": 32_768}}),
    ],
)  # fmt: skip
def test_rules_fire_on_real_jobs(rule: str, job: dict[str, Any]) -> None:
    assert rule in {finding.rule for finding in checked(job).findings}


def test_a_job_set_up_well_has_nothing_that_stands_out() -> None:
    job = {
        "model": "Qwen/Qwen2.5-7B-Instruct",
        "method": "lora",
        "adapter": {"r": 32, "target_modules": "all-linear"},
        "data": {"num_samples": 20_000, "mean_tokens": 600},
        "training": {
            "dtype": "bfloat16",
            "packing": True,
            "max_length": 4096,
            "per_device_train_batch_size": 2,
            "gradient_accumulation_steps": 4,
            "gradient_checkpointing": True,
            "attn_implementation": "flash_attention_2",
        },
        "hardware": {"accelerator": "L40S"},
    }
    assert [finding.rule for finding in checked(job).findings] == []


def test_torchtune_which_has_no_autocast_is_told_its_own_way_to_bf16() -> None:
    job = load_job(
        {
            "model": "meta-llama/Llama-3.2-1B",
            "framework": "torchtune",
            "method": "full",
            "training": {"dtype": "float32", "precision": "fp32", "max_length": 1024},
            "hardware": {"accelerator": "A100 SXM 80GB", "accelerators_per_node": 1},
        }
    )
    now = estimate_job(job, SOURCES)
    (bf16,) = (one for one in Trying(job, now, SOURCES).all() if one.change.name == "bf16")
    assert bf16.change.settings == {"training.dtype": "bfloat16", "training.precision": "none"}
    then = estimate_job(with_settings(job, dict(bf16.change.settings)), SOURCES)
    assert then.memory.ranges.needed_bytes.likely < now.memory.ranges.needed_bytes.likely


@pytest.mark.parametrize(
    ("framework", "strategies", "lacks"),
    [
        ("megatron", {"zero1", "ddp"}, {"liger", "qlora", "optimizer_8bit"}),
        ("nemo", {"zero1", "ddp"}, {"liger", "qlora", "optimizer_8bit"}),
        ("torchtune", {"fsdp2"}, {"liger"}),
        ("litgpt", {"fsdp"}, {"liger"}),
    ],
)
def test_only_what_the_framework_can_do_is_tried(
    framework: str, strategies: set[str], lacks: set[str]
) -> None:
    for cards in (1, 4):
        tree = {
            "model": "meta-llama/Meta-Llama-3-8B", "method": "full", "framework": framework,
            "data": CHATS, "hardware": {"accelerator": "A100 SXM", "accelerators_per_node": cards},
        }  # fmt: skip
        changes = changes_of(resolve_job(load_job(tree), SOURCES))
        asked = {one.settings.get("parallelism.strategy") for one in changes}
        assert asked <= strategies | {"single", None}
        assert not lacks & {one.name for one in changes}
        assert "lora" in {one.name for one in changes}


def test_megatron_splits_matrices_over_more_cards_and_keeps_the_batch() -> None:
    tree = {
        "model": "meta-llama/Meta-Llama-3-8B", "method": "full", "framework": "megatron",
        "data": CHATS, "training": {"gradient_accumulation_steps": 4},
        "hardware": {"accelerator": "A100 SXM", "accelerators_per_node": 8},
    }  # fmt: skip
    changes = {one.name: one for one in changes_of(resolve_job(load_job(tree), SOURCES))}
    assert {"zero1", "tensor_2", "tensor_4", "tensor_8"} <= set(changes)
    # 4 micro-batches x 8 replicas = 8 micro-batches x 4 replicas
    settings = changes["tensor_2"].settings
    assert settings["training.gradient_accumulation_steps"] == 8
    assert settings["parallelism.tensor"] == 2


def test_where_it_does_not_fit_what_asks_for_less_comes_first() -> None:
    for job in (JOBS[1], JOBS[1] | {"method": "lora", "training": {
            "per_device_train_batch_size": 4, "max_length": 2048}}):  # fmt: skip
        check = checked(job)
        assert not outcome_of(check.estimate).fits
        prices = [one.change.price for one in check.best_changes if one.outcome.fits]
        assert prices
        assert prices == sorted(prices)
