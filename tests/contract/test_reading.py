import json
from decimal import Decimal
from pathlib import Path

import pytest

from tuneplan.contract.job_document import job_document
from tuneplan.contract.reading import load_job, load_job_text
from tuneplan.errors import InvalidRequest, Mistake, UnreadableFile
from tuneplan.spec.stated import StatedJob, StatedRecipe

FULL = Path(__file__).parent / "jobs" / "full.yaml"
MODEL = "model: Qwen/Qwen2.5-7B-Instruct\n"
SIXTY_FOUR = (
    "training: {global_batch_size: 64, per_device_train_batch_size: 2, "
    "gradient_accumulation_steps: 8}\n"
)


def mistakes_of(text: str, **flags: object) -> dict[str, Mistake]:
    with pytest.raises(InvalidRequest) as caught:
        load_job_text(text, **flags)  # type: ignore[arg-type]
    return {mistake.path or "": mistake for mistake in caught.value.mistakes}


def only_mistake(text: str) -> Mistake:
    (mistake,) = mistakes_of(text).values()
    return mistake


def test_the_smallest_job_is_a_model() -> None:
    job = load_job_text(MODEL)
    assert job == StatedJob(model="Qwen/Qwen2.5-7B-Instruct", stated=("model",))
    assert job.recipe == StatedRecipe()


def test_a_job_may_be_a_mapping_or_flags_only() -> None:
    assert load_job({"model": "7B"}).model == "7B"
    assert load_job(overrides={"model": "7B"}).model == "7B"
    assert load_job(set_=["model=7B"]).model == "7B"


def test_the_full_job_keeps_every_key() -> None:
    job = load_job(FULL)
    assert (job.recipe.framework, job.recipe.framework_version) == ("trl", "1.16")
    assert job.recipe.adapter.r == 16
    assert job.recipe.adapter.modules_to_save == ()
    assert job.recipe.training.max_length == 4096
    assert job.recipe.training.loss is None  # auto = blank
    assert job.recipe.training.master_weights is None
    assert job.hardware.accelerator == ("NVIDIA H100 80GB HBM3",)
    assert job.hardware.accelerators_per_node == (1,)
    assert job.hardware.inter_node == "infiniband-400"
    assert job.hardware.host_memory_bytes == 256 * 2**30
    assert job.hardware.disk_bytes_per_s == 7e9
    assert job.hardware.disk_bytes == 4 * 10**12
    assert job.limits.deadline_s == 24 * 3600
    assert (job.limits.budget, job.limits.budget_currency) == (Decimal(500), "USD")
    assert job.limits.headroom_stated
    assert job.project.retry_factor == (1.5, 3.0)
    assert job.base_path == str(FULL.parent)
    assert job.notices == ()


def test_an_unquoted_version_keeps_its_last_zero() -> None:
    assert load_job(FULL).recipe.software["torch"] == "2.10"


@pytest.mark.parametrize("form", ["json", "toml"])
def test_json_and_toml_say_the_same_as_yaml(form: str) -> None:
    texts = {
        "json": '{"model": "7B", "training": {"max_length": 4096, "packing": true},\n'
        ' "limits": {"budget": "500 USD"}}',
        "toml": 'model = "7B"\n[training]\nmax_length = 4096\npacking = true\n'
        '[limits]\nbudget = "500 USD"\n',
    }
    yaml = "model: 7B\ntraining: {max_length: 4096, packing: true}\nlimits: {budget: 500 USD}\n"
    assert load_job_text(texts[form], form=form) == load_job_text(yaml)


