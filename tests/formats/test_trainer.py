"""Programs on the Trainer: their launch lines, and sections of TrainingArguments."""

import pytest

from tuneplan.formats import trainer
from tuneplan.formats.foreign import Fate
from tuneplan.formats.reading import no_companions, parse_foreign
from tuneplan.formats.registry import recognised


def load(text, name="run.sh"):
    document = parse_foreign(text, name=name)
    assert recognised(document)[0] == "transformers"
    return trainer.load(document, companion=no_companions, version=None)


def test_a_full_launch_line():
    found = load("""
export WANDB_PROJECT=tune
torchrun --nproc_per_node=4 --nnodes 2 --master_port=20001 mytrain/train_mem.py \\
    --model_name_or_path acme/Base-7b --data_path data/chats.json \\
    --bf16 True --tf32 True --num_train_epochs 3 --output_dir out \\
    --per_device_train_batch_size 2 --gradient_accumulation_steps 16 \\
    --evaluation_strategy "no" --save_strategy "steps" --save_steps 1200 \\
    --learning_rate 2e-5 --weight_decay 0. --lr_scheduler_type "cosine" \\
    --fsdp "full_shard auto_wrap" --fsdp_transformer_layer_cls_to_wrap 'BaseDecoderLayer' \\
    --model_max_length 2048 --gradient_checkpointing True --lazy_preprocess True
""")
    assert found.job == {
        "framework": "transformers",
        "model": "acme/Base-7b",
        "method": "full",
        "training": {
            "max_length": 2048,
            "per_device_train_batch_size": 2,
            "gradient_accumulation_steps": 16,
            "num_train_epochs": 3.0,
            "precision": "bf16",
            "gradient_checkpointing": True,
            "eval_strategy": "no",
            "save_strategy": "steps",
            "save_steps": 1200,
        },
        "parallelism": {"strategy": "fsdp"},
        "hardware": {"accelerators_per_node": 4, "num_nodes": 2},
    }
    assert not found.with_fate(Fate.NOT_UNDERSTOOD)
    assert "fsdp_of_old" in [notice.message.code for notice in found.notices]


@pytest.mark.parametrize(
    ("line", "hardware"),
    [
        ("python train.py", {"accelerators_per_node": 1}),
        ("deepspeed --include localhost:0,1,2 train.py", {"accelerators_per_node": 3,
                                                          "num_nodes": 1}),
        ("deepspeed --num_gpus=8 train.py", {"accelerators_per_node": 8}),
        ("torchrun --nproc_per_node $N train.py", None),
        ("torchrun --nproc-per-node gpu train.py", None),
        ("accelerate launch --num_machines 2 --num_processes 16 train.py",
         {"num_nodes": 2, "accelerators_per_node": 8}),
        ("srun --nodes=2 --gres=gpu:a100:4 python train.py",
         {"num_nodes": 2, "accelerators_per_node": 4}),
    ],
)  # fmt: skip
def test_launchers_say_processes(line, hardware):
    found = load(f"{line} --model_name_or_path a/b --bf16 --learning_rate 1e-5 --max_steps 10")
    assert found.job.get("hardware") == hardware
    assert not found.with_fate(Fate.NOT_UNDERSTOOD)


def test_one_process_that_sees_several_cards_is_counted_on_one_and_told():
    found = load(
        "CUDA_VISIBLE_DEVICES=0,1 python train.py --model_name_or_path a/b --bf16 "
        "--learning_rate 1e-5 --max_steps 10"
    )
    assert found.job["hardware"] == {"accelerators_per_node": 1}
    assert [notice.message.code for notice in found.notices] == ["one_process_many_cards"]


def test_values_that_only_the_running_script_knows_are_told():
    found = load(
        "torchrun --nproc_per_node $N train.py --model_name_or_path $MODEL --bf16 "
        "--learning_rate 1e-5 --max_steps 10"
    )
    assert "model" not in found.job
    not_carried = {key.path: key.value for key in found.with_fate(Fate.NOT_CARRIED)}
    assert not_carried == {"model_name_or_path": "$MODEL", "shell.options.nproc_per_node": "$N"}


def test_four_bits_of_a_script_are_a_quantised_base():
    found = load(
        "python q.py --model_name_or_path a/b --bits 4 --double_quant --quant_type nf4 --lora_r 64 "
        "--source_max_len 16 --target_max_len 512 --max_steps 9 --bf16 --learning_rate 1e-4"
    )
    assert found.job["method"] == "qlora"
    assert found.job["quantization"] == {"bits": 4, "type": "nf4", "double_quant": True}
    assert found.job["training"]["max_length"] == 528


def test_arguments_in_a_section_of_their_own():
    found = load(
        "max_input_length: 256\nmax_output_length: 512\n"
        "training_args: {max_steps: 30, per_device_train_batch_size: 4, learning_rate: 5e-5,"
        " evaluation_strategy: steps, eval_steps: 10}\n"
        "peft_config: {peft_type: LORA, r: 8, lora_alpha: 32, task_type: CAUSAL_LM}\n",
        name="lora.yaml",
    )
    assert found.job == {
        "framework": "transformers",
        "method": "lora",
        "adapter": {"r": 8, "lora_alpha": 32.0},
        "training": {
            "max_length": 768,
            "max_steps": 30,
            "per_device_train_batch_size": 4,
            "eval_strategy": "steps",
            "eval_steps": 10,
        },
    }
    assert not found.with_fate(Fate.NOT_UNDERSTOOD)


def test_other_ways_to_adapt_are_refused_by_name():
    found = load(
        "training_args: {max_steps: 30, per_device_train_batch_size: 4, learning_rate: 5e-5}\n"
        "peft_config: {peft_type: PREFIX_TUNING, num_virtual_tokens: 128}\n",
        name="prefix.yaml",
    )
    assert [mistake.path for mistake in found.refusals] == ["peft_config.peft_type"]
