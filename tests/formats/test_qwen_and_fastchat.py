"""Launch lines of Qwen's ``finetune.py`` and of FastChat's scripts."""

from __future__ import annotations

import pytest

from foreign_documents import document, loaded, not_understood, said
from tuneplan.contract.reading import load_job
from tuneplan.formats.registry import recognised

QWEN_LORA = r"""
    export CUDA_DEVICE_MAX_CONNECTIONS=1
    MODEL="Qwen/Qwen-7B"
    DATA="mine.json"
    DISTRIBUTED_ARGS="--nproc_per_node 4 --nnodes 1 --master_port 6001"
    torchrun $DISTRIBUTED_ARGS finetune.py \
        --model_name_or_path $MODEL \
        --data_path $DATA \
        --bf16 True \
        --output_dir out \
        --num_train_epochs 2 \
        --per_device_train_batch_size 3 \
        --per_device_eval_batch_size 1 \
        --gradient_accumulation_steps 6 \
        --evaluation_strategy "no" \
        --save_strategy "steps" \
        --save_steps 400 \
        --learning_rate 2e-4 \
        --model_max_length 640 \
        --lazy_preprocess True \
        --use_lora \
        --gradient_checkpointing \
        --deepspeed finetune/ds_config_zero2.json
"""
FASTCHAT_FULL = r"""
    torchrun --nproc_per_node=8 --master_port=20001 fastchat/train/train_mem.py \
        --model_name_or_path meta-llama/Llama-2-7b-hf \
        --data_path chats.json \
        --bf16 True --tf32 True \
        --num_train_epochs 2 \
        --per_device_train_batch_size 3 \
        --gradient_accumulation_steps 7 \
        --evaluation_strategy steps --eval_steps 300 \
        --fsdp "full_shard auto_wrap" \
        --fsdp_transformer_layer_cls_to_wrap LlamaDecoderLayer \
        --model_max_length 1800 \
        --gradient_checkpointing True \
        --lazy_preprocess True
"""


def qwen(line: str, model: str = "Qwen/Qwen-7B-Chat"):
    text = f"python finetune.py --model_name_or_path {model} --lazy_preprocess True {line}"
    return loaded("qwen", text, name="finetune.sh")


def test_a_line_of_qwens_script_becomes_a_job_with_the_scripts_defaults() -> None:
    found = loaded("qwen", QWEN_LORA, name="finetune_lora_ds.sh")
    assert found.job == {
        "framework": "qwen",
        "date": "2024-02-01",
        "model": "Qwen/Qwen-7B",
        "method": "lora",
        "adapter": {
            "r": 64,
            "lora_alpha": 16,
            "lora_dropout": 0.05,
            "target_modules": ["c_attn", "c_proj", "w1", "w2"],
            "modules_to_save": ["wte", "lm_head"],  # a base model, so that new tokens are learnt
        },
        "training": {
            "max_length": 640,
            "padding": "max_length",
            "per_device_train_batch_size": 3,
            "per_device_eval_batch_size": 1,
            "gradient_accumulation_steps": 6,
            "num_train_epochs": 2.0,
            "precision": "bf16",
            "gradient_checkpointing": True,
            "eval_strategy": "no",
            "save_strategy": "steps",
            "save_steps": 400,
            "optim": "adamw_torch",
        },
        "parallelism": {"strategy": "zero2"},
        "hardware": {"accelerators_per_node": 4, "num_nodes": 1},
    }
    assert load_job(found.job).recipe.framework == "qwen"
    assert not not_understood(found)


def test_chat_models_save_no_embeddings() -> None:
    assert said(qwen("--use_lora"), "adapter.modules_to_save") is None


def test_q_lora_is_an_adapter_on_gptq_weights() -> None:
    found = qwen("--use_lora --q_lora --fp16 True", "Qwen/Qwen-7B-Chat-Int4")
    assert said(found, "method") == "gptq-lora"
    assert found.job["quantization"] == {"type": "gptq", "bits": 4}


def test_without_use_lora_the_whole_model_is_trained() -> None:
    found = qwen("--q_lora")
    assert said(found, "method") == "full"
    assert said(found, "adapter") is None
    assert "q_lora" in [notice.path for notice in found.notices]


def test_later_models_have_llamas_linears_and_run_on_transformers_4() -> None:
    found = qwen("--use_lora", "Qwen/Qwen1.5-7B-Chat")
    assert said(found, "framework") == "transformers==4.57.0"
    assert "gate_proj" in said(found, "adapter.target_modules")


def test_blank_arguments_take_the_scripts_defaults_and_say_so() -> None:
    found = qwen("")
    assert said(found, "training.max_length") == 8192
    assert said(found, "training.per_device_train_batch_size") == 8
    assert any(notice.message.code == "defaults_of_script" for notice in found.notices)


def test_a_line_of_fastchats_script_becomes_a_job() -> None:
    found = loaded("fastchat", FASTCHAT_FULL, name="train.sh")
    assert said(found, "framework") == "transformers==4.57.0"
    assert said(found, "method") == "full"
    assert said(found, "parallelism.strategy") == "fsdp"
    assert said(found, "hardware.accelerators_per_node") == 8
    assert said(found, "training.padding") == "max_length"
    assert said(found, "training.dtype") == "float32"
    assert said(found, "training.attn_implementation") == "flash_attention_2"
    assert said(found, "training.max_length") == 1800
    assert not not_understood(found)


@pytest.mark.parametrize(
    ("line", "method", "targets"),
    [
        ("", "lora", ["q_proj", "v_proj"]),
        ("--q_lora False --lora_r 16", "lora", ["q_proj", "v_proj"]),
        ("--q_lora True --lora_target_modules q_proj o_proj", "qlora", ["q_proj", "o_proj"]),
    ],
)
def test_the_adapter_script_always_adapts(line, method, targets) -> None:
    text = f"deepspeed fastchat/train/train_lora.py --model_name_or_path a/Llama-2-7b {line}"
    found = loaded("fastchat", text, name="train_lora.sh")
    assert said(found, "method") == method
    assert said(found, "adapter.target_modules") == targets
    assert "adapter_not_switched_on" not in [notice.message.code for notice in found.notices]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (QWEN_LORA, "qwen"),
        (FASTCHAT_FULL, "fastchat"),
        ("python -m fastchat.train.train --model_name_or_path a/b --data_path c.json", "fastchat"),
        ("python finetune.py --model_name_or_path a/b --use_lora --num_train_epochs 1", "qwen"),
    ],
)
def test_the_lines_are_recognised(text, name) -> None:
    assert recognised(document(text, "a.sh"))[0] == name
