"""LLaMA-Factory's files and launch lines say their job, and every key of them has a fate."""

import pytest

from tuneplan.errors import InvalidRequest
from tuneplan.formats import llamafactory
from tuneplan.formats.foreign import Fate
from tuneplan.formats.reading import companions_of, no_companions, parse_foreign, read_foreign

SFT = """\
model_name_or_path: acme/Base-8B
trust_remote_code: true
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 16
lora_target: q_proj,v_proj
additional_target: embed_tokens,lm_head
dataset: ours
template: plain
cutoff_len: 4096
packing: true
output_dir: out
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
learning_rate: 1.0e-4
num_train_epochs: 2
bf16: true
flash_attn: fa2
eval_strategy: steps
eval_steps: 0.1
val_size: 0.05
"""


def load(text, name="train.yaml", version=None):
    document = parse_foreign(text, name=name)
    assert llamafactory.recognise(document) > 0.5
    return llamafactory.load(document, companion=no_companions, version=version)


def test_a_lora_file_in_the_words_of_a_job():
    found = load(SFT, version="0.9.3")
    assert found.job == {
        "framework": "llamafactory==0.9.3",
        "model": "acme/Base-8B",
        "objective": "sft",
        "method": "lora",
        "adapter": {
            "r": 16,
            "target_modules": ["q_proj", "v_proj"],
            "modules_to_save": ["embed_tokens", "lm_head"],
        },
        "data": {"eval_fraction": 0.05},
        "training": {
            "max_length": 4096,
            "packing": True,
            "attn_implementation": "flash_attention_2",
            "per_device_train_batch_size": 2,
            "gradient_accumulation_steps": 4,
            "num_train_epochs": 2.0,
            "precision": "bf16",
            "eval_strategy": "steps",
            "eval_steps": 0.1,
        },
    }
    assert not found.with_fate(Fate.NOT_UNDERSTOOD)
    assert [key.path for key in found.with_fate(Fate.NOT_CARRIED)] == ["dataset"]
    assert found.places["training.max_length"] == ("train.yaml", 11)
    assert "remote_code" in [notice.message.code for notice in found.notices]


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("finetuning_type: full\npure_bf16: true", {"precision": "none", "dtype": "bfloat16"}),
        ("finetuning_type: full\nfp8: true\nbf16: true", {"precision": "fp8"}),
        ("finetuning_type: full\ndo_train: true", {"precision": "fp32"}),
        ("finetuning_type: full\nbf16: false", {"precision": "fp32"}),
        ("finetuning_type: lora\nbf16: false\nfp16: false", {"precision": "bf16"}),
        ("finetuning_type: full\nbf16: false\nfp16: true", {"precision": "fp16"}),
        (
            (
                "finetuning_type: full\nfp16: true\ndisable_gradient_checkpointing: true"
                "\ngradient_checkpointing: true"
            ),
            {"precision": "fp16", "gradient_checkpointing": False},
        ),
        (
            "finetuning_type: full\nbf16: true\nuse_unsloth_gc: true",
            {"precision": "bf16", "gradient_checkpointing": "offload"},
        ),
        (
            "finetuning_type: freeze\nfreeze_trainable_layers: 4\nbf16: true",
            {"trained_layers": 4, "precision": "bf16"},
        ),
        (
            "finetuning_type: full\nbf16: true\nuse_muon: true\ngroup_by_length: true",
            {"precision": "bf16", "optim": "muon", "padding": "grouped"},
        ),
    ],
)
def test_switches(lines, says):
    found = load(f"model_name_or_path: a/b\nstage: sft\ntemplate: x\n{lines}\n")
    assert found.job["training"] == says


def test_names_of_old_releases():
    found = load(
        "model_name_or_path: a/b\nstage: sft\nfinetuning_type: freeze\ntemplate: x\nfp16: true\n"
        "flash_attn: true\nsft_packing: true\nnum_layer_trainable: 3\ncheckpoint_dir: saved\n"
        "name_module_trainable: all\nmax_source_length: 512\nmax_target_length: 256\n"
        "dpo_beta: 0.1\nper_gpu_train_batch_size: 2\nevaluation_strategy: 'no'\n"
    )
    assert found.job["training"] == {
        "trained_layers": 3,
        "max_length": 768,
        "packing": True,
        "attn_implementation": "flash_attention_2",
        "per_device_train_batch_size": 2,
        "precision": "fp16",
        "eval_strategy": "no",
    }
    assert not found.with_fate(Fate.NOT_UNDERSTOOD)