@pytest.mark.parametrize(
    ("written", "key", "value"),
    [
        ("torch_dtype: bfloat16", "training.dtype", "bfloat16"),
        ("bf16: true", "training.precision", "bf16"),
        ("fp16: true", "training.precision", "fp16"),
        ("bf16: false", "training.precision", "none"),
        ("tf32: true", "training.precision", "tf32"),
        ("max_seq_length: 512", "training.max_length", 512),
        ("use_liger_kernel: true", "training.use_liger_kernel", True),
        ("per_device_train_batch_size: 4", "training.per_device_train_batch_size", 4),
        ("group_by_length: true", "training.padding", "grouped"),
        ("gradient_checkpointing_kwargs: {use_reentrant: false}", "training.use_reentrant", False),
        ("lora_r: 8", "adapter.r", 8),
        ("lora_alpha: 16", "adapter.lora_alpha", 16.0),
        ("use_rslora: true", "adapter.use_rslora", True),
        ("lora_target_modules: [q_proj, v_proj]", "adapter.target_modules", ("q_proj", "v_proj")),
        ("load_in_4bit: true", "quantization.bits", 4),
        ("load_in_8bit: true", "quantization.type", "int8"),
        ("bnb_4bit_quant_type: fp4", "quantization.type", "fp4"),
        ("bnb_4bit_use_double_quant: true", "quantization.double_quant", True),
    ],
)
def test_hugging_face_spellings_mean_our_keys(written: str, key: str, value: object) -> None:
    section, name = key.split(".")
    recipe = load_job_text(f"model_name_or_path: 7B\n{written}\n").recipe
    assert getattr(getattr(recipe, section), name) == value


def test_use_dora_and_method_dora_are_the_same() -> None:
    by_flag = load_job_text(MODEL + "use_dora: true\n").recipe
    by_method = load_job_text(MODEL + "method: dora\n").recipe
    assert by_flag.method == by_method.method == "dora"
    assert by_flag.adapter.use_dora
    assert by_method.adapter.use_dora


def test_a_quantised_base_means_qlora_and_says_so() -> None:
    job = load_job_text(MODEL + "load_in_4bit: true\n")
    assert job.recipe.method == "qlora"
    assert [notice.message.code for notice in job.notices] == ["method_implied"]


def test_keys_that_change_nothing_are_accepted_and_named() -> None:
    job = load_job_text(MODEL + "learning_rate: 2e-5\ntraining: {warmup_ratio: 0.1, seed: 42}\n")
    (notice,) = job.notices
    assert notice.message.code == "keys_left_aside"
    assert "learning_rate, training.warmup_ratio, training.seed" in str(notice.message)


def test_a_list_is_a_choice() -> None:
    job = load_job_text(
        MODEL + "method: [lora, qlora]\nhardware: {accelerator: [H100, A100], "
        "accelerators_per_node: [1, 2, 4]}\ntraining: {per_device_train_batch_size: [1, 2]}\n"
    )
    assert job.recipe.method is None
    assert job.choices["method"] == ("lora", "qlora")
    assert job.hardware.accelerators_per_node == (1, 2, 4)
    assert job.recipe.training.per_device_train_batch_size == (1, 2)
    assert job.choices["hardware.accelerator"] == ("H100", "A100")


def test_a_list_of_one_is_fixed() -> None:
    job = load_job_text(MODEL + "method: [lora]\n")
    assert job.recipe.method == "lora"
    assert not job.choices


def test_max_steps_beside_epochs_is_allowed_and_told() -> None:
    job = load_job_text(MODEL + "training: {max_steps: 10, num_train_epochs: 3}\n")
    assert [notice.message.code for notice in job.notices] == ["max_steps_counts"]


def test_a_month_is_30_days_and_that_is_told() -> None:
    job = load_job_text(MODEL + "limits: {deadline: 2 months}\n")
    assert job.limits.deadline_s == 2 * 30 * 24 * 3600
    assert [notice.message.code for notice in job.notices] == ["month_is_30_days"]


