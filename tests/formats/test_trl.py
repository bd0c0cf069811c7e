"""TRL's configurations and launch lines say their job, and every key of them has a fate."""

import pytest

from tuneplan.errors import InvalidRequest
from tuneplan.formats import trl
from tuneplan.formats.foreign import Fate
from tuneplan.formats.reading import companions_of, no_companions, parse_foreign, read_foreign

SFT = """\
model_name_or_path: acme/Base-8B
torch_dtype: bfloat16
attn_implementation: kernels-community/flash-attn2
dataset_name: acme/chats
dataset_num_proc: 8
use_peft: true
load_in_4bit: true
bnb_4bit_quant_type: fp4
use_bnb_nested_quant: true
lora_r: 64
lora_alpha: 16
lora_target_modules: [q_proj, v_proj]
lora_modules_to_save: [lm_head]
max_length: 4096
packing: true
bf16: true
gradient_checkpointing: true
gradient_checkpointing_kwargs: {use_reentrant: false}
eval_strategy: 'no'
save_steps: 0.2
max_steps: -1
num_train_epochs: 3
learning_rate: 2.0e-5
report_to: [wandb]
"""


def load(text, name="config.yaml", version=None):
    document = parse_foreign(text, name=name)
    assert trl.recognise(document) > 0.4
    return trl.load(document, companion=no_companions, version=version)


def test_a_qlora_recipe_in_the_words_of_a_job():
    found = load(SFT, version="0.19.0")
    assert found.job == {
        "framework": "trl==0.19.0",
        "model": "acme/Base-8B",
        "objective": "sft",
        "method": "qlora",
        "quantization": {"bits": 4, "type": "fp4", "double_quant": True},
        "adapter": {
            "r": 64,
            "lora_alpha": 16.0,
            "target_modules": ["q_proj", "v_proj"],
            "modules_to_save": ["lm_head"],
        },
        "training": {
            "dtype": "bfloat16",
            "attn_implementation": "flash_attention_2",
            "max_length": 4096,
            "packing": True,
            "precision": "bf16",
            "gradient_checkpointing": True,
            "use_reentrant": False,
            "eval_strategy": "no",
            "save_steps": 0.2,
            "num_train_epochs": 3.0,
        },
    }
    assert not found.with_fate(Fate.NOT_UNDERSTOOD)
    assert [key.path for key in found.with_fate(Fate.NOT_CARRIED)] == ["dataset_name"]


BASE = "model_name_or_path: a/b\ndataset_name: c/d\nbf16: true\n"


@pytest.mark.parametrize(
    ("lines", "name", "objective"),
    [
        ("", "config.yaml", "sft"),
        ("beta: 0.1", "config.yaml", "dpo"),
        ("max_prompt_length: 512", "recipes/orpo/config.yaml", "orpo"),
        ("desirable_weight: 1.0", "config.yaml", "kto"),
        ("center_rewards_coefficient: 0.01", "config.yaml", "rm"),
        ("num_generations: 8", "config.yaml", "grpo"),
    ],
)
def test_the_trainer_is_told_by_the_keys_that_it_alone_has(lines, name, objective):
    assert load(BASE + lines, name=name).job["objective"] == objective


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("padding_free: true", {"padding": "none"}),
        ("group_by_length: true", {"padding": "grouped"}),
        ("train_sampling_strategy: group_by_length", {"padding": "grouped"}),
        ("loss_type: chunked_nll", {"loss": "chunked"}),
        ("activation_offloading: true", {"gradient_checkpointing": "offload"}),
        ("use_liger: true\nmax_steps: 50", {"use_liger_kernel": True, "max_steps": 50}),
        ("optim: paged_adamw_8bit\neval_steps: 50", {"optim": "paged_adamw_8bit"}),
        ("torch_compile_backend: inductor", {"torch_compile": True}),
        ("save_strategy: epoch\nsave_steps: 10", {"save_strategy": "epoch"}),
    ],
)
def test_switches(lines, says):
    assert load(BASE + lines).job["training"] == {"precision": "bf16", **says}


def test_adapter_settings_without_their_switch_train_the_whole_model_and_are_told():
    found = load(BASE + "lora_r: 8")
    assert (found.job["method"], "adapter" in found.job) == ("full", False)
    assert [notice.message.code for notice in found.notices] == ["adapter_not_switched_on"]


def test_evaluation_by_steps_follows_logging_steps_where_it_names_none():
    found = load(BASE + "eval_strategy: steps\nlogging_steps: 25")
    assert found.job["training"]["eval_steps"] == 25
    assert found.places["training.eval_steps"] == ("config.yaml", 5)


def test_a_flag_that_is_on_by_default_is_switched_off_by_its_negation():
    found = load(
        "trl sft --model_name_or_path a/b --dataset_name c/d --no_gradient_checkpointing",
        name="run.sh",
    )
    assert found.job["training"] == {"gradient_checkpointing": False}
    assert not found.with_fate(Fate.NOT_UNDERSTOOD)


def test_an_argument_of_older_releases_asks_for_the_version():
    found = load(BASE + "evaluation_strategy: epoch")
    assert found.job["training"]["eval_strategy"] == "epoch"
    assert [notice.message.code for notice in found.notices] == ["argument_of_old"]


def test_a_length_of_null_is_no_blank():
    found = load(BASE + "max_length: null")
    assert [notice.message.code for notice in found.notices] == ["nothing_cut"]


