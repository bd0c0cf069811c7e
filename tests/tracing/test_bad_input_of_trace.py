"""What cannot be traced, and what goes wrong meanwhile: the real command, one sentence each."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest

from tuneplan.errors import NotSupported
from tuneplan.tracing.environment import own_interpreter
from tuneplan.tracing.versions import check_torch

ROOT = Path(__file__).parents[2]
LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 256,
    "max_position_embeddings": 256,
}
# Groups of experts that the experts cannot be divided into: 6 by 4.
UNTRACEABLE = {
    **LLAMA,
    "model_type": "deepseek_v3",
    "architectures": ["DeepseekV3ForCausalLM"],
    "first_k_dense_replace": 1,
    "moe_intermediate_size": 32,
    "n_routed_experts": 6,
    "n_group": 4,
    "topk_group": 2,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
}


def start(folder: Path, config: dict, *arguments: str, **settings) -> subprocess.Popen:
    (folder / "config.json").write_text(json.dumps(config))
    job = ("--model", str(folder), "--framework", "transformers", "--method", "lora")
    command = [sys.executable, "-m", "tuneplan", "trace", *job, "--set", "training.max_length=64"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    return subprocess.Popen(
        [*command, *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **settings,
    )


def refused(folder: Path, config: dict, *arguments: str, status: int = 2) -> str:
    process = start(folder, config, *arguments)
    out, err = process.communicate(timeout=120)
    assert process.returncode == status, out + err
    assert out == ""
    assert "Traceback" not in err
    return err


def test_a_model_that_cannot_be_traced_names_the_module_and_the_operation(tmp_path):
    said = refused(tmp_path, UNTRACEABLE)
    assert "layers.1.mlp.gate" in said
    assert "(DeepseekV3TopkRouter)" in said
    assert "aten.topk" in said


def test_a_configuration_that_wants_remote_code_is_refused_and_its_code_is_not_run(tmp_path):
    trap = tmp_path / "was_run"
    (tmp_path / "modeling.py").write_text(f"open({str(trap)!r}, 'w').close()\nclass Model: ...\n")
    config = {**LLAMA, "auto_map": {"AutoModelForCausalLM": "modeling.Model"}}
    said = refused(tmp_path, config)
    assert "asks for code from the model's own repository, which is never run" in said
    assert not trap.exists()


def test_everything_that_is_not_traced_is_told_at_once_before_a_process_starts(tmp_path):
    said = refused(
        tmp_path, LLAMA, "--accelerator", "L4", "--count", "2", "--set", "parallelism=zero3",
        "--set", "training.torch_compile=true",
    )  # fmt: skip
    assert "parallelism.strategy: zero3 is not traced yet" in said
    assert "training.torch_compile: torch.compile is not traced yet" in said


def test_megatron_and_its_degrees_are_not_traced(tmp_path):
    said = refused(
        tmp_path, LLAMA, "--accelerator", "L4", "--count", "2", "--framework", "megatron",
        "--set", "parallelism.tensor=2",
    )  # fmt: skip
    assert "parallelism.tensor: tensor parallelism is not traced yet" in said
    assert "framework: megatron is not traced yet" in said


def test_an_interpreter_that_is_not_there_is_named(tmp_path):
    said = refused(tmp_path, LLAMA, "--python", str(tmp_path / "no" / "python"))
    assert "is no Python to run" in said
    (tmp_path / "empty").mkdir()
    assert "without bin/python" in refused(tmp_path, LLAMA, "--python", str(tmp_path / "empty"))


def test_an_environment_without_the_libraries_is_told_what_is_missing_and_how_to_get_it(tmp_path):
    folder = tmp_path / "environment"
    venv.create(folder, with_pip=False, symlinks=True)
    said = refused(tmp_path, LLAMA, "--python", str(folder))
    assert "lacks torch, transformers, peft" in said
    assert "bin/python -m pip install 'torch>=2.12,<2.14' transformers peft" in said


def fake_python(folder: Path, versions: dict[str, str], then: str) -> Path:
    """A program that answers for versions as an interpreter would, and then does something else."""
    answer = json.dumps([[3, 12, 1], versions])
    path = folder / "python"
    path.write_text(f"#!/bin/sh\nif [ \"$1\" = -I ]; then echo '{answer}'; exit; fi\n{then}\n")
    path.chmod(0o755)
    return path


LIBRARIES = {"torch": "2.13.0", "transformers": "5.24.0", "peft": "0.21.2"}


def test_a_pytorch_that_was_not_tested_is_refused_with_those_that_were(tmp_path):
    python = fake_python(tmp_path, {**LIBRARIES, "torch": "2.9.1"}, "exit 9")
    said = refused(tmp_path, LLAMA, "--python", str(python))
    assert "torch 2.9.1 is not among the versions it was tested with, 2.12 to 2.13" in said
    for version in ("2.12.1", "2.13.0+cpu"):
        assert check_torch(version) == version
    for version in ("2.14.0a0+git1", "1.13", "3.0"):
        with pytest.raises(NotSupported):
            check_torch(version)


def test_a_process_that_dies_is_told_in_a_sentence_with_the_signal_and_its_last_words(tmp_path):
    python = fake_python(tmp_path, LIBRARIES, "echo out of luck >&2\nkill -SEGV $$")
    said = refused(tmp_path, LLAMA, "--python", str(python), status=1)
    assert "SIGSEGV" in said
    assert "out of luck" in said


def heed_interrupts():
    """Where the tests run in the background of a script, interrupts are ignored, and inherited."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_an_interrupt_ends_the_child_and_leaves_with_130(tmp_path):
    note = tmp_path / "pid"
    then = f"echo $$ > {note}.part; mv {note}.part {note}\nexec sleep 60"
    python = fake_python(tmp_path, LIBRARIES, then)
    process = start(
        tmp_path, LLAMA, "--python", str(python),
        start_new_session=True, preexec_fn=heed_interrupts,
    )  # fmt: skip
    with process:
        try:
            deadline = time.monotonic() + 60
            while not note.exists():
                assert time.monotonic() < deadline
                assert process.poll() is None
                time.sleep(0.02)  # until the child is there: nothing else tells
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 130
    assert out == ""
    assert err.strip() == "interrupted"
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)


def test_blank_flags_and_sizes_without_a_unit_are_refused(tmp_path):
    assert "nothing stands behind --python" in refused(tmp_path, LLAMA, "--python", "")
    assert "--limit" in refused(tmp_path, LLAMA, "--limit", "24")


def test_this_environment_has_what_a_trace_needs():
    assert {"torch", "transformers", "peft"} <= set(own_interpreter().versions)
