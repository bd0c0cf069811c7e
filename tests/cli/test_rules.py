"""``tuneplan rules`` as a person runs it."""

from __future__ import annotations

import json

import jsonschema

from tuneplan.cli.main import run
from tuneplan.contract.schema import json_schema

JOB = ("--model", "Qwen/Qwen2.5-0.5B-Instruct", "--method", "lora")


def test_the_answer_obeys_its_schema_and_its_causes_sum(capsys) -> None:
    assert run(["rules", *JOB, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(json_schema("rules")).validate(answer)
    for rule in answer["rules"]:
        total = sum(cause["difference_bytes"] for cause in rule["causes"])
        assert abs(total - rule["difference_bytes"]) < 100
    assert answer["time_rules"] == []
    assert answer["petaflop_s_days"] is None


def test_the_text_keeps_to_the_page_and_names_every_rule(capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["rules", *JOB, "--accelerator", "H100 SXM"]) == 0
    text = capsys.readouterr().out
    assert max(len(line) for line in text.splitlines()) <= 80
    for words in (
        "8 bytes a parameter",
        "18 bytes a parameter",
        "0.6 bytes",
        "checkpointing costs",
    ):
        assert words in text


def test_an_unknown_model_is_refused(capsys) -> None:
    assert run(["rules", "--model", "no/such-model"]) == 2
    assert "no/such-model" in capsys.readouterr().err
