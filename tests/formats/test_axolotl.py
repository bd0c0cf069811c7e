"""Axolotl's YAML."""

from __future__ import annotations

import pytest

from foreign_documents import document, fate, loaded, not_understood, said
from tuneplan.contract.reading import load_job
from tuneplan.errors import InvalidRequest
from tuneplan.formats.foreign import Fate
from tuneplan.formats.registry import format_named, recognised

QLORA = """
    base_model: meta-llama/Llama-3.1-8B
    load_in_4bit: true
    adapter: qlora
    lora_r: 24
    lora_alpha: 48
    lora_dropout: 0.1
    lora_target_linear: true
    datasets:
      - path: someone/chats
        type: chat_template
    val_set_size: 0.03
    sequence_len: 3072
    sample_packing: true
    pad_to_sequence_len: true
    micro_batch_size: 3
    gradient_accumulation_steps: 5
    num_epochs: 2
    optimizer: paged_adamw_8bit
    lr_scheduler: cosine
    learning_rate: 1.5e-4
    bf16: auto
    tf32: false
    gradient_checkpointing: true
    gradient_checkpointing_kwargs:
      use_reentrant: false
    attn_implementation: flash_attention_2
    evals_per_epoch: 4
    saves_per_epoch: 1
    wandb_project: chats
    special_tokens:
      pad_token: <|end_of_text|>
"""


def with_lines(*lines: str) -> str:
    return "\n".join(["base_model: Qwen/Qwen2.5-7B", "sequence_len: 1024", *lines])


def axolotl(*lines: str):
    return loaded("axolotl", with_lines(*lines))


def test_a_qlora_file_becomes_a_job_of_the_same_settings() -> None:
    found = loaded("axolotl", QLORA)
    assert found.job == {
        "framework": "axolotl",
        "model": "meta-llama/Llama-3.1-8B",
        "method": "qlora",
        "quantization": {"bits": 4},
        "adapter": {
            "r": 24,
            "lora_alpha": 48.0,
            "lora_dropout": 0.1,
            "target_modules": "all-linear",
        },
        "data": {"eval_fraction": 0.03},
        "training": {
            "max_length": 3072,
            "packing": True,
            "per_device_train_batch_size": 3,
            "gradient_accumulation_steps": 5,
            "num_train_epochs": 2.0,
            "optim": "paged_adamw_8bit",
            "gradient_checkpointing": True,
            "use_reentrant": False,
            "attn_implementation": "flash_attention_2",
            "eval_steps": 1 / 8,  # 4 times in each of 2 epochs
            "save_steps": 1 / 2,
        },
    }
    assert load_job(found.job).recipe.framework == "axolotl"
    assert fate(found, "datasets") is Fate.NOT_CARRIED
    assert not not_understood(found)


def test_it_is_recognised() -> None:
    assert recognised(document(QLORA))[0] == "axolotl"


def test_every_carried_key_knows_its_line() -> None:
    found = loaded("axolotl", QLORA)
    assert found.places["training.max_length"] == ("train.yaml", 13)


@pytest.mark.parametrize(
    ("lines", "method", "bits"),
    [
        ((), "full", None),
        (("adapter:",), "full", None),
        (("adapter: lora",), "lora", None),
        (("adapter: lora", "load_in_8bit: true"), "qlora", 8),
        (("adapter: lora", "load_in_4bit: true"), "qlora", 4),
        (("adapter: qlora", "load_in_4bit: true"), "qlora", 4),
        (("adapter: lora", "gptq: true"), "gptq-lora", None),
    ],
)
def test_the_method_follows_from_adapter_and_bits(lines, method, bits) -> None:
    found = axolotl(*lines)
    assert (said(found, "method"), said(found, "quantization.bits")) == (method, bits)


@pytest.mark.parametrize(
    ("lines", "precision", "dtype"),
    [
        (("bf16: auto",), None, None),
        (("bf16: true",), "bf16", "bfloat16"),
        (("bf16: false", "fp16: true"), "fp16", "float16"),
        (("bfloat16: true", "bf16: false"), "none", "bfloat16"),
        (("bf16: false", "fp16: false"), "fp32", "float32"),
        (("bf16: false", "tf32: true"), "tf32", "float32"),
    ],
)
def test_types_follow_resolve_dtype(lines, precision, dtype) -> None:
    found = axolotl(*lines)
    assert said(found, "training.precision") == precision
    assert said(found, "training.dtype") == dtype


