"""torchtune's YAML."""

from __future__ import annotations

import pytest

from foreign_documents import document, fate, loaded, not_understood, said
from tuneplan.contract.reading import load_job
from tuneplan.errors import InvalidRequest
from tuneplan.formats.foreign import Fate
from tuneplan.formats.registry import format_named, recognised
from tuneplan.formats.torchtune_models import published_model

LORA = """
    output_dir: /tmp/runs/small
    model:
      _component_: torchtune.models.qwen2_5.lora_qwen2_5_7b_instruct
      lora_attn_modules: ['q_proj', 'k_proj']
      apply_lora_to_mlp: True
      lora_rank: 12
      lora_alpha: 24
      lora_dropout: 0.0
    tokenizer:
      _component_: torchtune.models.qwen2_5.qwen2_5_tokenizer
      path: ${output_dir}/vocab.json
      max_seq_len: 1536
    checkpointer:
      _component_: torchtune.training.FullModelHFCheckpointer
      checkpoint_dir: /tmp/weights
      output_dir: ${output_dir}
    dataset:
      _component_: torchtune.datasets.alpaca_dataset
      packed: True
      split: train[:90%]
    dataset_val:
      _component_: torchtune.datasets.alpaca_dataset
      split: train[90%:]
    run_val_every_n_steps: 40
    batch_size: 6
    batch_size_val: ${batch_size}
    epochs: 2
    max_steps_per_epoch: 150
    gradient_accumulation_steps: 3
    clip_grad_norm: 1.0
    optimizer:
      _component_: torch.optim.AdamW
      fused: True
      lr: 1e-4
    loss:
      _component_: torchtune.modules.loss.LinearCrossEntropyLoss
    dtype: bf16
    device: cuda
    compile: False
    enable_activation_checkpointing: True
    enable_activation_offloading: True
    metric_logger:
      _component_: torchtune.training.metric_logging.DiskLogger
      log_dir: ${output_dir}/logs
    log_every_n_steps: 1
"""

FULL = """
    model: {_component_: torchtune.models.llama3_1.llama3_1_8b}
    optimizer: {_component_: bitsandbytes.optim.PagedAdamW8bit}
    optimizer_in_bwd: true
    batch_size: 2
"""


def with_lines(*lines: str) -> str:
    return "\n".join(["model: {_component_: torchtune.models.gemma2.gemma2_2b}", *lines])


def torchtune(*lines: str):
    return loaded("torchtune", with_lines("batch_size: 2", *lines))


def test_a_lora_file_becomes_a_job_of_the_same_settings() -> None:
    found = loaded("torchtune", LORA)
    assert found.job == {
        "framework": "torchtune",
        "model": "Qwen/Qwen2.5-7B-Instruct",
        "method": "lora",
        "adapter": {
            "r": 12,
            "lora_alpha": 24.0,
            "lora_dropout": 0.0,
            "target_modules": ["q_proj", "k_proj", "mlp"],
        },
        "data": {"eval_fraction": 0.1},
        "training": {
            "max_length": 1536,
            "packing": True,
            "per_device_train_batch_size": 6,
            "per_device_eval_batch_size": 6,
            "gradient_accumulation_steps": 3,
            "max_grad_norm": 1.0,
            "num_train_epochs": 2,
            "max_steps": 300,  # 150 in each of 2 epochs
            "optim": "adamw_torch_fused",
            "loss": "chunked",
            "dtype": "bfloat16",
            "precision": "none",
            "torch_compile": False,
            "gradient_checkpointing": "offload",
            "eval_steps": 40,
        },
    }
    assert load_job(found.job).recipe.method == "lora"
    assert not not_understood(found)
    assert fate(found, "dataset._component_") is Fate.NOT_CARRIED


def test_it_is_recognised() -> None:
    assert recognised(document(LORA)) == ("torchtune",)


def test_the_optimizer_inside_backward_has_a_key() -> None:
    found = loaded("torchtune", FULL)
    assert said(found, "training.optimizer_in_backward") is True
    assert said(found, "training.optim") == "paged_adamw_8bit"
    assert said(found, "method") == "full"


@pytest.mark.parametrize(
    ("builder", "model"),
    [
        ("llama3_1_8b", "meta-llama/Llama-3.1-8B"),
        ("qlora_phi3_mini", "microsoft/Phi-3-mini-4k-instruct"),
        ("qwen2_5_0_5b", "Qwen/Qwen2.5-0.5B"),
        ("lora_qwen2_5_72b_instruct", "Qwen/Qwen2.5-72B-Instruct"),
        ("qwen3_1_7b_base", "Qwen/Qwen3-1.7B-Base"),
        ("qwen3_0_6b_instruct", "Qwen/Qwen3-0.6B"),
        ("llama2", None),
    ],
)
def test_a_builder_names_a_published_model(builder, model) -> None:
    assert published_model(builder) == model


@pytest.mark.parametrize(
    ("component", "extra", "method"),
    [
        ("llama2.llama2_7b", "", "full"),
        ("llama2.lora_llama2_7b", "", "lora"),
        ("llama2.qlora_llama2_7b", "", "qlora"),
        ("llama2.lora_llama2_7b", ", quantize_base: true", "qlora"),
        ("llama2.lora_llama2_7b", ", use_dora: true", "dora"),
    ],
)
def test_the_method_is_in_the_builder(component, extra, method) -> None:
    text = f"model: {{_component_: torchtune.models.{component}{extra}}}\nbatch_size: 1"
    assert said(loaded("torchtune", text), "method") == method


