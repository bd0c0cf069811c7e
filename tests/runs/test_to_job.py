import pytest

from runs.rows_for_tests import FSDP_QLORA, LITGPT, run_of
from tuneplan.runs.skips import Skip
from tuneplan.runs.to_job import to_job
from tuneplan.spec.stated import StatedJob


def job_of(base=None, /, **cells):
    job = to_job(run_of(base, **cells))
    assert isinstance(job, StatedJob), job
    return job


def code_of(base=None, /, **cells):
    skipped = to_job(run_of(base, **cells))
    assert isinstance(skipped, Skip), skipped
    return skipped.code


def test_a_litgpt_row_becomes_the_job_it_was():
    job = job_of(LITGPT)
    recipe, training = job.recipe, job.recipe.training
    assert job.model == "meta-llama/Llama-2-7b-hf"
    assert (recipe.framework, recipe.framework_version) == ("litgpt", "8641822")
    assert (recipe.objective, recipe.method) == ("sft", "qlora")
    assert (recipe.adapter.r, recipe.adapter.target_modules) == (8, ("query", "value"))
    assert (recipe.quantization.bits, recipe.quantization.type) == (4, "nf4")
    assert recipe.quantization.double_quant is False
    assert (training.dtype, training.precision) == ("bfloat16", None)
    assert (training.packing, training.padding, training.max_length) == (False, "longest", 1304)
    assert training.gradient_checkpointing is False
    assert training.optim == "paged_adamw_32bit"
    assert job.hardware.accelerator == ("A100-SXM4-40GB",)
    assert (job.hardware.num_nodes, job.hardware.accelerators_per_node) == (1, (1,))


def test_a_sharded_row_of_fixed_length_keeps_its_layout_and_its_day():
    job = job_of(FSDP_QLORA)
    assert job.recipe.framework == "fsdp_qlora"
    assert job.recipe.date == "2024-03"
    assert job.recipe.parallelism.strategy == "fsdp"
    assert job.recipe.training.padding == "max_length"
    assert job.data.mean_tokens == 2048
    assert job.hardware.accelerator == ("RTX 3090 24GB",)


def test_what_is_not_stated_stays_blank():
    job = to_job(
        run_of(
            {
                "model": "m",
                "method": "lora",
                "seq_len": "512",
                "micro_batch_per_gpu": "1",
                "num_gpus": "1",
            }
        )
    )
    assert isinstance(job, StatedJob)
    recipe = job.recipe
    assert recipe.framework is None
    assert recipe.training.gradient_checkpointing is None
    assert recipe.training.optim is None
    assert recipe.training.loss is None
    assert recipe.adapter.r is None
    assert job.hardware.accelerator == ()
    assert dict(recipe.facts) == {}


def test_words_without_a_job_key_travel_as_facts():
    facts = job_of(
        kernels="foak-fast-kernels", kbit_prep="no", fused_ce="unsloth CE (foak)"
    ).recipe.facts
    assert facts["kernels"] == "foak-fast-kernels"
    assert facts["kbit_prep"] == "no"
    assert facts["fused_ce"] == "unsloth CE (foak)"
    assert facts["length_kind"].startswith("longest")


@pytest.mark.parametrize(
    ("text", "strategy", "degrees"),
    [
        ("single", None, (1, 1, 1)),
        ("fsdp full_shard dp=2", "fsdp", (1, 1, 1)),
        ("ddp (fsdp no_shard)", "ddp", (1, 1, 1)),
        ("zero=3", "zero3", (1, 1, 1)),
        ("zero=3,ulysses_sp=1", "zero3", (1, 1, 1)),
        ("fsdp2 full_shard", "fsdp2", (1, 1, 1)),
        ("device_map (naive pipeline)", "device_map", (1, 1, 1)),
        ("tp=4,pp=4,dp=1", None, (4, 4, 1)),
        ("dp=1,tp=8,pp=2,zero=1", "zero1", (8, 2, 1)),
        ("tp=2;pp=1;cp=1;ep=1;sp;distributed_optimizer (zero1)", "zero1", (2, 1, 1)),
        ("fsdp=0,tp=2,pp=4,cp=2,vp=5,ep=n/a", None, (2, 4, 2)),
        ("", None, (1, 1, 1)),
    ],
)
def test_layouts_are_read(text, strategy, degrees):
    cards = {"single": "1", "fsdp full_shard dp=2": "2"}.get(text, "16")
    layout = job_of(parallelism=text, num_gpus=cards).recipe.parallelism
    assert (layout.strategy, (layout.tensor, layout.pipeline, layout.context)) == (
        strategy,
        degrees,
    )


def test_zero_on_one_card_stays_zero():
    layout = job_of(parallelism="deepspeed zero=2 (single GPU)").recipe.parallelism
    assert layout.strategy == "zero2"


