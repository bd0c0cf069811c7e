"""Unsloth's lines and files."""

from __future__ import annotations

import pytest

from foreign_documents import document, loaded, not_understood, said
from tuneplan.contract.reading import load_job
from tuneplan.errors import InvalidRequest
from tuneplan.formats.registry import recognised

SCRIPT = r"""
    python unsloth-cli.py --model_name "unsloth/llama-3-8b" --load_in_4bit \
      --dataset someone/chats --r 48 --lora_alpha 96 --use_gradient_checkpointing "unsloth" \
      --per_device_train_batch_size 3 --gradient_accumulation_steps 7 --max_steps 250 \
      --learning_rate 2e-5 --optim adamw_8bit --warmup_steps 5 --seed 1 --save_model
"""
FILE = """
    model: unsloth/Qwen3-8B
    data: {dataset: someone/chats, format_type: auto}
    training:
      training_type: lora
      max_seq_length: 3000
      load_in_4bit: true
      num_epochs: 2
      batch_size: 3
      max_steps: 0
      packing: true
      gradient_checkpointing: unsloth
    lora:
      lora_r: 24
      lora_alpha: 12
      target_modules: q_proj,v_proj
    logging: {enable_wandb: false}
"""


def test_a_line_of_the_script_becomes_a_job_with_the_scripts_defaults() -> None:
    found = loaded("unsloth", SCRIPT, name="train.sh")
    assert found.job == {
        "framework": "unsloth",
        "model": "unsloth/llama-3-8b",
        "method": "qlora",
        "quantization": {"bits": 4},
        "adapter": {"r": 48, "lora_alpha": 96.0},
        "training": {
            "max_steps": 250,
            "max_length": 2048,  # the script's own
            "gradient_checkpointing": "offload",
            "per_device_train_batch_size": 3,
            "gradient_accumulation_steps": 7,
            "optim": "adamw_8bit",
        },
        "hardware": {"accelerators_per_node": 1},
    }
    assert load_job(found.job).recipe.framework == "unsloth"
    assert not not_understood(found)


def test_the_file_of_its_command_becomes_a_job() -> None:
    found = loaded("unsloth", FILE)
    assert said(found, "model") == "unsloth/Qwen3-8B"
    assert said(found, "method") == "qlora"
    assert found.job["adapter"] == {
        "r": 24,
        "lora_alpha": 12.0,
        "target_modules": ["q_proj", "v_proj"],
    }
    assert said(found, "training.per_device_train_batch_size") == 3
    assert said(found, "training.max_steps") is None
    assert not not_understood(found)


@pytest.mark.parametrize(
    ("line", "method"),
    [
        ("python unsloth-cli.py --model_name a/b", "lora"),  # 4 bits are a switch of the script
        ("python unsloth-cli.py --model_name a/b --load_in_4bit", "qlora"),
        ("unsloth train --model a/b --dataset c/d", "qlora"),  # and on in the command
        ("unsloth train --model a/b --training-type full", "full"),
    ],
)
def test_the_method_follows_from_the_program_and_its_switches(line, method) -> None:
    assert said(loaded("unsloth", line, name="a.sh"), "method") == method


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (SCRIPT, "a.sh"),
        (FILE, "a.yaml"),
        ("use_gradient_checkpointing: unsloth\nmax_seq_length: 9\nmodel_name: a/b", "a.yaml"),
        ("unsloth train --model a/b", "a.sh"),
    ],
)
def test_they_are_recognised(text, name) -> None:
    assert recognised(document(text, name))[0] == "unsloth"


def test_mistakes_come_with_near_matches() -> None:
    text = "model: a/b\ntraining: {training_type: lroa, gradient_checkpointing: unslot}"
    with pytest.raises(InvalidRequest) as raised:
        loaded("unsloth", text)
    found = {mistake.path: mistake.near[:1] for mistake in raised.value.mistakes}
    assert found["training.training_type"] == ("lora",)
    assert found["training.gradient_checkpointing"] == ("unsloth",)
