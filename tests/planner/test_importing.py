"""Configurations of any kind become a job whose mistakes stand in the user's own file."""

from pathlib import Path

import pytest

from tuneplan.errors import InvalidRequest, UnreadableFile
from tuneplan.formats.foreign import Fate
from tuneplan.formats.reading import parse_foreign
from tuneplan.planner.importing import import_job, is_job_file, read_configuration


def test_a_job_file_may_be_given_too(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("model: 7B\ntraining: {max_length: 512}\n")
    read = read_configuration(path, overrides={"hardware.accelerator": "H100 SXM"})
    assert read.format == "tuneplan"
    assert read.imported is None
    assert read.job.hardware.accelerator == ("H100 SXM",)
    assert read.job.recipe.training.max_length == 512
    assert read.job.places["training.max_length"] == (str(path), 2)


def test_the_framework_of_the_command_line_goes_before_the_file_s(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("model: 7B\nframework: axolotl\ntraining: {max_length: 512}\n")
    read = read_configuration(path, framework="trl==0.12.0")
    assert (read.job.recipe.framework, read.job.recipe.framework_version) == ("trl", "0.12.0")


def test_every_mistake_of_a_job_file_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("model: 7B\ntraining:\n  max_length: -1\nhardware:\n  acelerator: T4\n")
    with pytest.raises(InvalidRequest) as caught:
        read_configuration(path)
    assert [(one.path, one.line) for one in caught.value.mistakes] == [
        ("training.max_length", 3),
        ("hardware.acelerator", 5),
    ]


def test_what_is_nobody_s_configuration_is_refused_with_what_there_is(tmp_path: Path) -> None:
    path = tmp_path / "shopping.yaml"
    path.write_text("apples: 3\npears: 4\n")
    with pytest.raises(UnreadableFile) as caught:
        read_configuration(path)
    assert "--framework" in str(caught.value)


def test_a_job_file_is_not_imported(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("model: 7B\nlimits: {headroom: 0.1}\n")
    with pytest.raises(UnreadableFile) as caught:
        import_job(path)
    assert caught.value.message.code == "already_a_job_file"


@pytest.mark.parametrize(
    ("text", "candidates", "ours"),
    [
        ("model: 7B\n", (), True),
        ("model: 7B\nmethod: lora\ndata: x.jsonl\n", ("ms-swift",), True),
        ("model: 7B\ntrain_type: lora\ndataset: x\n", ("ms-swift",), False),
        ("model: 7B\ntrainig: {max_length: 4}\n", (), True),
        ("model: {_component_: torchtune.models.llama3.llama3_8b}\n", ("torchtune",), False),
        ("training: {steps: 3}\nname: a\norchestration: {x: 1}\n", ("torchtune",), False),
        ("model_name_or_path: x/y\nmax_length: 512\n", ("trl",), False),
        ("hardware: {accelerator: T4}\n", (), True),
    ],
)
def test_job_files_are_told_from_configurations(
    text: str, candidates: tuple[str, ...], ours: bool
) -> None:
    assert is_job_file(parse_foreign(text, name="x.yaml"), candidates) is ours


LLAMA = "meta-llama/Llama-3.1-8B"
SAMPLES = {
    "llamafactory": (
        "train.yaml",
        (
            f"model_name_or_path: {LLAMA}\nstage: sft\nfinetuning_type: lora\nlora_rank: 12\n"
            "cutoff_len: 1500\nbf16: true\n"
        ),
        ("cutoff_len", 5),
    ),
    "axolotl": (
        "train.yml",
        (
            f"base_model: {LLAMA}\nadapter: lora\nlora_r: 12\nlora_alpha: 24\n"
            "sequence_len: 1500\nlearning_rate: 1.0e-4\nbf16: true\n"
        ),
        ("sequence_len", 5),
    ),
    "trl": (
        "sft.yaml",
        (
            f"model_name_or_path: {LLAMA}\nuse_peft: true\nlora_r: 12\ndataset_name: a/b\n"
            "max_length: 1500\nbf16: true\n"
        ),
        ("max_length", 5),
    ),
    "litgpt": (
        "lora.yaml",
        (
            f"checkpoint_dir: checkpoints/{LLAMA}\nprecision: bf16-true\nlora_r: 12\ntrain:\n"
            "  max_seq_length: 1500\n  micro_batch_size: 2\n  global_batch_size: 8\n"
        ),
        ("train.max_seq_length", 5),
    ),
    "ms-swift": (
        "train.sh",
        (
            f"swift sft \\\n --model {LLAMA} \\\n --train_type lora \\\n --lora_rank 12 \\\n"
            " --max_length 1500\n"
        ),
        ("max_length", 5),
    ),
    "transformers": (
        "run.sh",
        (
            f"torchrun --nproc_per_node 2 \\\n run_clm.py --model_name_or_path {LLAMA} \\\n"
            " --do_train --bf16 \\\n --per_device_train_batch_size 3 \\\n --block_size 1500\n"
        ),
        ("block_size", 5),
    ),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_the_configurations_of_frameworks_become_jobs_that_know_their_lines(
    name: str, tmp_path: Path
) -> None:
    file, text, (key, line) = SAMPLES[name]
    path = tmp_path / file
    path.write_text(text)
    read = read_configuration(path, overrides={"hardware.accelerator": "H100 SXM"})
    assert read.format == name
    assert read.job.recipe.training.max_length == 1500
    origin = read.origin("training.max_length")
    assert origin is not None
    assert (origin.path, origin.file, origin.line) == (key, str(path), line)
    assert read.imported is not None
    assert [one.path for one in read.imported.with_fate(Fate.NOT_UNDERSTOOD)] == []


def test_a_file_that_says_only_how_a_job_is_spread_needs_a_model(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    path.write_text('{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}')
    with pytest.raises(InvalidRequest) as caught:
        read_configuration(path)
    (mistake,) = caught.value.mistakes
    assert "--model" in str(mistake.how_to_fix)
    assert str(path) in str(mistake.message)
    read = read_configuration(path, overrides={"model": LLAMA})
    assert read.job.recipe.parallelism.strategy == "zero3"


def test_a_file_that_another_one_names_is_read_and_its_lines_are_its_own(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(
        '{\n  "bf16": {"enabled": true},\n  "zero_optimization": {\n    "stage": 2\n  }\n}\n'
    )
    path = tmp_path / "train.yaml"
    path.write_text(
        f"model_name_or_path: {LLAMA}\nstage: sft\nfinetuning_type: lora\nbf16: true\n"
        "deepspeed: ds.json\ncutoff_len: 1500\n"
    )
    read = read_configuration(path)
    assert len(read.files) == 2
    origin = read.origin("parallelism.strategy")
    assert origin is not None
    assert (Path(origin.file).name, origin.path, origin.line) == (
        "ds.json",
        "zero_optimization.stage",
        4,
    )


def test_a_cap_on_rows_is_told_where_the_files_given_count_whole(tmp_path: Path) -> None:
    path, rows = tmp_path / "train.yaml", tmp_path / "rows.jsonl"
    path.write_text(
        "model_name_or_path: Qwen/Qwen2.5-7B\nstage: sft\nfinetuning_type: lora\n"
        "dataset: ours\nmax_samples: 100\ntemplate: qwen\n"
    )
    rows.write_text('{"text": "a"}\n')
    for said, words in (
        ({"data.path": str(rows)}, "counted whole"),
        ({"data.num_samples": 100, "data.mean_tokens": 600}, "the data that you state"),
    ):
        imported = read_configuration(path, overrides=said).imported
        assert imported is not None
        (key,) = (one for one in imported.with_fate(Fate.NOT_CARRIED) if one.path == "max_samples")
        assert words in str(key.why)