@pytest.mark.parametrize(
    ("lines", "optimizer"),
    [
        (("optimizer: {_component_: torch.optim.AdamW}",), "adamw_torch_foreach"),
        (("optimizer: {_component_: torch.optim.AdamW, fused: true}",), "adamw_torch_fused"),
        (("optimizer: {_component_: torch.optim.SGD, momentum: 0.9}",), "sgd_momentum"),
        (("optimizer: {_component_: torchao.optim.AdamW8bit}",), "adamw_torch_8bit"),
        (("optimizer: {_component_: my_code.Sparkle}",), "sparkle"),
    ],
)
def test_an_optimizer_class_has_a_name(lines, optimizer) -> None:
    assert said(torchtune(*lines), "training.optim") == optimizer


@pytest.mark.parametrize(
    ("component", "loss", "objective"),
    [
        ("torch.nn.CrossEntropyLoss", "full", None),
        ("torchtune.modules.loss.LinearCrossEntropyLoss", "chunked", None),
        ("torchtune.rlhf.loss.DPOLoss", None, "dpo"),
        ("torchtune.rlhf.loss.PPOLoss", None, "ppo"),
    ],
)
def test_a_loss_class_tells_loss_or_objective(component, loss, objective) -> None:
    found = torchtune(f"loss: {{_component_: {component}}}")
    assert (said(found, "training.loss"), said(found, "objective")) == (loss, objective)


def test_the_loss_of_older_releases_tells_the_release() -> None:
    found = torchtune("loss: {_component_: torchtune.modules.loss.CEWithChunkedOutputLoss}")
    assert said(found, "framework") == "torchtune==0.6.1"
    assert found.notices[0].message.code == "version_by_loss"


def test_references_are_filled_in_and_code_in_them_is_not_run() -> None:
    found = torchtune("epochs: ${batch_size}", "gradient_accumulation_steps: ${eval:'2 * 3'}")
    assert said(found, "training.num_train_epochs") == 2
    assert said(found, "training.gradient_accumulation_steps") is None
    assert fate(found, "gradient_accumulation_steps") is Fate.NOT_CARRIED


def test_references_in_a_circle_end() -> None:
    found = torchtune("epochs: ${seed}", "seed: ${epochs}")
    assert said(found, "training.num_train_epochs") is None


def test_a_builder_of_the_users_own_is_named_by_the_checkpoint() -> None:
    text = """
        model: {_component_: my_models.big}
        checkpointer: {checkpoint_dir: /data/Qwen2.5-7B/}
        batch_size: 1
    """
    found = loaded("torchtune", text)
    assert said(found, "model") == "Qwen2.5-7B"
    assert found.notices[0].message.code == "model_by_folder"


def test_the_mesh_tells_degrees_and_cards() -> None:
    found = torchtune(
        "tensor_parallel_dim: 2", "data_parallel_shard_dim: 4", "fsdp_cpu_offload: true"
    )
    assert said(found, "parallelism.tensor") == 2
    assert said(found, "hardware.accelerators_per_node") == 8
    assert said(found, "parallelism.offload") == "params"


@pytest.mark.parametrize(
    ("lines", "path"),
    [
        (("teacher_model: {_component_: torchtune.models.qwen2.qwen2_7b}",), "teacher_model"),
        (("kd_ratio: 0.5", "kd_loss: {_component_: x}"), "kd_loss"),
    ],
)
def test_what_has_no_formula_is_refused_by_name(lines, path) -> None:
    assert [refusal.path for refusal in torchtune(*lines).refusals] == [path]


def test_mistakes_come_with_near_matches() -> None:
    with pytest.raises(InvalidRequest) as raised:
        torchtune("dtype: fp61", "epochs: some", "compile: perhaps")
    found = {mistake.path: mistake.near for mistake in raised.value.mistakes}
    assert found == {"dtype": ("fp16",), "epochs": (), "compile": ()}


def test_adapters_on_unknown_parts_are_refused_with_the_nearest() -> None:
    text = """
        model: {_component_: torchtune.models.gemma.lora_gemma_2b, lora_attn_modules: [q_porj]}
        batch_size: 1
    """
    with pytest.raises(InvalidRequest) as raised:
        loaded("torchtune", text)
    assert raised.value.mistakes[0].near[0] == "q_proj"


def test_a_tune_run_line_takes_the_file_and_its_overrides() -> None:
    line = document(
        "tune run --nproc_per_node 4 lora_finetune_distributed --config mine.yaml batch_size=9",
        "a.sh",
    )
    assert recognised(line)[0] == "torchtune"
    beside = document(LORA, "mine.yaml")
    found = format_named("torchtune").load(line, companion=lambda _: beside, version=None)
    assert said(found, "training.per_device_train_batch_size") == 9
    assert said(found, "model") == "Qwen/Qwen2.5-7B-Instruct"
    assert said(found, "parallelism.strategy") == "fsdp2"
    assert said(found, "hardware.accelerators_per_node") == 4


def test_a_file_that_comes_with_torchtune_tells_model_and_method_by_its_name() -> None:
    line = "tune run lora_finetune_single_device --config llama3_1/8B_qlora_single_device"
    found = loaded("torchtune", line, name="a.sh")
    assert said(found, "model") == "meta-llama/Llama-3.1-8B"
    assert said(found, "method") == "qlora"
    assert said(found, "hardware.accelerators_per_node") == 1
    assert "shipped_config" in [notice.message.code for notice in found.notices]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("custom_sharded_layers: ['tok_embeddings']", True),
        ("fsdp_cpu_offload: True", True),
        ("data_parallel_shard_dim: 4", False),
        ("", False),
    ],
)
def test_keys_of_a_distributed_recipe_without_a_count_of_cards_are_told(line, told):
    notices = loaded("torchtune", f"{LORA}\n    {line}\n").notices
    assert ("distributed_without_count" in [one.message.code for one in notices]) is told