@pytest.mark.parametrize(
    ("lines", "key", "value"),
    [
        (("pad_to_sequence_len: true",), "training.padding", "max_length"),
        (("group_by_length: true",), "training.padding", "grouped"),
        (("batch_flattening: true",), "training.padding", "none"),
        (("gradient_checkpointing: offload",), "training.gradient_checkpointing", "offload"),
        (
            ("gradient_checkpointing: true", "activation_offloading: legacy"),
            "training.gradient_checkpointing",
            "offload",
        ),
        (("flash_attention: true",), "training.attn_implementation", "flash_attention_2"),
        (
            ("attn_implementation: kernels-community/vllm-flash-attn3",),
            "training.attn_implementation",
            "flash_attention_3",
        ),
        (
            ("plugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]",),
            "training.loss",
            "fused",
        ),
        (
            ("liger_rms_norm: true", "liger_fused_linear_cross_entropy: true"),
            "training.use_liger_kernel",
            True,
        ),
        (("rl: ipo",), "objective", "dpo"),
        (("reward_model: true",), "objective", "rm"),
        (("batch_size: 32", "micro_batch_size: 4"), "training.gradient_accumulation_steps", 8),
        (("adapter: lora", "lora_mlp_kernel: false"), "adapter.fused_kernels", False),
        (("saves_per_epoch: 1", "num_epochs: 1"), "training.save_strategy", "epoch"),
        (("eval_steps: 50",), "training.eval_steps", 50.0),
    ],
)
def test_a_key_means(lines, key, value) -> None:
    assert said(axolotl(*lines), key) == value


def test_without_held_out_rows_nothing_is_evaluated() -> None:
    found = axolotl("val_set_size: 0", "evals_per_epoch: 4")
    assert said(found, "training.eval_steps") is None
    assert fate(found, "evals_per_epoch") is Fate.IRRELEVANT


def test_held_out_rows_are_looked_at_after_each_epoch_where_no_key_says_when() -> None:
    assert said(axolotl("val_set_size: 0.05"), "training.eval_strategy") == "epoch"
    assert said(axolotl("val_set_size: 0.05", "eval_steps: 50"), "training.eval_strategy") is None
    assert said(axolotl("num_epochs: 3"), "training.eval_strategy") is None


@pytest.mark.parametrize(
    ("lines", "strategy", "offload"),
    [
        (("deepspeed: deepspeed_configs/zero2.json",), "zero2", None),
        (("deepspeed: deepspeed_configs/zero3_bf16_cpuoffload_all.json",), "zero3", "params"),
        (("fsdp: [full_shard, auto_wrap]",), "fsdp", None),
        (("fsdp_version: 2", "fsdp_config: {offload_params: true}"), "fsdp2", "params"),
        (("fsdp_config: {fsdp_version: 2, fsdp_offload_params: false}",), "fsdp2", None),
        (("fsdp_config: {sharding_strategy: HYBRID_SHARD}",), "hsdp", None),
    ],
)
def test_who_holds_what(lines, strategy, offload) -> None:
    found = axolotl(*lines)
    assert said(found, "parallelism.strategy") == strategy
    assert said(found, "parallelism.offload") == offload


def test_the_axes_of_the_mesh_tell_the_number_of_cards() -> None:
    found = axolotl(
        "fsdp_version: 2",
        "fsdp_config: {offload_params: false}",
        "dp_shard_size: 2",
        "dp_replicate_size: 2",
        "tensor_parallel_size: 2",
    )
    assert said(found, "hardware.accelerators_per_node") == 8
    assert said(found, "parallelism.strategy") == "hsdp"
    assert said(found, "parallelism.tensor") == 2


def test_a_pattern_of_modules_becomes_names() -> None:
    pattern = r"lora_target_modules: 'model.layers.[\d]+.(mlp|self_attn).(up|down|q|v)_proj'"
    found = axolotl("adapter: lora", pattern)
    assert said(found, "adapter.target_modules") == ["q_proj", "v_proj", "up_proj", "down_proj"]
    assert [notice.path for notice in found.notices] == ["lora_target_modules"]


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("rl: ebft", "rl"),
        ("process_reward_model: true", "process_reward_model"),
        ("lisa_n_layers: 4", "lisa_n_layers"),
        ("layer_offloading: true", "layer_offloading"),
        (r"unfrozen_parameters: ['model.layers.3[0-9].*']", "unfrozen_parameters"),
        ("model_quantization_config: FineGrainedFP8Config", "model_quantization_config"),
    ],
)
def test_what_has_no_formula_is_refused_by_name_and_read_all_the_same(line, path) -> None:
    found = axolotl(line)
    assert [(refusal.path, refusal.line) for refusal in found.refusals] == [(path, 3)]
    assert said(found, "model") == "Qwen/Qwen2.5-7B"


