"""ms-swift's launch lines of every release, and its files."""

from __future__ import annotations

import pytest

from foreign_documents import document, fate, loaded, not_understood, said
from tuneplan.contract.reading import load_job
from tuneplan.errors import InvalidRequest
from tuneplan.formats.foreign import Fate
from tuneplan.formats.ms_swift_models import published_model
from tuneplan.formats.registry import format_named, recognised

NEW = r"""
    processes=4
    NPROC_PER_NODE=$processes \
    CUDA_VISIBLE_DEVICES=0,1,2,3 \
    swift sft \
        --model Qwen/Qwen2.5-7B-Instruct \
        --tuner_type lora \
        --dataset someone/chats#2000 other/chats \
        --split_dataset_ratio 0.02 \
        --torch_dtype bfloat16 \
        --lora_rank 24 --lora_alpha 48 --target_modules all-linear \
        --max_length 3000 --packing true --attn_impl flash_attn \
        --per_device_train_batch_size 2 --gradient_accumulation_steps 3 \
        --num_train_epochs 2 --eval_strategy steps --eval_steps 50 --save_steps 50 \
        --save_total_limit 2 --deepspeed zero2_offload --warmup_ratio 0.05 \
        --use_liger_kernel true --output_dir out
"""
OLD = r"""
    CUDA_VISIBLE_DEVICES=0 python llm_sft.py \
        --model_type qwen1half-7b-chat \
        --model_id_or_path qwen/Qwen1.5-7B-Chat \
        --sft_type lora \
        --tuner_backend peft \
        --template_type AUTO \
        --dtype AUTO \
        --output_dir output \
        --dataset blossom-math-zh \
        --train_dataset_sample -1 \
        --num_train_epochs 1 \
        --max_length 1500 \
        --check_dataset_strategy warning \
        --quantization_bit 4 \
        --bnb_4bit_comp_dtype AUTO \
        --lora_rank 6 --lora_alpha 12 --lora_dropout_p 0.1 --lora_target_modules DEFAULT \
        --gradient_checkpointing true \
        --batch_size 3 \
        --gradient_accumulation_steps 5 \
        --max_grad_norm 0.5 \
        --use_flash_attn true
"""


def swift(line: str, command: str = "swift sft --model Qwen/Qwen2.5-7B"):
    return loaded("ms-swift", f"{command} {line}", name="train.sh")


def test_a_line_of_release_4_becomes_a_job_of_the_same_settings() -> None:
    found = loaded("ms-swift", NEW, name="train.sh")
    assert found.job == {
        "framework": "ms-swift",
        "model": "Qwen/Qwen2.5-7B-Instruct",
        "method": "lora",
        "adapter": {"r": 24, "lora_alpha": 48, "target_modules": "all-linear"},
        "data": {"eval_fraction": 0.02},
        "training": {
            "dtype": "bfloat16",
            "max_length": 3000,
            "packing": True,
            "attn_implementation": "flash_attention_2",
            "per_device_train_batch_size": 2,
            "gradient_accumulation_steps": 3,
            "num_train_epochs": 2.0,
            "eval_strategy": "steps",
            "eval_steps": 50,
            "save_steps": 50,
            "save_total_limit": 2,
            "use_liger_kernel": True,
        },
        "parallelism": {"strategy": "zero2", "offload": "optimizer"},
        "hardware": {"accelerators_per_node": 4},
    }
    assert load_job(found.job).recipe.framework == "ms-swift"
    assert not not_understood(found)


def test_a_line_of_release_1_or_2_is_read_with_the_defaults_of_the_last_of_them() -> None:
    found = loaded("ms-swift", OLD, name="sft.sh")
    assert said(found, "framework") == "ms-swift==2.6.1"
    assert said(found, "model") == "qwen/Qwen1.5-7B-Chat"
    assert said(found, "method") == "qlora"
    assert said(found, "quantization.bits") == 4
    assert found.job["adapter"] == {"r": 6, "lora_alpha": 12, "lora_dropout": 0.1}
    assert said(found, "training.per_device_train_batch_size") == 3
    assert said(found, "training.attn_implementation") == "flash_attention_2"
    assert not not_understood(found)


def test_the_lines_are_recognised() -> None:
    assert recognised(document(NEW, "a.sh"))[0] == "ms-swift"
    assert recognised(document(OLD, "a.sh"))[0] == "ms-swift"


def test_release_3_called_the_tuner_a_train_type() -> None:
    found = swift("--train_type full")
    assert (said(found, "method"), said(found, "framework")) == ("full", "ms-swift")


@pytest.mark.parametrize(
    ("model_type", "model"),
    [
        ("qwen1half-7b-chat", "Qwen1.5-7B"),
        ("qwen1half-0_5b", "Qwen1.5-0.5B"),
        ("llama3_1-8b-instruct", "Llama-3.1-8B"),
        ("llama2-13b-chat", "Llama-2-13B"),
        ("mistral-7b-instruct-v2", "Mistral-7B-v0.2"),
        ("mixtral-moe-7b", "Mixtral-8x7B-v0.1"),
        ("qwen-7b-chat-int4", "qwen-7b-chat-int4"),
        ("yi-34b-chat", "Yi-34B"),
        ("codefuse-codellama-34b-chat", "CodeLlama-34b"),
    ],
)
def test_a_model_type_names_a_published_model(model_type, model) -> None:
    assert published_model(model_type) == model