def test_every_mistake_is_told_at_once_with_its_line() -> None:
    found = mistakes_of(
        """\
model: 7B
method: lora
methd: lora
load_in_4bit: true
training:
  max_lenght: 4096
  max_length: 1000000000000
  per_device_train_batch_size: -2
hardware:
  host_memory: 256
  num_gpus: 8
limits:
  headroom: 1.5
  budget: 500
"""
    )
    assert {path: mistake.line for path, mistake in found.items()} == {
        "methd": 3,
        "load_in_4bit": 4,
        "training.max_lenght": 6,
        "training.max_length": 7,
        "training.per_device_train_batch_size": 8,
        "hardware.host_memory": 10,
        "hardware.num_gpus": 11,
        "limits.headroom": 13,
        "limits.budget": 14,
    }
    assert found["methd"].near == ("method",)
    assert found["training.max_lenght"].near[0] == "training.max_length"
    assert found["hardware.num_gpus"].near[0] == "hardware.accelerators_per_node"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("training: {max_length: 0}", "out_of_bounds"),
        ("training: {max_length: 4096.5}", "not_whole"),
        ("training: {max_length: many}", "wrong_kind"),
        ("training: {max_length: .nan}", "not_finite"),
        ("training: {max_length: .inf}", "not_finite"),
        ("training: {max_length: true}", "wrong_kind"),
        ("training: {max_length: []}", "empty_choice"),
        ("training: {packing: 1}", "wrong_kind"),
        ("training: {optim: ''}", "empty_text"),
        ("training: 5", "not_a_section"),
        ("method: lorra", "not_one_of"),
        ("objective: [sft, dpo]", "wrong_kind"),
        ("framework: trl==", "empty_text"),
        ("framework: tlr", "not_one_of"),
        ("software: {date: 2026-13}", "not_a_version"),
        ("hardware: {host_memory: 1e999 GB}", "absurd_quantity"),
        ("hardware: {host_memory: -5 GB}", "absurd_quantity"),
        ("hardware: {host_memory: 5 GX}", "unknown_unit"),
        ("hardware: {inter_node: carrier-pigeon}", "not_a_link"),
        ("limits: {budget: 5 XYZ}", "unknown_currency"),
        ("limits: {budget: $500}", "unknown_currency"),
        ("project: {retry_factor: [3, 1]}", "range_reversed"),
        ("project: {idle_fraction: [0.4, 0.1]}", "range_reversed"),
        ("project: {idle_fraction: 1}", "out_of_bounds"),
        ("project: {experiment_fraction: 0}", "out_of_bounds"),
        ("project: {failure_fraction: [0.1, 0.2, 0.3]}", "not_a_range_of"),
        ("project: {setup_time: 4}", "quantity_without_unit"),
        ("project: {setup_time: [2 h, 1 h]}", "range_reversed"),
        ("project: {evaluation_time: soon}", "quantity_without_unit"),
        ("project: {start: next week}", "not_a_day"),
        ("project: {start: 2026-02-30}", "not_a_day"),
        ("project: {storage_price: 0.05}", "money_without_currency"),
        ("project: {network: 1 GB}", "unknown_unit"),
        ("data: {num_samples: 9, quantiles: {p50: 9, p95: 3}}", "quantiles_fall"),
        ("data: {num_samples: 9, quantiles: {p500: 9}}", "not_a_quantile"),
    ],
)
def test_impossible_values_are_refused(body: str, code: str) -> None:
    assert only_mistake(MODEL + body).message.code == code


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("method: lora\nquantization: {bits: 4}", "method_without_quantization"),
        ("method: full\nload_in_8bit: true", "method_without_quantization"),
        ("method: full\nadapter: {r: 8}", "adapter_unused"),
        ("method: dora\nuse_dora: false", "dora_denied"),
        ("method: qlora\nquantization: {bits: 8, type: nf4}", "type_and_bits"),
        ("method: qlora\nquantization: {type: gptq}", "qlora_gptq"),
        ("method: gptq-lora\nquantization: {type: nf4}", "gptq_type"),
        ("method: qlora\nquantization: {bits: 3}", "qlora_bits"),
        ("method: lora\ntraining: {trained_layers: 2}", "trained_layers_unused"),
        ("data: {path: x.jsonl, num_samples: 5, mean_tokens: 9}", "two_kinds_of_data"),
        ("data: {path: x.jsonl, profile: y.json}", "two_kinds_of_data"),
        ("data: {num_samples: 10, mean_tokens: 9, total_tokens: 500}", "tokens_do_not_add_up"),
        ("data: {num_samples: 10}", "samples_without_tokens"),
        ("data: {mean_tokens: 10}", "tokens_without_samples"),
        ("data: {num_samples: 10, total_tokens: 5}", "under_one_token"),
        ("training: {packing: true, padding: longest}", "packed_and_padded"),
        ("training: {use_liger_kernel: true, loss: full}", "liger_loss"),
        ("training: {max_length: 512}\nmax_seq_length: 1024", "said_twice"),
        ("bf16: true\nfp16: true", "bf16_and_fp16"),
        ("load_in_4bit: true\nload_in_8bit: true", "four_and_eight_bits"),
        ("hardware: {num_nodes: 4}\nlimits: {max_nodes: 2}", "more_nodes_than_allowed"),
        ("parallelism: {strategy: ddp, offload: params}", "ddp_offload"),
        ("hardware: {accelerators_per_node: 6}\nparallelism: {tensor: 4}", "degrees_do_not_divide"),
        (SIXTY_FOUR + "hardware: {accelerators_per_node: 2}", "global_batch_does_not_match"),
        (
            "training: {global_batch_size: 63, per_device_train_batch_size: 2}",
            "global_batch_does_not_match",
        ),
        ("accelerators: [H100]", "not_a_fact_file"),
    ],
)
def test_contradictions_are_refused(body: str, code: str) -> None:
    mistake = only_mistake(MODEL + body)
    assert mistake.message.code == code
    assert mistake.line is not None
    assert mistake.how_to_fix is not None or mistake.near


