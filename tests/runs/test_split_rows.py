"""Rows of split models: dimensions in place of a name, machines, layouts, precisions."""

from __future__ import annotations

import pytest

from tuneplan.runs.reading import Record
from tuneplan.runs.rows import measured_run
from tuneplan.runs.skips import Skip
from tuneplan.runs.to_job import to_job

# bigscience-workshop/bigscience@9e64edec train/tr11-176B-ml/chronicles-prequel.md, line 831
BLOOM = {
    "id": "bsc-0096",
    "source_repo": "bigscience-workshop/bigscience",
    "framework": "Megatron-DeepSpeed",
    "framework_version": "2022-02 (02-26)",
    "model": "BLOOM-precursor GPT 182B",
    "gpu": "A100",
    "gpu_mem_gb": "80",
    "num_gpus": "384",
    "nodes": "48",
    "method": "pretrain",
    "compute_dtype": "fp16",
    "seq_len": "2048",
    "micro_batch_per_gpu": "2",
    "global_batch": "2048",
    "activation_checkpointing": "full",
    "attention": "eager",
    "parallelism": "dp=8,tp=4,pp=12,zero=1",
    "length_kind": "fixed at seq_len",
    "notes": "line 831; hidden=13824 layers=78 heads=96; vocab 250k",
}


def job_of(**changes):
    return to_job(measured_run(Record(line=2, cells={**BLOOM, **changes})))


def test_a_gpt_named_by_its_size_is_known_by_its_dimensions():
    assert job_of().model == (
        "gpt:num_layers=78,hidden_size=13824,num_attention_heads=96,vocab_size=250000,"
        "max_position_embeddings=2048"
    )


def test_heads_that_the_source_states_for_all_its_tables_stand_in():
    job = job_of(notes="line 632; hidden=13824 layers=84; vocab 250k")
    assert "num_attention_heads=64" in job.model
    elsewhere = job_of(notes="hidden=13824 layers=84", source_repo="someone/else")
    assert elsewhere.model == "BLOOM-precursor GPT 182B"


def test_other_models_keep_their_names_whatever_their_notes_say():
    assert job_of(model="Llama 3 8B").model == "Llama 3 8B"


@pytest.mark.parametrize(
    ("gpu", "nodes", "cards", "per_node", "network"),
    [("A100", "48", "384", 8, "50 GB/s"), ("V100", "", "64", 4, "6.2 GB/s")],
)
def test_the_machine_that_a_source_describes(gpu, nodes, cards, per_node, network):
    layout = "tp=4,pp=4"
    hardware = job_of(gpu=gpu, nodes=nodes, num_gpus=cards, parallelism=layout).hardware
    assert hardware.accelerators_per_node == (per_node,)
    assert hardware.inter_node == network


def test_large_jobs_of_a_machine_that_hung_waited_for_every_kernel():
    assert job_of().recipe.facts["launches"] == "blocking"
    small = job_of(nodes="10", num_gpus="80", parallelism="dp=1,tp=8,pp=10,zero=1")
    assert "launches" not in small.recipe.facts


def test_a_machine_with_narrow_slots_is_known_by_its_source():
    narrow = {"source_repo": "AnswerDotAI/fsdp_qlora", "model": "Llama-2-7b", "gpu": "RTX 3090"}
    layout = {"nodes": "1", "num_gpus": "2", "parallelism": "fsdp full_shard", "gpu_mem_gb": ""}
    assert job_of(**narrow, **layout).hardware.interconnect == "pcie3x8"


@pytest.mark.parametrize("dtype", ["fp8", "mxfp8", "nvfp4", "fp8 (blockwise)"])
def test_narrow_precisions_are_never_taken_for_bf16(dtype):
    assert job_of(compute_dtype=dtype).recipe.training.precision == "fp8"


def test_a_blank_precision_of_nemo_is_not_bf16():
    skipped = job_of(framework="NeMo (Megatron-Core)", compute_dtype="")
    assert isinstance(skipped, Skip)
    assert "compute_dtype" in str(skipped.message)


def test_replicas_may_be_those_of_an_expert():
    spread = {"num_gpus": "16", "nodes": "2", "parallelism": "tp=4,pp=1,cp=1,ep=4,dp=1"}
    layout = job_of(**spread).recipe.parallelism
    assert (layout.tensor, layout.expert) == (4, 4)
    wrong = job_of(num_gpus="16", nodes="2", parallelism="tp=4,pp=8,dp=1")
    assert isinstance(wrong, Skip)
    assert wrong.code == "layout_contradicts"
