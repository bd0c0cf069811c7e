"""Launch lines of Megatron, NeMo and Colossal-AI."""

from __future__ import annotations

import pytest

from foreign_documents import document, fate, loaded, not_understood, said
from tuneplan.errors import InvalidRequest
from tuneplan.formats.foreign import Fate
from tuneplan.formats.registry import recognised

MEGATRON = r"""
    GPT_ARGS=(
        --num-layers 32
        --hidden-size 4096
        --num-attention-heads 32
        --seq-length 2048
        --swiglu
    )
    torchrun --nproc_per_node 8 pretrain_gpt.py ${GPT_ARGS[@]} \
        --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 \
        --micro-batch-size 1 --global-batch-size 48 --train-iters 700 \
        --bf16 --use-distributed-optimizer --recompute-granularity selective \
        --lr 3e-4 --clip-grad 1.0 --save-interval 100 --data-path mine_text_document
"""
SWIFT = r"""
    NPROC_PER_NODE=4 megatron sft --model Qwen/Qwen3-30B-A3B --tuner_type lora --dataset a/b \
        --tensor_model_parallel_size 2 --expert_model_parallel_size 4 --micro_batch_size 2 \
        --global_batch_size 32 --max_length 3000 --recompute_granularity full \
        --recompute_method uniform --recompute_num_layers 1 --attention_backend flash
"""
NEMO = r"""
    torchrun --nproc_per_node=8 megatron_gpt_finetuning.py \
        trainer.devices=8 trainer.num_nodes=2 trainer.precision=bf16 \
        model.restore_from_path=/models/llama2-7b.nemo \
        model.peft.peft_scheme=lora model.peft.lora_tuning.adapter_dim=24 \
        model.peft.lora_tuning.target_modules=[attention_qkv] \
        model.tensor_model_parallel_size=4 model.optim.name=distributed_fused_adam \
        model.data.train_ds.max_seq_length=2048 ++model.mcore_gpt=True
"""


def test_a_line_of_megatron_gives_sizes_and_asks_for_the_models_name() -> None:
    found = loaded("megatron", MEGATRON, name="pretrain.sh")
    assert found.job == {
        "framework": "megatron",
        "objective": "pretrain",
        "method": "full",
        "training": {
            "per_device_train_batch_size": 1,
            "global_batch_size": 48,
            "max_steps": 700,
            "max_length": 2048,
            "max_grad_norm": 1.0,
            "save_steps": 100,
            "gradient_checkpointing": "selective",
            "precision": "bf16",
        },
        "parallelism": {"tensor": 2, "pipeline": 2, "strategy": "zero1"},
        "hardware": {"accelerators_per_node": 8},
    }
    assert found.notices[0].message.code == "sizes_without_name"
    assert not not_understood(found)


def test_megatron_of_ms_swift_names_the_model() -> None:
    found = loaded("megatron", SWIFT, name="a.sh")
    assert said(found, "model") == "Qwen/Qwen3-30B-A3B"
    assert said(found, "method") == "lora"
    assert found.job["parallelism"] == {"tensor": 2, "expert": 4, "strategy": "zero1"}
    assert said(found, "training.gradient_checkpointing") is True
    assert said(found, "adapter.target_modules") == "all-linear"
    assert said(found, "hardware.accelerators_per_node") == 4
    assert not not_understood(found)


def test_overrides_of_nemo_become_a_job() -> None:
    found = loaded("nemo", NEMO, name="a.sh")
    assert said(found, "model") == "llama2-7b"
    assert said(found, "method") == "lora"
    assert found.job["adapter"] == {"r": 24, "target_modules": ["linear_qkv"]}
    assert found.job["parallelism"] == {"tensor": 4, "strategy": "zero1"}
    assert found.job["hardware"] == {"accelerators_per_node": 8, "num_nodes": 2}


def test_a_recipe_of_nemo_names_the_model() -> None:
    found = loaded("nemo", "nemo llm finetune --factory llama31_8b peft=lora -y", name="a.sh")
    assert said(found, "model") == "meta-llama/Llama-3.1-8B"
    assert said(found, "method") == "lora"


@pytest.mark.parametrize(
    ("plugin", "strategy", "offload"),
    [
        ("ddp", "ddp", None),
        ("zero2_cpu", "zero2", "optimizer"),
        ("gemini", "zero3", None),
        ("3d", None, None),
    ],
)
def test_a_plugin_of_colossal_ai_says_who_holds_what(plugin, strategy, offload) -> None:
    line = (
        f"colossalai run --nproc_per_node 8 train.py --plugin {plugin} --pretrained a/Llama-2-7b "
        "--batch_size 2 --mixed_precision bf16 --use_grad_checkpoint --lora_rank 0"
    )
    found = loaded("colossalai", line, name="a.sh")
    assert said(found, "framework") == "colossalai"
    assert said(found, "parallelism.strategy") == strategy
    assert said(found, "parallelism.offload") == offload
    assert said(found, "method") == "full"
    assert not not_understood(found)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (MEGATRON, "megatron"),
        (SWIFT, "megatron"),
        (NEMO, "nemo"),
        ("colossalai run --nproc_per_node 2 train.py --pretrained a/b", "colossalai"),
    ],
)
def test_they_are_recognised(text, name) -> None:
    assert recognised(document(text, "a.sh"))[0] == name


@pytest.mark.parametrize(
    ("format_name", "line", "path"),
    [
        ("megatron", "megatron export --model a/b --to_hf true", "shell.words"),
        ("megatron", "megatron rlhf --model a/b --rlhf_type gkd", "rlhf_type"),
        ("megatron", "megatron sft --model a/b --use_megatron_fsdp true", "use_megatron_fsdp"),
        ("nemo", "nemo llm finetune --factory llama3_8b peft=canonical", "peft"),
    ],
)
def test_what_has_no_formula_is_refused_by_name(format_name, line, path) -> None:
    found = loaded(format_name, line, name="a.sh")
    assert [refusal.path for refusal in found.refusals] == [path]


def test_mistakes_come_with_near_matches() -> None:
    line = "megatron sft --model a/b --recompute_granularity fulll --attention_backend flsh"
    with pytest.raises(InvalidRequest) as raised:
        loaded("megatron", line, name="a.sh")
    found = {mistake.path: mistake.near[:1] for mistake in raised.value.mistakes}
    assert found == {"recompute_granularity": ("full",), "attention_backend": ("flash",)}


def test_blocks_that_are_kept_are_told() -> None:
    line = (
        "megatron sft --model a/b --recompute_granularity full --recompute_method block "
        "--recompute_num_layers 4"
    )
    found = loaded("megatron", line, name="a.sh")
    assert fate(found, "recompute_num_layers") is Fate.NOT_CARRIED