def test_all_mistakes_come_at_once_with_lines_and_near_matches() -> None:
    with pytest.raises(InvalidRequest) as raised:
        axolotl(
            "adapter: qlorra",
            "rl: dpoo",
            "bf16: perhaps",
            "micro_batch_size: two",
            "optimizer: adamw_bnb_8bitt",
            "attn_implementation: flash_atention_2",
        )
    found = {mistake.path: (mistake.line, mistake.near) for mistake in raised.value.mistakes}
    assert found == {
        "rl": (4, ("dpo", "gdpo", "ipo")),
        "adapter": (3, ("qlora", "lora", "mora")),
        "micro_batch_size": (6, ()),
        "bf16": (5, ()),
        "optimizer": (7, ("adamw_bnb_8bit", "adamw_8bit", "ao_adamw_8bit")),
        "attn_implementation": (8, ("flash_attention_2", "flash_attention_3", "flex_attention")),
    }


@pytest.mark.parametrize(
    ("lines", "path"),
    [
        (("bf16: true", "fp16: true"), "fp16"),
        (("adapter: qlora", "load_in_4bit: false"), "adapter"),
        (("load_in_4bit: true",), "load_in_4bit"),
        (("deepspeed: zero2.json", "fsdp: [full_shard]"), "deepspeed"),
    ],
)
def test_contradictions_are_refused(lines, path) -> None:
    with pytest.raises(InvalidRequest) as raised:
        axolotl(*lines)
    assert path in [mistake.path for mistake in raised.value.mistakes]


def test_remote_code_is_named_and_not_run() -> None:
    found = axolotl("trust_remote_code: true")
    assert fate(found, "trust_remote_code") is Fate.IRRELEVANT
    assert found.notices[0].message.code == "remote_code"


def test_an_unknown_key_is_listed_with_the_nearest() -> None:
    found = axolotl("micro_batch_sise: 4")
    (key,) = found.with_fate(Fate.NOT_UNDERSTOOD)
    assert "micro_batch_size" in str(key.why)
    assert key.line == 3


def test_quantised_experts_are_a_setting_of_a_quantised_base_alone() -> None:
    base = "base_model: Qwen/Qwen3-30B-A3B\nlearning_rate: 1e-4\nquantize_moe_experts: true\n"
    found = loaded("axolotl", base + "load_in_4bit: true\nadapter: qlora\n")
    assert said(found, "quantization.quantize_experts") is True
    found = loaded("axolotl", base + "adapter: lora\n")
    assert fate(found, "quantize_moe_experts") is Fate.IRRELEVANT


def test_a_line_that_starts_axolotl_takes_the_file_and_its_overrides() -> None:
    text = "accelerate launch --num_processes 4 -m axolotl.cli.train mine.yml --micro_batch_size 7"
    line = document(text, "a.sh")
    assert recognised(line)[0] == "axolotl"
    beside = document(QLORA, "mine.yml")
    found = format_named("axolotl").load(line, companion=lambda _: beside, version=None)
    assert said(found, "training.per_device_train_batch_size") == 7
    assert said(found, "training.max_length") == 3072
    assert said(found, "hardware.accelerators_per_node") == 4
    assert "training.per_device_train_batch_size" not in found.places  # no line of the file


def test_adapters_on_stacked_experts_are_carried() -> None:
    found = axolotl("adapter: lora", "lora_target_parameters: [mlp.experts.gate_up_proj]")
    assert said(found, "adapter.target_parameters") == ["mlp.experts.gate_up_proj"]


def test_a_misspelt_adapter_is_one_mistake() -> None:
    with pytest.raises(InvalidRequest) as raised:
        axolotl("adapter: qlorra", "load_in_4bit: true", "lora_r: 8")
    assert [mistake.path for mistake in raised.value.mistakes] == ["adapter"]


@pytest.mark.parametrize(
    ("packing", "of_evaluation", "fate", "words"),
    [
        ("true", "false", Fate.NOT_CARRIED, "packed as those of training"),
        ("true", "true", Fate.IRRELEVANT, "as it is where it is left out"),
        ("false", "false", Fate.IRRELEVANT, "as it is where it is left out"),
        ("false", "true", Fate.NOT_CARRIED, "forward passes over held-out rows"),
    ],
)
def test_held_out_rows_are_packed_as_those_of_training_unless_a_key_says_else(
    packing: str, of_evaluation: str, fate: Fate, words: str
) -> None:
    found = axolotl(f"sample_packing: {packing}", f"eval_sample_packing: {of_evaluation}")
    (key,) = (one for one in found.with_fate(fate) if one.path == "eval_sample_packing")
    assert words in str(key.why)