@pytest.mark.parametrize(
    ("line", "near"),
    [
        ("torch_dtype: bflaot16", "bfloat16"),
        ("attn_implementation: flash_atention_2", "flash_attention_2"),
        ("optim: adamw_torch_fusd", "adamw_torch_fused"),
        ("save_strategy: step", "steps"),
        ("lr_scheduler_type: cosinus", "cosine"),
        ("bnb_4bit_quant_type: nf5\nload_in_4bit: true\nuse_peft: true", "nf4"),
        ("packing_strategy: bdf", "bfd"),
        ("loss_type: chunked_nl", "chunked_nll"),
    ],
)
def test_an_unknown_word_names_the_nearest(line, near):
    with pytest.raises(InvalidRequest) as raised:
        load(BASE + line)
    (mistake,) = raised.value.mistakes
    assert (mistake.near[0], mistake.line) == (near, 4)


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("fp16: true", "both true"),
        ("load_in_4bit: true\nload_in_8bit: true\nuse_peft: true", "both true"),
        ("load_in_4bit: true", "by adapters only"),
        ("deepspeed: zero3.json\nfsdp: full_shard", "cannot both shard"),
        ("fsdp: full_shart", "fsdp lists"),
        ("per_device_train_batch_size: 0", "at least 1"),
        ("per_device_train_batch_size: many", "expects a number"),
        ("bf16: perhaps", "expects true or false"),
        ("save_steps: 1.5", "whole number of steps"),
        ("num_train_epochs: 0", "trains nothing"),
    ],
)
def test_contradictions_and_impossible_values_are_refused(lines, says):
    with pytest.raises(InvalidRequest, match=says):
        load(BASE + lines)


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("fsdp: full_shard auto_wrap offload", {"strategy": "fsdp", "offload": "params"}),
        ("fsdp: true\nfsdp_config: {reshard_after_forward: true}", {"strategy": "fsdp2"}),
        ("fsdp: true\nfsdp_config: {version: 1, fsdp_offload_params: true}",
         {"strategy": "fsdp", "offload": "params"}),
        ("fsdp: ''\nfsdp_config: {version: 2}", None),
        ("deepspeed: {zero_optimization: {stage: 2}, fp16: {enabled: auto}}",
         {"strategy": "zero2"}),
        ("deepspeed: some/ds_z3_offload_config.json", {"strategy": "zero3", "offload": "params"}),
    ],
)  # fmt: skip
def test_sharding(lines, says):
    assert load(BASE + lines).job.get("parallelism") == says


@pytest.mark.parametrize("name", ["trust_remote_code", "auto_map"])
def test_remote_code_is_told_and_never_run(name):
    value = "true" if name == "trust_remote_code" else "{AutoModel: modeling_x.Model}"
    found = load(f"{BASE}{name}: {value}")
    assert [notice.message.code for notice in found.notices] == ["remote_code"]
    assert found.notices[0].line == 4


def test_a_launch_line_with_two_files_is_read_as_one_job(tmp_path):
    (tmp_path / "zero3.yaml").write_text(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_machines: 2\n"
        "num_processes: 16\nmixed_precision: bf16\ndeepspeed_config: {zero_stage: 3,"
        " offload_optimizer_device: none, gradient_accumulation_steps: 1}\n"
    )
    (tmp_path / "dpo.yaml").write_text(BASE + "beta: 0.1\ngradient_accumulation_steps: 4\n")
    script = tmp_path / "run.sh"
    script.write_text(
        "accelerate launch --config_file zero3.yaml --num_processes 8 scripts/run_dpo.py \\\n"
        "  dpo.yaml --load_in_4bit=false\n"
    )
    document = read_foreign(script)
    assert trl.recognise(document) > 0.5
    found = trl.load(document, companion=companions_of(script), version=None)
    assert found.job["hardware"] == {"num_nodes": 2, "accelerators_per_node": 8} or (
        found.job["hardware"] == {"accelerators_per_node": 8, "num_nodes": 2}
    )
    assert found.job["parallelism"] == {"strategy": "zero3"}
    assert found.job["objective"] == "dpo"
    assert found.job["training"]["gradient_accumulation_steps"] == 4
    assert "engine_differs" in [notice.message.code for notice in found.notices]
    assert not found.with_fate(Fate.NOT_UNDERSTOOD)
    names = [str(tmp_path / name) for name in ("run.sh", "dpo.yaml", "zero3.yaml")]
    assert list(found.files) == names


def test_files_that_contradict_each_other_are_refused_with_both_places(tmp_path):
    (tmp_path / "fsdp.yaml").write_text(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nmixed_precision: fp16\n"
        "fsdp_config: {fsdp_version: 2}\n"
    )
    (tmp_path / "sft.yaml").write_text(BASE + "deepspeed: {zero_optimization: {stage: 3}}\n")
    script = tmp_path / "run.sh"
    script.write_text("accelerate launch --config_file fsdp.yaml sft.py --config sft.yaml\n")
    with pytest.raises(InvalidRequest) as raised:
        trl.load(read_foreign(script), companion=companions_of(script), version=None)
    found = {mistake.path: str(mistake.message) for mistake in raised.value.mistakes}
    assert set(found) == {"mixed_precision", "fsdp_config.fsdp_version"}
    assert "sft.yaml (line 3)" in found["mixed_precision"]
    assert "sft.yaml (line 4)" in found["fsdp_config.fsdp_version"]


def test_the_command_line_hands_its_options_to_accelerate():
    found = load(
        "trl dpo --model_name_or_path a/b --dataset_name c/d --num_processes 4 "
        "--accelerate_config zero2",
        name="run.sh",
    )
    assert found.job["objective"] == "dpo"
    assert found.job["hardware"] == {"accelerators_per_node": 4}
    assert found.job["parallelism"] == {"strategy": "zero2"}
    assert not found.with_fate(Fate.NOT_UNDERSTOOD)
