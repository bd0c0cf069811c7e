"""Launch scripts are read as people write them, and nothing in them is run."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneplan.errors import InputError, UnreadableFile
from tuneplan.formats.reading import parse_foreign
from tuneplan.formats.shell_lines import parse_shell

CLASSIC = """#!/bin/bash
#SBATCH --nodes=2
export CUDA_DEVICE_MAX_CONNECTIONS=1
CARDS=$(nvidia-smi -L | wc -l)
NODES=${NODES:-1}
MODEL="acme/base-7B" # where it lies
usage() {
    echo 'call: run.sh [--model NAME]'
}
while [[ "$1" != "" ]]; do
    case $1 in
        -m | --model )
            shift
            MODEL=$1
            ;;
    esac
    shift
done
SPREAD="
    --nproc_per_node $CARDS \\
    --nnodes $NODES \\
    --master_port ${PORT:-6001}
"
MORE=(
  --gradient_accumulation_steps $((4*2)) # don't count
  --learning_rate 3e-4
)
torchrun $SPREAD finetune.py \\
    --model_name_or_path $MODEL \\
    --bf16 True \\
    "${MORE[@]}" --lora-target-modules q_proj k_proj \\
    --gradient_checkpointing_kwargs '{"use_reentrant": false}' \\
    --fsdp "full_shard auto_wrap" --max_steps -1 $EXTRA 2>&1 | tee log