def test_weights_of_gptq_make_another_method() -> None:
    found = swift("--sft_type lora", "swift sft --model_type qwen-7b-chat-int4")
    assert said(found, "method") == "gptq-lora"
    assert said(found, "quantization.type") == "gptq"


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("--rlhf_type kto", "objective", "kto"),
        ("--padding_free true", "training.padding", "none"),
        ("--packing true --packing_length 8192", "training.max_length", 8192),
        ("--sequence_parallel_size 2", "parallelism.context", 2),
        ("--deepspeed default-zero3", "parallelism.strategy", "zero3"),
        ("--fsdp fsdp2", "parallelism.strategy", "fsdp2"),
        ("--use_dora true", "adapter.use_dora", True),
        ("--target_modules q_proj v_proj", "adapter.target_modules", ["q_proj", "v_proj"]),
        ("--modules_to_save EMBEDDING LN", "adapter.modules_to_save", ["embed_tokens"]),
        ("--quant_bits 8", "quantization.bits", 8),
        ("--torch_dtype float16", "training.dtype", "float16"),
    ],
)
def test_an_argument_means(line, key, value) -> None:
    assert said(swift(line), key) == value


def test_a_pattern_of_modules_becomes_names() -> None:
    found = swift(r"--target_regex '^model\.layers\.\d+\.self_attn\.(q|k)_proj$'")
    assert said(found, "adapter.target_modules") == ["q_proj", "k_proj"]


def test_one_process_on_several_cards_spreads_the_layers() -> None:
    found = loaded(
        "ms-swift", "CUDA_VISIBLE_DEVICES=0,1 swift sft --model Qwen/Qwen2.5-7B", name="a.sh"
    )
    assert said(found, "parallelism.strategy") == "device_map"
    assert said(found, "hardware.accelerators_per_node") == 2


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("--tuner_type adalora", "tuner_type"),
        ("--tuner_type my_own_plugin", "tuner_type"),
        ("--rlhf_type gkd --teacher_model a/b", "rlhf_type"),
        ("--quant_method hqq --quant_bits 4", "quant_method"),
        ("--task_type seq_cls", "task_type"),
        ("--lisa_activated_layers 2", "lisa_activated_layers"),
    ],
)
def test_what_has_no_formula_is_refused_by_name(line, path) -> None:
    assert [refusal.path for refusal in swift(line).refusals] == [path]


def test_what_trains_nothing_is_refused_by_name() -> None:
    found = loaded(
        "ms-swift", "swift infer --model Qwen/Qwen2.5-7B --max_new_tokens 10", name="a.sh"
    )
    assert [str(refusal.message) for refusal in found.refusals] == ["swift infer trains nothing"]


def test_mistakes_come_with_near_matches() -> None:
    with pytest.raises(InvalidRequest) as raised:
        swift("--tuner_type loar --rlhf_type dpoo --attn_impl flash_atn --torch_dtype bfloat61")
    found = {mistake.path: mistake.near[:1] for mistake in raised.value.mistakes}
    assert found == {
        "tuner_type": ("lora",),
        "rlhf_type": ("dpo",),
        "attn_impl": ("flash_attn",),
        "torch_dtype": ("bfloat16",),
    }


def test_its_yaml_holds_the_same_arguments_and_variables() -> None:
    text = """
        model: Qwen/Qwen3-8B
        tuner_type: full
        dataset: [someone/chats]
        deepspeed: zero3
        per_device_train_batch_size: 1
        ENV: {NPROC_PER_NODE: 8}
    """
    assert recognised(document(text)) == ("ms-swift",)
    found = loaded("ms-swift", text)
    assert said(found, "parallelism.strategy") == "zero3"
    assert said(found, "hardware.accelerators_per_node") == 8
    assert fate(found, "dataset") is Fate.NOT_CARRIED


def test_the_file_that_a_line_names_is_read_and_the_line_goes_before_it() -> None:
    line = document("swift sft mine.yaml --num_train_epochs 5", "a.sh")
    beside = document("model: Qwen/Qwen3-8B\ntuner_type: lora\nnum_train_epochs: 1", "mine.yaml")
    found = format_named("ms-swift").load(line, companion=lambda _: beside, version=None)
    assert said(found, "model") == "Qwen/Qwen3-8B"
    assert said(found, "training.num_train_epochs") == 5


@pytest.mark.parametrize(
    ("command", "key"),
    [
        ("swift sft --model someone/Some-13B-Chat-4bits", "model"),
        ("swift sft --model Qwen/Qwen2.5-7B-Instruct-AWQ", "model"),
        (
            "NPROC_PER_NODE=2 CUDA_VISIBLE_DEVICES=0,1,2,3 swift sft --model Qwen/Qwen2.5-7B",
            "shell.environment.CUDA_VISIBLE_DEVICES",
        ),
        (
            "CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 1 sft.py --model Qwen/Qwen3-8B",
            "shell.environment.CUDA_VISIBLE_DEVICES",
        ),
        (
            "USE_TORCHACC=1 swift sft --model Qwen/Qwen2.5-7B",
            "shell.environment.USE_TORCHACC",
        ),
    ],
)
def test_what_no_estimate_can_be_made_of_is_refused_by_name(command: str, key: str) -> None:
    found = swift("--train_type lora", command)
    assert [refusal.path for refusal in found.refusals] == [key]


def test_a_gptq_base_is_known_by_the_name_of_the_model_alone() -> None:
    found = swift("--sft_type lora", "swift sft --model_id_or_path qwen/Qwen-7B-Chat-Int4")
    assert said(found, "method") == "gptq-lora"
    assert found.refusals == ()


def test_a_sum_over_the_number_of_processes_is_done() -> None:
    text = r"""
        N=4
        NPROC_PER_NODE=$N swift sft --model Qwen/Qwen3-8B \
            --gradient_accumulation_steps $(expr 32 / $N)
    """
    found = loaded("ms-swift", text, name="a.sh")
    assert said(found, "training.gradient_accumulation_steps") == 8
