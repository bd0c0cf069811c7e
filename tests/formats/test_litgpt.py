"""LitGPT's YAML and its launch lines."""

from __future__ import annotations

import pytest

from foreign_documents import document, fate, loaded, not_understood, said
from tuneplan.contract.reading import load_job
from tuneplan.errors import InvalidRequest
from tuneplan.formats.foreign import Fate
from tuneplan.formats.registry import format_named, recognised

QLORA = """
    checkpoint_dir: checkpoints/google/gemma-2-9b
    out_dir: out/mine
    precision: bf16-true
    quantize: bnb.nf4-dq
    devices: 1
    num_nodes: 1
    lora_r: 16
    lora_alpha: 8
    lora_dropout: 0.1
    lora_query: true
    lora_key: false
    lora_value: true
    lora_projection: true
    lora_mlp: false
    lora_head: false
    data:
      class_path: litgpt.data.Dolly
      init_args: {mask_prompt: true, val_split_fraction: 0.04}
    train:
      save_interval: 300
      log_interval: 1
      global_batch_size: 12
      micro_batch_size: 3
      lr_warmup_steps: 20
      epochs: 2
      max_tokens:
      max_steps:
      max_seq_length: 700
      max_norm:
      min_lr: 6.0e-05
    eval: {interval: 60, max_iters: 40}
    logger_name: csv
    seed: 5
    optimizer:
      class_path: torch.optim.AdamW
      init_args: {lr: 0.0003}
"""


def with_lines(*lines: str) -> str:
    return "\n".join(
        ["checkpoint_dir: checkpoints/a/Qwen2.5-7B", "train: {micro_batch_size: 2}", *lines]
    )


def litgpt(*lines: str):
    return loaded("litgpt", with_lines(*lines))


def test_a_qlora_file_becomes_a_job_of_the_same_settings() -> None:
    found = loaded("litgpt", QLORA)
    assert found.job == {
        "framework": "litgpt",
        "model": "google/gemma-2-9b",
        "method": "qlora",
        "quantization": {"bits": 4, "type": "nf4", "double_quant": True},
        "adapter": {
            "r": 16,
            "lora_alpha": 8.0,
            "lora_dropout": 0.1,
            "target_modules": ["query", "value", "projection"],
        },
        "data": {"eval_fraction": 0.04},
        "training": {
            "dtype": "bfloat16",
            "precision": "none",
            "per_device_train_batch_size": 3,
            "global_batch_size": 12,
            "num_train_epochs": 2.0,
            "max_length": 700,
            "save_steps": 300,
            "eval_steps": 60,
            "optim": "paged_adamw_32bit",
        },
        "hardware": {"accelerators_per_node": 1, "num_nodes": 1},
    }
    assert load_job(found.job).recipe.framework == "litgpt"
    assert not not_understood(found)
    assert fate(found, "data.class_path") is Fate.NOT_CARRIED


def test_it_is_recognised() -> None:
    assert recognised(document(QLORA)) == ("litgpt",)


def test_without_adapter_keys_the_whole_model_is_trained() -> None:
    assert said(litgpt(), "method") == "full"
    assert said(litgpt("lora_r: 8"), "method") == "lora"


@pytest.mark.parametrize(
    ("precision", "dtype", "compute"),
    [
        ("bf16-true", "bfloat16", "none"),
        ("16-mixed", "float32", "fp16"),
        ("bf16-mixed", "float32", "bf16"),
        ("32-true", "float32", "fp32"),
    ],
)
def test_precision_words_of_fabric(precision, dtype, compute) -> None:
    found = litgpt(f"precision: {precision}")
    assert said(found, "training.dtype") == dtype
    assert said(found, "training.precision") == compute


def test_a_global_batch_that_does_not_divide_is_rounded_down_as_litgpt_does() -> None:
    text = """
        checkpoint_dir: checkpoints/a/Qwen2.5-7B
        devices: 2
        train: {micro_batch_size: 3, global_batch_size: 16}
    """
    found = loaded("litgpt", text)
    assert said(found, "training.gradient_accumulation_steps") == 2  # 16 // 2 cards // 3
    assert found.notices[0].message.code == "global_batch_rounded_down"


def test_pretraining_counts_tokens() -> None:
    text = """
        model_name: pythia-160m
        train:
          micro_batch_size: 4
          global_batch_size: 8
          max_seq_length: 1024
          max_tokens: 1048576
    """
    found = loaded("litgpt", text)
    assert said(found, "objective") == "pretrain"
    assert said(found, "training.max_steps") == 128  # 2^20 / (8 x 1024)


def test_a_launch_line_is_read_as_its_file_would_be() -> None:
    text = """
        litgpt finetune_lora meta-llama/Llama-3.2-1B --quantize bnb.nf4 \\
          --train.micro_batch_size 2 --train.global_batch_size=8 --lora_r 4
    """
    shell = document(text, "train.sh")
    assert recognised(shell)[0] == "litgpt"
    found = loaded("litgpt", text, name="train.sh")
    assert said(found, "model") == "meta-llama/Llama-3.2-1B"
    assert said(found, "method") == "qlora"
    assert said(found, "training.per_device_train_batch_size") == 2
    assert said(found, "adapter.r") == 4


def test_the_file_behind_config_is_read_and_the_line_goes_before_it() -> None:
    line = document("litgpt finetune_full --config mine.yaml --train.epochs 7", "train.sh")
    beside = document(with_lines("precision: bf16-true"), "mine.yaml")
    found = format_named("litgpt").load(line, companion=lambda _: beside, version=None)
    assert said(found, "model") == "a/Qwen2.5-7B"
    assert said(found, "training.num_train_epochs") == 7
    assert said(found, "training.per_device_train_batch_size") == 2


def test_adapter_methods_without_formula_are_refused_by_name() -> None:
    found = loaded("litgpt", "litgpt finetune_adapter_v2 a/Qwen2.5-7B", name="t.sh")
    assert [refusal.path for refusal in found.refusals] == ["shell"]


def test_mistakes_come_with_near_matches() -> None:
    with pytest.raises(InvalidRequest) as raised:
        litgpt("precision: bf16-ture", "quantize: bnb.nf5", "lora_r: many")
    found = {mistake.path: mistake.near[:1] for mistake in raised.value.mistakes}
    assert found == {"precision": ("bf16-true",), "quantize": ("bnb.nf4",), "lora_r": ()}


def test_a_quantised_base_under_autocast_is_refused() -> None:
    with pytest.raises(InvalidRequest) as raised:
        litgpt("precision: bf16-mixed", "quantize: bnb.nf4")
    assert raised.value.mistakes[0].near == ("bf16-true", "16-true")
