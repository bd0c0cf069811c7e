"""What is wrong with the input is told: what, where, why, how to put it right; exit status 2."""

import json
import os
import threading
from pathlib import Path

import jsonschema
import pytest

from tuneplan.cli.main import run
from tuneplan.contract import file_text
from tuneplan.contract.schema import json_schema

QWEN = ("--model", "Qwen2.5-7B", "--method", "lora")
APPROXIMATE = ("--set", "data.tokenizer=approximate")


def refused(
    capsys: pytest.CaptureFixture[str], *arguments: str, command: str = "estimate"
) -> tuple[str, list[dict[str, object]]]:
    """The text on stderr and the errors on stdout of a command that ends with status 2."""
    assert run([command, *arguments, "--json"]) == 2
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    jsonschema.validate(document, json_schema("errors"))
    assert "Traceback" not in printed.err
    assert "defect" not in printed.err
    return printed.err, document["errors"]


@pytest.mark.parametrize("command", ["estimate", "plan"])
def test_an_unknown_model_has_near_matches(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text, errors = refused(capsys, "--model", "Lama-3.1-8B", command=command)
    assert text.startswith("model: no model 'Lama-3.1-8B'")
    assert text.count("Llama-3.1-8B") == 1
    assert errors[0]["path"] == "model"
    assert errors[0]["near"][0] == "Llama-3.1-8B"  # type: ignore[index]


def test_an_unknown_accelerator_has_near_matches(capsys: pytest.CaptureFixture[str]) -> None:
    _, errors = refused(capsys, "--model", "7B", "--accelerator", "H900")
    assert errors[0]["path"] == "hardware.accelerator"
    assert "NVIDIA H100 SXM" in errors[0]["near"]  # type: ignore[operator]


@pytest.mark.parametrize("size", ["1024", "1024*768", "0x768", "-1x5", "1e3x2", ""])
def test_a_size_of_an_image_that_does_not_read_is_told_with_how_to_write_it(
    size: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text, errors = refused(capsys, *QWEN, f"--image={size}", command="trace")
    assert "is no size of an image" in text
    assert "HEIGHTxWIDTH" in text
    assert errors[0]["path"] == "image"


def test_broken_yaml_is_told_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("model: 7B\ntraining:\n  max_length: ]\n")
    text, errors = refused(capsys, str(job))
    assert text.startswith(f"{job}:3: broken YAML")
    assert errors[0]["line"] == 3


def test_negative_and_absurd_values_are_told_all_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = ("training.max_length=-5", "adapter.r=0", "training.num_train_epochs=1e30")
    flags = [part for setting in settings for part in ("--set", setting)]
    text, errors = refused(capsys, "--model", "7B", *flags)
    assert {error["path"] for error in errors} == {
        *("training.max_length", "adapter.r", "training.num_train_epochs")
    }
    assert "3 mistakes in all." in text


def test_lora_with_4_bits_is_a_contradiction(capsys: pytest.CaptureFixture[str]) -> None:
    text, errors = refused(
        capsys, "--model", "7B", "--method", "lora", "--set", "quantization.bits=4"
    )
    assert errors[0]["path"] == "quantization.bits"
    assert "method: qlora" in text


def test_two_kinds_of_data_are_a_contradiction(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("model: 7B\ndata: {path: a.jsonl, num_samples: 5, mean_tokens: 4}\n")
    text, _ = refused(capsys, str(job))
    assert "two ways: path and num_samples" in text


def test_a_lora_target_that_the_model_lacks_is_told_with_what_it_has(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text, errors = refused(capsys, *QWEN, "--set", "adapter.target_modules=[q_projj, v_proj]")
    assert "no module 'q_projj'" in text
    assert errors[0]["near"][0] == "q_proj"  # type: ignore[index]


@pytest.mark.parametrize("command", ["estimate", "plan"])
def test_a_mistake_that_only_the_model_shows_is_told_with_its_line(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(
        "model: Qwen2.5-7B\nmethod: lora\nadapter:\n  target_modules: [query_key_value]\n"
        "data: {num_samples: 100, mean_tokens: 100}\n"
    )
    text, errors = refused(capsys, str(job), command=command)
    assert f"{job}:4: adapter.target_modules: Qwen2.5-7B has no module" in text
    assert errors[0]["line"] == 4


def test_the_line_of_a_key_that_a_flag_overrides_is_not_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("model: Qwen2.5-7B\nmethod: lora\nhardware: {accelerator: L4}\n")
    _, errors = refused(capsys, "--accelerator", "H900", str(job))
    assert errors[0]["path"] == "hardware.accelerator"
    assert errors[0]["line"] is None


@pytest.mark.parametrize("command", ["estimate", "plan"])
def test_a_missing_file_an_unknown_model_and_an_unknown_chip_are_told_at_once(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "nope.jsonl")
    _, errors = refused(
        capsys, "--model", "gpt3", "--data", missing, "--accelerator", "H9", command=command
    )
    assert [error["path"] for error in errors] == ["model", "hardware.accelerator", missing]


def test_a_missing_file_comes_before_its_missing_tokenizer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, errors = refused(capsys, "--model", "gpt2", "--data", str(tmp_path / "nope.jsonl"))
    assert [error["code"] for error in errors] == ["no_such_file", "no_tokenizer"]


def test_absurd_facts_of_a_chip_are_told_with_their_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chips = tmp_path / "chips.yaml"
    chips.write_text(
        "accelerators:\n- name: Big\n  supports_bf16: true\n  memory: 1e30 GB\n"
        "  memory_bandwidth: 0 GB/s\n  dense_rate: {bfloat16: 1e30 TFLOP/s}\n  power: 900 kW\n"
    )
    _, errors = refused(capsys, *QWEN, "--set", f"accelerators=[{chips}]")
    assert [(error["line"], error["code"]) for error in errors] == [
        (4, "beyond_belief"),
        (5, "not_above_zero"),
        (6, "beyond_belief"),
        (7, "beyond_belief"),
    ]


def test_runs_with_the_same_id_are_told_with_both_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs.csv"
    runs.write_text("id,model\na,7B\n,7B\n,7B\na,7B\n")
    text, errors = refused(capsys, str(runs), command="validate")
    assert text.startswith(f"{runs}:5: the run 'a' stands here and in line 2")
    assert [error["line"] for error in errors] == [5]


def warnings_of(
    capsys: pytest.CaptureFixture[str], *arguments: str
) -> dict[str, dict[str, object]]:
    assert run(["estimate", *arguments, "--json"]) == 0
    return {one["code"]: one["params"] for one in json.loads(capsys.readouterr().out)["warnings"]}


def test_rows_longer_than_the_positions_of_the_model_are_a_warning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rotary = warnings_of(capsys, "--model", "Qwen2.5-0.5B", "--max-length", "65536")
    assert rotary["beyond_positions"] == {"longest": 65536.0, "positions": 32768}
    assert "beyond_positions" not in warnings_of(capsys, "--model", "Qwen2.5-0.5B")
    learned = warnings_of(capsys, "--model", "gpt2", "--max-length", "4096")
    assert learned["beyond_learned_positions"] == {"longest": 4096.0, "positions": 1024}
    short = ("--set", "data.num_samples=9", "--set", "data.quantiles={p50: 90, max: 100}")
    assert "beyond_learned_positions" not in warnings_of(
        capsys, "--model", "gpt2", "--max-length", "4096", *short
    )
    endless = warnings_of(capsys, "--model", "mpt-7b", "--max-length", "65536")
    assert not {"beyond_positions", "beyond_learned_positions"} & set(endless)


def test_a_price_of_the_future_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1796040000")  # 2026-11-30
    sheet = tmp_path / "prices.yaml"
    arguments = (*QWEN, "--accelerator", "A100 SXM 80GB", "--set", f"prices=[{sheet}]")
    numbers = ("--set", "data.num_samples=9", "--set", "data.mean_tokens=90")
    for dated, is_told in (("2031-01-01", True), ("2026-12-01", False)):
        sheet.write_text(
            "offers:\n- {provider: Own, accelerator: NVIDIA A100 SXM 80GB, num_accelerators: 1, "
            f"price: 0.01 USD, per: hour, as_of: {dated}}}\n"
        )
        told = warnings_of(capsys, *arguments, *numbers)
        assert ("price_of_the_future" in told) is is_told


BROKEN_LINES = '{"text": "a b"}\n{oops\n{"text": 5}\n{"text": "c d e"}\n'


@pytest.mark.parametrize("command", ["estimate", "plan", "data profile"])
def test_broken_lines_are_counted_located_and_refused(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text(BROKEN_LINES)
    if command == "data profile":
        arguments = ("profile", str(data), "--tokenizer", "approximate")
    else:
        arguments = (*QWEN, "--data", str(data), *APPROXIMATE)
    text, errors = refused(capsys, *arguments, command=command.split()[0])
    first, *lines = text.splitlines()
    assert first == f"{data}: 2 of 4 rows cannot be used"
    assert lines[0].startswith(f"    {data}:2:2: not JSON")
    assert lines[1].startswith(f"    {data}:3: text must be text")
    assert "--skip-bad-rows" in lines[-1]
    assert "data.skip_bad_rows: true" in lines[-1]
    (error,) = errors
    places = [(place["line"], place["column"]) for place in error["places"]]  # type: ignore[attr-defined]
    assert places == [(2, 2), (3, None)]


def test_skipping_without_rows_to_read_is_a_contradiction(
    capsys: pytest.CaptureFixture[str],
) -> None:
    numbers = ("--set", "data.num_samples=5", "--set", "data.mean_tokens=9")
    text, _ = refused(capsys, *QWEN, *numbers, "--set", "data.skip_bad_rows=true")
    assert text.startswith("data.skip_bad_rows: no rows are read")


def test_broken_lines_that_may_be_skipped_are_answered_counted_and_located(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text(BROKEN_LINES)
    skipping = (*APPROXIMATE, "--set", "data.skip_bad_rows=true")
    assert run(["estimate", *QWEN, "--data", str(data), *skipping, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["data"]["num_samples"] == 2
    warnings = {warning["code"]: warning for warning in answer["warnings"]}
    assert warnings["bad_rows_left_out"]["params"] == {"bad": 2, "all": 4}
    bad = [one for one in answer["warnings"] if one["code"] == "bad_row"]
    assert [(one["path"], one["line"]) for one in bad] == [(str(data), 2), (str(data), 3)]
    assumed = {one["name"]: one["reason"] for one in answer["assumptions"]}
    assert assumed["data.skip_bad_rows"] == "2 bad rows left out"
    arguments = ["data", "profile", str(data), "--tokenizer", "approximate", "--skip-bad-rows"]
    assert run(arguments) == 0
    assert "Bad rows: 2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "problem"), [("", "is empty (0 bytes)"), ("\n\n", "no sample in")]
)
@pytest.mark.parametrize("command", [("estimate", *QWEN, "--data"), ("data", "profile")])
def test_an_empty_data_set_is_refused(
    command: tuple[str, ...],
    content: str,
    problem: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text(content)
    tokenizer = APPROXIMATE if command[0] == "estimate" else ("--tokenizer", "approximate")
    text, _ = refused(capsys, *command[1:], str(data), *tokenizer, command=command[0])
    assert problem in text
    assert text.count(str(data)) <= 2


def test_an_empty_job_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = tmp_path / "job.yaml"
    job.touch()
    text, _ = refused(capsys, str(job))
    assert text == f"{job} is empty: it needs at least a model\n"


def test_an_unknown_architecture_is_refused_and_not_guessed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.json"
    config.write_text('{"architectures": ["FooForCausalLM"], "model_type": "foo"}')
    text, _ = refused(capsys, "--model", str(config))
    assert "'foo' (FooForCausalLM), whose layers are not described" in text


def test_a_price_sheet_with_a_bare_number_is_refused_even_if_no_price_is_needed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sheet = tmp_path / "prices.yaml"
    sheet.write_text(
        "offers:\n"
        "  - provider: Example\n"
        "    accelerator: H100\n"
        "    num_accelerators: 1\n"
        "    as_of: 2026-10-05\n"
        "    price: 2.5\n"
    )
    text, errors = refused(capsys, "--model", "7B", "--set", f"prices=[{sheet}]")
    assert text.startswith(f"{sheet}:6: offers[0].price: 2.5 is not an amount of money")
    assert errors[0]["line"] == 6


def test_a_choice_is_for_plan(capsys: pytest.CaptureFixture[str]) -> None:
    text, _ = refused(capsys, "--model", "7B", "--accelerator", "H100,A100")
    assert "use `tuneplan plan`" in text


def test_a_profile_that_cannot_be_saved_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text('{"text": "a b"}\n')
    arguments = ("profile", str(data), "--tokenizer", "approximate", "--save", str(tmp_path))
    text, _ = refused(capsys, *arguments, command="data")
    assert "cannot be written" in text


AXOLOTL = Path(__file__).parents[2] / "examples" / "axolotl_chat.yml"


@pytest.mark.parametrize("line", [("estimate",), ("plan",), ("export", "--to", "trl")])
def test_somebody_s_own_configuration_in_place_of_a_job_is_sent_to_import(
    line: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    command, *flags = line
    _, (error,) = refused(capsys, str(AXOLOTL), *flags, command=command)
    assert error["code"] == "foreign_not_job"
    assert "tuneplan import" in str(error["how_to_fix"])


@pytest.mark.parametrize(
    ("name", "text", "code", "words"),
    [
        ("a.yaml", "model: 7B\n---\nmodel: 7B\n", "second_document", "a second document"),
        ("a.json", '{"model": "7B", "n": ' + "9" * 5_000 + "}", "too_many_digits", "digits"),
        (
            "a.json",
            '{"model_name_or_path": "a/b", "bf16": true, "num_train_epochs": NaN}',
            "wrong_kind",
            "got nan",
        ),
    ],
)
def test_what_does_not_read_is_told_in_words_of_people(
    name: str,
    text: str,
    code: str,
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    _, (error,) = refused(capsys, str(path), command="check")
    assert error["code"] == code
    assert words in str(error["message"])


def test_a_blank_name_is_no_folder(capsys: pytest.CaptureFixture[str]) -> None:
    _, (error,) = refused(capsys, "", command="check")
    assert error["code"] == "blank_name"


def test_a_pipe_that_nobody_writes_into_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(file_text, "_PIPE_PATIENCE_S", 0.01)
    os.mkfifo(tmp_path / "pipe")
    _, (error,) = refused(capsys, str(tmp_path / "pipe"), command="check")
    assert "it is a pipe" in str(error["message"])
    _, (error,) = refused(capsys, "--log", str(tmp_path / "pipe"), command="oom")
    assert "it is a pipe" in str(error["message"])


def test_a_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("model: 7B\n",))
    writer.start()
    assert file_text.decoded_file(str(pipe)) == "model: 7B\n"
    writer.join()