"""


def test_a_classic_launch_script_gives_its_arguments_with_variables_filled_in():
    document = parse_shell(CLASSIC, name="run.sh")
    shell = document.tree["shell"]
    arguments = {name: value for name, value in document.tree.items() if name != "shell"}
    assert arguments == {
        "model_name_or_path": "acme/base-7B",
        "bf16": True,
        "gradient_accumulation_steps": 8,
        "learning_rate": 3e-4,
        "lora_target_modules": ["q_proj", "k_proj"],
        "gradient_checkpointing_kwargs": {"use_reentrant": False},
        "fsdp": "full_shard auto_wrap",
        "max_steps": -1,
    }
    assert shell["launcher"] == "torchrun"
    assert shell["program"] == "finetune.py"
    assert shell["options"] == {"nproc_per_node": None, "nnodes": 1, "master_port": 6001}
    assert shell["scheduler"] == {"nodes": 2}
    assert shell["environment"] == {"CUDA_DEVICE_MAX_CONNECTIONS": 1}


def test_what_only_the_running_script_knows_is_unknown_and_never_guessed():
    document = parse_shell(CLASSIC, name="run.sh")
    assert document.unknown == {"shell.options.nproc_per_node": "$(nvidia-smi -L | wc -l)"}
    assert [notice.message.code for notice in document.notices] == ["arguments_from_outside"]
    assert document.lines["model_name_or_path"] == 29


@pytest.mark.parametrize(
    ("text", "program", "words", "launcher", "keys"),
    [
        (
            "NPROC_PER_NODE=8 \\\nCUDA_VISIBLE_DEVICES=0,1 swift sft --model a/b --lora_rank 8",
            *("swift", ["sft"], "none", {"model": "a/b", "lora_rank": 8}),
        ),
        (
            "llamafactory-cli train examples/x.yaml learning_rate=1e-5",
            *("llamafactory-cli", ["train", "examples/x.yaml"], "none", {"learning_rate": 1e-5}),
        ),
        (
            "accelerate launch --config_file c.yaml --num_processes=4 train.py --train.epochs 3",
            *("train.py", None, "accelerate", {"train": {"epochs": 3}}),
        ),
        (
            "python -m torch.distributed.launch --nproc_per_node=4 train.py --tf32 --lr=1",
            *("train.py", None, "torchrun", {"tf32": True, "lr": 1}),
        ),
        (
            "tune run --nproc_per_node 2 lora_finetune_distributed --config x batch_size=2",
            *("tune", ["run", "lora_finetune_distributed"], "none"),
            {"config": "x", "batch_size": 2},
        ),
        (
            'srun --gres=gpu:8 -N 2 bash -c "python -u train.py --epochs 1"',
            *("train.py", None, "python", {"epochs": 1}),
        ),
        (
            'CALL="deepspeed --include localhost:0,1 x/train_mem.py --fp16 True"\neval $CALL',
            *("x/train_mem.py", None, "deepspeed", {"fp16": True}),
        ),
        (
            'L="accelerate launch"\nfor LR in 1 2; do $L train.py --learning_rate $LR; done',
            *("train.py", None, "accelerate", {"learning_rate": 1}),
        ),
        (
            "$ uv run torchrun --standalone --nproc-per-node 2 -m pkg.train --seed 1 && echo done",
            *("pkg.train", None, "torchrun", {"seed": 1}),
        ),
        ("--model a/b \\\n --lora_rank 8", "", None, "none", {"model": "a/b", "lora_rank": 8}),
    ],
)
def test_every_kind_of_launcher_is_seen_through(text, program, words, launcher, keys):
    tree = dict(parse_shell(text, name="run.sh").tree)
    shell = tree.pop("shell")
    assert tree == keys
    assert shell["program"] == program
    assert shell.get("words") == words
    assert shell["launcher"] == launcher


def test_the_environment_of_the_command_is_part_of_it():
    document = parse_shell(
        "export A=1\nB=2\nNPROC_PER_NODE=4 CUDA_VISIBLE_DEVICES=0,1 swift sft --model x", name="s"
    )
    assert document.tree["shell"]["environment"] == {
        "A": 1,
        "NPROC_PER_NODE": 4,
        "CUDA_VISIBLE_DEVICES": "0,1",
    }


def test_an_option_that_stands_twice_counts_as_argument_parsers_have_it_and_is_told():
    document = parse_shell("torchrun train.py --lr 1 \\\n --lr 2", name="s")
    assert document.tree["lr"] == 2
    assert [notice.message.code for notice in document.notices] == ["option_twice"]


def test_options_behind_a_comment_that_ends_the_command_have_no_effect_and_are_told():
    document = parse_shell("torchrun train.py --lr 1 \\\n # --bs 2 \\\n --epochs 3", name="s")
    assert "epochs" not in document.tree
    assert [notice.message.code for notice in document.notices] == ["stray_option"]


def test_the_training_command_is_chosen_among_several():
    text = "python merge.py --into x\ntorchrun train.py --learning_rate 1\npip install deepspeed"
    document = parse_shell(text, name="s")
    assert document.tree["shell"]["program"] == "train.py"


def test_a_text_that_launches_nothing_is_refused():
    with pytest.raises(UnreadableFile, match="starts no training"):
        parse_shell("echo hello\npip install torchrun", name="s")


def test_variables_that_double_without_end_are_refused():
    with pytest.raises(UnreadableFile, match="grow beyond"):
        parse_shell("A=xx\n" + 'A="$A$A"\n' * 60 + "python train.py --model $A", name="s")


PIECES = [*"ab$(){}[]\"'`\\\n\t ;&|<>#=-@*!%0,:", "torchrun ", " --x ", "=(", "${", "$((", "EOF"]


@given(st.lists(st.sampled_from(PIECES), max_size=60).map("".join))
def test_any_text_is_a_document_or_an_error_for_people(text):
    for candidate in (text, f"torchrun train.py --lr 1 {text}", f"A={text}\npython train.py $A"):
        with contextlib.suppress(InputError):
            assert parse_shell(candidate, name="s").tree["shell"]


def test_a_batch_file_of_windows_is_read_as_its_shell_would():
    tree = parse_foreign(
        "@echo off\r\nREM don't\r\nset CUDA_VISIBLE_DEVICES=0,1\r\nset MODEL=D:\\w\\base-7B\r\n"
        "python train.py ^\r\n  --model_name_or_path %MODEL% ^\r\n  --run_name it's --lora_r 8\r\n",
        name="train.bat",
    )
    assert tree.tree["model_name_or_path"] == "D:\\w\\base-7B"
    assert tree.tree["run_name"] == "it's"
    assert tree.tree["shell"]["environment"]["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert (tree.line_of("model_name_or_path"), tree.line_of("lora_r")) == (6, 7)
    assert not tree.notices


@pytest.mark.parametrize("quote", ["'", '"'])
def test_a_quote_that_is_never_closed_is_told_with_its_line(quote):
    notices = parse_shell(f"echo on\nswift sft --model {quote}a/b\n  --x 1\n", name="a.sh").notices
    assert [(one.message.code, one.line) for one in notices] == [("open_quote", 2)]