def test_a_global_batch_that_adds_up_is_accepted() -> None:
    # 2 sequences x 8 micro-batches x 4 accelerators = 64
    job = load_job_text(MODEL + SIXTY_FOUR + "hardware: {accelerators_per_node: 4}\n")
    assert job.recipe.training.global_batch_size == 64


def test_a_missing_model_says_how_to_name_one() -> None:
    mistake = only_mistake("method: lora")
    assert mistake.message.code == "no_model"
    assert "--model" in str(mistake.how_to_fix)
    assert only_mistake("model: null").message.code == "no_model"


def test_a_key_that_stands_twice_is_refused_with_both_lines() -> None:
    mistake = only_mistake("model: 7B\ntraining:\n  max_steps: 1\n  max_steps: 2\n")
    assert (mistake.path, mistake.line) == ("training.max_steps", 4)
    assert "line 3" in str(mistake.message)


def test_a_json_key_that_stands_twice_is_refused() -> None:
    with pytest.raises(InvalidRequest) as caught:
        load_job_text('{"model": "7B",\n "model": "13B"}', form="json")
    assert caught.value.mistakes[0].message.code == "key_twice"


def test_json_and_toml_mistakes_have_lines_too() -> None:
    for form, text in (
        ("json", '{\n\t"model": "7B",\n\t"training": {\n\t\t"max_length": -1}}'),
        ("toml", 'model = "7B"\n\n[training]\nmax_length = -1\n'),
    ):
        with pytest.raises(InvalidRequest) as caught:
            load_job_text(text, form=form)
        assert [mistake.line for mistake in caught.value.mistakes] == [4]


def test_yaml_anchors_and_merges_work() -> None:
    job = load_job_text(
        "model: 7B\ntraining: &base {max_length: 512, packing: true}\n"
        "hardware: {accelerator: H100}\n"
    )
    merged = load_job_text(
        "model: 7B\ntraining:\n  <<: {max_length: 512, packing: false}\n"
        "  packing: true\nhardware: {accelerator: H100}\n"
    )
    assert job == merged


class TestPrecedence:
    def test_a_flag_goes_before_the_file(self) -> None:
        job = load_job(FULL, overrides={"training.max_length": 512}, set_=["goal=fastest"])
        assert job.recipe.training.max_length == 512
        assert job.goal == "fastest"

    def test_set_reaches_lists_and_other_spellings(self) -> None:
        job = load_job(FULL, set_=["hardware.accelerator=[H100, A100]", "max_seq_length=128"])
        assert job.hardware.accelerator == ("H100", "A100")
        assert job.recipe.training.max_length == 128

    def test_a_method_flag_leaves_sections_of_the_file_aside_that_do_not_go_with_it(self) -> None:
        job = load_job(FULL, overrides={"method": "full"})
        assert job.recipe.method == "full"
        assert job.recipe.adapter.r is None
        assert [notice.path for notice in job.notices] == ["adapter"]

    def test_a_data_flag_replaces_the_numbers_of_the_file(self) -> None:
        source = {"model": "7B", "data": {"num_samples": 5, "mean_tokens": 9}}
        job = load_job(source, overrides={"data.path": "x.jsonl"})
        assert job.data.path == ("x.jsonl",)
        assert job.data.num_samples is None

    def test_a_path_flag_refers_to_the_working_directory(self) -> None:
        job = load_job(FULL, overrides={"data.path": "x.jsonl"})
        assert job.data.path == (str(Path("x.jsonl").absolute()),)

    def test_a_model_folder_of_a_flag_refers_to_the_working_directory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "weights").mkdir()
        monkeypatch.chdir(tmp_path)
        job = load_job(FULL, overrides={"model": "weights"})
        assert job.model == str(tmp_path / "weights")
        assert load_job(FULL, overrides={"model": "7B"}).model == "7B"

    def test_a_setting_that_is_none_is_refused(self) -> None:
        with pytest.raises(InvalidRequest) as caught:
            load_job({"model": "7B"}, set_=["training.max_length", "=5", "a=b: c: d"])
        codes = [mistake.message.code for mistake in caught.value.mistakes]
        assert codes == ["not_a_setting"]

    def test_a_mistake_in_a_flag_has_no_line(self) -> None:
        with pytest.raises(InvalidRequest) as caught:
            load_job(FULL, overrides={"training.max_length": -1})
        (mistake,) = caught.value.mistakes
        assert (mistake.path, mistake.line, mistake.file) == ("training.max_length", None, None)