def test_a_quantised_base():
    found = load(
        "model_name_or_path: a/b\nstage: dpo\npref_loss: simpo\nfinetuning_type: lora\n"
        "quantization_bit: 4\nquantization_type: fp4\ndouble_quantization: false\nuse_dora: true\n"
    )
    assert (found.job["method"], found.job["objective"]) == ("qlora", "simpo")
    assert found.job["quantization"] == {"bits": 4, "type": "fp4", "double_quant": False}
    assert found.job["adapter"] == {"use_dora": True}


def test_a_base_that_is_stored_quantised_is_seen_by_its_name():
    text = "stage: sft\nfinetuning_type: lora\ntemplate: x\nmodel_name_or_path: a/Base-8B-{}\n"
    assert load(text.format("GPTQ")).job["method"] == "gptq-lora"
    assert [m.path for m in load(text.format("AWQ")).refusals] == ["model_name_or_path"]


@pytest.mark.parametrize(
    "line",
    [
        *("use_galore: true", "use_badam: true", "use_apollo: true", "use_adam_mini: true"),
        *("use_kt: true", "use_hyper_parallel: true", "mixture_of_depths: convert"),
        *(
            "finetuning_type: oft",
            "use_llama_pro: true",
            "quantization_bit: 4\nquantization_method: hqq",
        ),
        *("export_dir: out", "do_train: false\ndo_predict: true", "use_asft_loss: true"),
    ],
)
def test_what_has_no_formula_is_refused_by_name(line):
    start = "" if "finetuning_type" in line else "finetuning_type: lora\n"
    found = load(f"model_name_or_path: a/b\nstage: sft\ntemplate: x\n{start}{line}\n")
    assert found.refusals[0].path == line.split("\n")[-1].split(":")[0]
    assert not found.with_fate(Fate.NOT_UNDERSTOOD)


@pytest.mark.parametrize(
    ("line", "near"),
    [
        ("flash_attn: fa22", "fa2"),
        ("stage: stf", "sft"),
        ("finetuning_type: lorra", "lora"),
        ("optim: adamw_torch_fusd", "adamw_torch_fused"),
        ("eval_strategy: step", "steps"),
        ("quantization_bit: 5", "4"),
    ],
)
def test_an_unknown_word_names_the_nearest_and_its_line(line, near):
    base = ["model_name_or_path: a/b", "template: x", "lora_rank: 8", "lora_target: all"]
    base += [one for one in ("stage: sft", "finetuning_type: lora") if one[:5] != line[:5]]
    text = "\n".join([*base, line])
    with pytest.raises(InvalidRequest) as raised:
        load(text)
    (mistake,) = raised.value.mistakes
    assert mistake.near[0] == near
    assert mistake.line == len(base) + 1
    assert mistake.file == "train.yaml"


def test_a_quantised_base_cannot_be_trained_in_full():
    with pytest.raises(InvalidRequest, match="by adapters only"):
        load(
            "model_name_or_path: a/b\nstage: sft\nfinetuning_type: full\nquantization_bit: 4\n"
            "template: x\n"
        )


def test_a_deepspeed_file_is_followed_and_contradictions_are_refused(tmp_path):
    (tmp_path / "ds").mkdir()
    engine = tmp_path / "ds" / "zero.json"
    engine.write_text(
        '{"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3,\n'
        ' "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}}}'
    )
    path = tmp_path / "train.yaml"
    path.write_text(SFT + "deepspeed: ds/zero.json\n")
    found = llamafactory.load(read_foreign(path), companion=companions_of(path), version=None)
    assert found.job["parallelism"] == {"strategy": "zero3", "offload": "params"}
    assert found.job["training"]["precision"] == "bf16"
    assert found.files == (str(path), str(engine))
    assert not found.with_fate(Fate.NOT_UNDERSTOOD)

    engine.write_text('{"zero_optimization": {"stage": 2},\n "fp16": {"enabled": true}}')
    with pytest.raises(InvalidRequest) as raised:
        llamafactory.load(read_foreign(path), companion=companions_of(path), version=None)
    (mistake,) = raised.value.mistakes
    assert (mistake.file, mistake.path, mistake.line) == (str(engine), "fp16.enabled", 2)
    assert f"bf16: True in {path} (line 18)" in str(mistake.message)