@pytest.mark.parametrize(
    ("cells", "code"),
    [
        ({"parallelism": "ddp;fsdp", "num_gpus": "8"}, "layout_unclear"),
        ({"parallelism": "gemini (zero3-like)", "num_gpus": "8"}, "layout_unclear"),
        ({"parallelism": "zero=3,ulysses_sp=8", "num_gpus": "8"}, "sequence_parallel"),
        ({"parallelism": "tp=4,pp=8,dp=1", "num_gpus": "16"}, "layout_contradicts"),
        ({"parallelism": "fsdp", "num_gpus": ""}, "not_stated"),
        ({"num_gpus": "6", "nodes": "4", "parallelism": "ddp"}, "nodes_contradict"),
        ({"method": "other"}, "method_unknown"),
        ({"method": ""}, "not_stated"),
        ({"seq_len": ""}, "not_stated"),
        ({"micro_batch_per_gpu": ""}, "not_stated"),
        ({"seq_len": "long"}, "unreadable_cell"),
        ({"quantization": "hqq-4bit"}, "quantization_unknown"),
        ({"method": "lora"}, "quantization_contradicts"),
        ({"gpu": "V100|A10|3090"}, "accelerator_unclear"),
        ({"optimizer": "lora-fa"}, "optimizer_unknown"),
        ({"offload": "somewhere"}, "offload_unclear"),
        ({"length_kind": "padding-free; see tokens_per_sample"}, "padding_free"),
    ],
)
def test_a_row_that_cannot_be_a_job_says_why(cells, code):
    assert code_of(**cells) == code


@pytest.mark.parametrize(
    ("text", "bits", "kind", "double_quant", "method"),
    [
        ("bnb.nf4-dq", 4, "nf4", True, "qlora"),
        ("nf4 (bnb)", 4, "nf4", None, "qlora"),
        ("bnb-int4", 4, None, None, "qlora"),
        ("bnb-8bit", 8, None, None, "qlora"),
        ("gptq-int4", 4, "gptq", None, "gptq-lora"),
        ("int8 (gptq)", 8, "gptq", None, "gptq-lora"),
    ],
)
def test_quantisations_are_told_apart(text, bits, kind, double_quant, method):
    recipe = job_of(quantization=text, double_quant="").recipe
    stated = recipe.quantization
    assert (stated.bits, stated.type, stated.double_quant, recipe.method) == (
        bits,
        kind,
        double_quant,
        method,
    )


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("adamw (torch, fp32 states)", "adamw_torch"),
        ("adamw_torch (HF default)", "adamw_torch"),
        ("torch.optim.AdamW", "adamw_torch"),
        ("torch AdamW (fused)", "adamw_torch_fused"),
        ("bnb.optim.PagedAdamW", "paged_adamw_32bit"),
        ("bitsandbytes AdamW8bit", "adamw_bnb_8bit"),
        ("torchao AdamW8bit", "adamw_torch_8bit"),
        ("AdamW (fused into backward)", "adamw_torch"),
        ("8-bit AdamW (fused into backward)", "adamw_bnb_8bit"),
        ("Muon (hybrid)", "muon"),
        ("sophia", "sophia"),
        ("", None),
    ],
)
def test_optimizers_get_the_names_of_training_arguments(text, name):
    assert job_of(optimizer=text).recipe.training.optim == name


def test_an_optimizer_inside_backward_is_a_fact():
    facts = job_of(optimizer="AdamW (fused into backward)").recipe.facts
    assert facts["optimizer_in_backward"] == "yes"


@pytest.mark.parametrize(
    ("text", "offload", "checkpointing"),
    [
        ("cpu", "params", False),
        ("optimizer->cpu+params->cpu", "params", False),
        ("optimizer", "optimizer", False),
        ("optimizer->cpu+act ckpt->cpu", "optimizer", "offload"),
        ("activations to cpu", None, "offload"),
        ("none", "none", False),
        ("", None, False),
    ],
)
def test_offloads_are_read(text, offload, checkpointing):
    recipe = job_of(offload=text).recipe
    assert recipe.parallelism.offload == offload
    assert recipe.training.gradient_checkpointing == checkpointing


def test_a_micro_batch_follows_from_global_batch_and_accumulation():
    # 64 sequences a step / (4 micro-batches x 2 cards) = 8
    training = job_of(
        FSDP_QLORA, micro_batch_per_gpu="", grad_accum="4", global_batch="64"
    ).recipe.training
    assert training.per_device_train_batch_size == 8


def test_accumulation_is_left_to_the_global_batch_where_only_that_is_stated():
    training = job_of(FSDP_QLORA, grad_accum="", global_batch="64").recipe.training
    assert (training.gradient_accumulation_steps, training.global_batch_size) == ("auto", 64)


def test_many_cards_without_nodes_are_taken_in_eights_and_say_so():
    job = job_of(FSDP_QLORA, num_gpus="64", global_batch="64")
    assert (job.hardware.num_nodes, job.hardware.accelerators_per_node) == (8, (8,))
    assert job.recipe.facts["cards_of_a_node"] == "8 assumed"


def test_free_text_changes_nothing():
    plain, noted = job_of(LITGPT), job_of(LITGPT, notes="amp flag=bf16; full finetune; 8 GPUs")
    assert plain == noted


def test_pretraining_is_an_objective_with_every_weight_trained():
    recipe = job_of(method="pretrain", quantization="", lora_rank="", lora_targets="").recipe
    assert (recipe.objective, recipe.method) == ("pretrain", "full")
    assert recipe.adapter.r is None