class TestFiles:
    def read(self, path: Path) -> UnreadableFile:
        with pytest.raises(UnreadableFile) as caught:
            load_job(path)
        return caught.value

    @pytest.mark.parametrize(
        ("content", "code", "line"),
        [
            (b"", "empty_file", None),
            (b" \n\t\n", "empty_file", None),
            (b"just words", "not_a_mapping", 1),
            (b"- a\n- b\n", "not_a_mapping", 1),
            (b"model: 7B\ntraining: {max_length: 5\n", "broken_yaml", 3),
            (b"model: 7B\n\ttraining: 5\n", "tab_in_yaml", 2),
            (b"model: 7B\n---\nmodel: 8B\n", "second_document", 2),
            (b"model: !!python/name:os.system\n", "python_tag", 1),
            (b"model: 7B\nname: \xff\xfe\n", "not_utf8", 2),
            (b"model: 7B\nname: \x00\n", "odd_character", 2),
            (b"[" * 5000, "too_deep", None),
            (b"# " + b"x" * 200_000, "too_large", None),
        ],
    )
    def test_a_broken_file_is_told_with_its_line(
        self, tmp_path: Path, content: bytes, code: str, line: int | None
    ) -> None:
        path = tmp_path / "job.yaml"
        path.write_bytes(content)
        error = self.read(path)
        assert (error.message.code, error.line) == (code, line)

    def test_endless_anchors_end(self, tmp_path: Path) -> None:
        path = tmp_path / "job.yaml"
        lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
        lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
        path.write_text("\n".join(lines))
        assert self.read(path).message.code == "too_many_values"

    def test_broken_json_and_toml_are_told_with_their_line(self, tmp_path: Path) -> None:
        for name, text, code in (
            ("job.json", '{"model": "7B",\n"x": }', "broken_json"),
            ("job.toml", "model = '7B'\nx =\n", "broken_toml"),
        ):
            (tmp_path / name).write_text(text)
            error = self.read(tmp_path / name)
            assert (error.message.code, error.line) == (code, 2)

    def test_a_file_that_is_absent_or_a_folder_is_told(self, tmp_path: Path) -> None:
        assert self.read(tmp_path / "absent.yaml").message.code == "no_such_file"
        assert self.read(tmp_path).message.code == "is_a_folder"

    def test_utf_16_with_its_mark_is_read(self, tmp_path: Path) -> None:
        path = tmp_path / "job.yaml"
        path.write_bytes(MODEL.encode("utf-16"))
        assert load_job(path).model == "Qwen/Qwen2.5-7B-Instruct"

    def test_a_json_answer_of_json_dumps_is_read(self, tmp_path: Path) -> None:
        path = tmp_path / "job.json"
        path.write_text(json.dumps({"model": "模型/七", "data": "x.jsonl"}, indent="\t"))
        assert load_job(path).data.path == ("x.jsonl",)


def test_a_project_is_read_and_said_again() -> None:
    written = {
        "model": "7B",
        "project": {
            "num_experiments": 0,
            "experiment_fraction": [0.1, 0.3],
            "retry_factor": 2,
            "evaluation_time": ["30 min", "1 h"],
            "setup_time": "4 h",
            "start": "2026-12-07",
            "duration": "2 month",
            "network": "1 Gbit/s",
            "storage": "2 TB",
            "storage_price": "0.05 USD",
        },
    }
    job = load_job(written)
    assert job.project.evaluation_time == (1800.0, 3600.0)
    assert job.project.setup_time == (14400.0, 14400.0)
    assert job.project.network == 125e6
    assert load_job(job_document(job)).project == job.project