def test_data_sets_that_are_listed_and_here_are_the_data(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "rows.jsonl").write_text('{"text": "a"}\n')
    (tmp_path / "data" / "dataset_info.json").write_text('{"ours": {"file_name": "rows.jsonl"}}')
    path = tmp_path / "train.yaml"
    path.write_text(SFT)
    found = llamafactory.load(read_foreign(path), companion=companions_of(path), version=None)
    assert found.job["data"] == {"eval_fraction": 0.05, "path": "data/rows.jsonl"}


def test_a_launch_line_says_processes_and_goes_before_its_file(tmp_path):
    (tmp_path / "train.yaml").write_text(SFT)
    script = tmp_path / "run.sh"
    script.write_text(
        "FORCE_TORCHRUN=1 CUDA_VISIBLE_DEVICES=0,1,2,3 llamafactory-cli train train.yaml \\\n"
        "    cutoff_len=1024 output_dir=elsewhere\n"
    )
    document = read_foreign(script)
    assert llamafactory.recognise(document) == 1.0
    found = llamafactory.load(document, companion=companions_of(script), version=None)
    assert found.job["hardware"] == {"accelerators_per_node": 4}
    assert found.job["training"]["max_length"] == 1024
    assert found.places["training.max_length"] == (str(script), 2)
    assert found.places["adapter.r"] == (str(tmp_path / "train.yaml"), 6)
    assert not found.with_fate(Fate.NOT_UNDERSTOOD)


def test_megatron_inside_is_counted_as_megatron():
    found = load(
        "model_name_or_path: a/b\nstage: sft\nfinetuning_type: full\ntemplate: x\nbf16: true\n"
        "tensor_model_parallel_size: 4\npipeline_model_parallel_size: 2\n"
        "sequence_parallel: true\nuse_distributed_optimizer: true\n"
        "recompute_granularity: selective\noverlap_grad_reduce: true\n"
    )
    assert found.job["framework"] == "megatron"
    assert found.job["parallelism"] == {"tensor": 4, "pipeline": 2, "strategy": "zero1"}
    assert found.job["training"]["gradient_checkpointing"] == "selective"
    assert [notice.message.code for notice in found.notices] == ["mca_trains"]
    assert not found.with_fate(Fate.NOT_UNDERSTOOD)
    start = "model_name_or_path: a/b\nstage: sft\nfinetuning_type: lora\n"
    bridged = load(f"{start}use_megatron_bridge: true\n")
    assert bridged.job["framework"] == "nemo"


def test_a_file_of_the_new_trainer():
    found = load(
        "model: acme/Base-1B\nmodel_class: llm\ncutoff_len: 2048\nglobal_batch_size: 32\n"
        "bf16: true\nbatching_strategy: padding_free\ntrain_dataset: data/x.yaml\n"
        "peft_config: {name: lora, r: 16, target_modules: all}\n"
        "quant_config: {name: bnb, quantization_bit: 4}\ndist_config: {name: fsdp2}\n"
        "kernel_config: {name: liger_kernel}\noptim_config: {name: muon, momentum: 0.95}\n"
    )
    assert found.job == {
        "framework": "llamafactory",
        "model": "acme/Base-1B",
        "method": "qlora",
        "adapter": {"r": 16, "target_modules": "all-linear"},
        "quantization": {"bits": 4},
        "training": {
            "per_device_train_batch_size": 1,
            "global_batch_size": 32,
            "max_length": 2048,
            "precision": "bf16",
            "optim": "muon",
            "padding": "none",
            "use_liger_kernel": True,
        },
        "parallelism": {"strategy": "fsdp2"},
    }
    assert not found.with_fate(Fate.NOT_UNDERSTOOD)


def test_an_adapter_without_half_precision_is_told_to_be_counted_with_it():
    found = load("model_name_or_path: a/b\nstage: sft\nfinetuning_type: lora\nbf16: false\n")
    told = [notice.message.code for notice in found.notices if notice.path == "bf16"]
    assert told == ["no_half_for_adapter"]
