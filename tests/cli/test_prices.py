"""``tuneplan prices break-even`` as a person runs it."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from tuneplan.cli.main import run
from tuneplan.contract.schema import json_schema

SHEET = str(Path(__file__).parents[2] / "examples" / "prices.yaml")


def test_break_even_of_120_an_hour_and_50000_a_month(capsys) -> None:
    asked = ["prices", "break-even", "h100-hour", "h100-month", "--file", SHEET]
    assert run(asked) == 0
    # NT$50,000 / NT$120 = 416.7 h
    assert "below 416.7 h of use Harbour Cloud: h100-hour" in capsys.readouterr().out
    assert run([*asked, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(json_schema("break-even")).validate(answer)
    found = answer["break_even"]
    assert round(found["hours"], 1) == 416.7
    assert found["points"][0]["hours"] < 1 < found["points"][-1]["hours"] == 1440


def test_eight_cards_cross_at_the_same_hours_and_a_whole_machine_at_others(capsys) -> None:
    asked = ["prices", "break-even", "h100-hour", "dgx-h100", "--file", SHEET, "--json"]
    assert run([*asked, "--accelerators", "8"]) == 0
    eight = json.loads(capsys.readouterr().out)["break_even"]
    # 8 x 120 = 960 an hour against 749.42 an hour: the own machine from the first hour on
    assert (eight["hours"], eight["cheaper_at_first"]) == (None, "second")
    assert run([*asked, "--accelerators", "1"]) == 0
    one = json.loads(capsys.readouterr().out)["break_even"]
    assert (one["hours"], one["cheaper_at_first"]) == (None, "first")


def test_two_currencies_are_compared_by_the_sheet_s_rate(capsys) -> None:
    assert run(["prices", "break-even", "h100-month", "h100-spot", "--file", SHEET]) == 0
    # 50,000 TWD / (1.90 USD x 31.9) = 824.9 h: beyond the month, so it is never even before 720 h
    assert "h100-spot" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("h100-hour", "h100-mont"), "h100-month"),
        (("h100-hour", "nothing like it at all"), "nothing like it at all"),
    ],
)
def test_an_unknown_offer_is_refused_with_the_nearest(names, words, capsys) -> None:
    assert run(["prices", "break-even", *names, "--file", SHEET]) == 2
    assert words in capsys.readouterr().err


def test_offers_in_currencies_without_a_rate_are_refused(tmp_path, capsys) -> None:
    sheet = tmp_path / "prices.yaml"
    sheet.write_text(
        "offers:\n"
        "  - {provider: X, name: a, accelerator: T4, num_accelerators: 1, price: 1 EUR/h,"
        " as_of: 2026-11-02}\n"
        "  - {provider: X, name: b, accelerator: T4, num_accelerators: 1, price: 1 JPY/h,"
        " as_of: 2026-11-02}\n"
    )
    assert run(["prices", "break-even", "a", "b", "--file", str(sheet)]) == 2
    assert "EUR and JPY" in capsys.readouterr().err
