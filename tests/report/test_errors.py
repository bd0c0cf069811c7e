import math

from tuneplan.errors import Mistake
from tuneplan.language import message
from tuneplan.report.errors import errors_document, errors_text


def test_a_mistake_reads_where_what_nearest_and_how() -> None:
    mistake = Mistake(
        message=message("unknown_key", "there is no key {key}", key="modle"),
        path="modle",
        line=3,
        file="job.yaml",
        near=("model",),
        how_to_fix=message("use", "write model"),
    )
    assert errors_text([mistake]) == (
        "job.yaml:3: modle: there is no key modle\n    nearest: model\n    to fix: write model"
    )


def test_a_mistake_of_a_file_reads_file_and_line() -> None:
    mistake = Mistake(message=message("broken", "broken YAML"), path="job.yaml", line=7)
    assert errors_text([mistake]) == "job.yaml:7: broken YAML"


def test_a_mistake_on_many_lines_reads_with_its_places() -> None:
    place = Mistake(message=message("b", "not JSON"), path="data.jsonl", line=3, column=9)
    mistake = Mistake(message=message("a", "2 rows are bad"), path="data.jsonl", places=(place,))
    assert errors_text([mistake]) == "data.jsonl: 2 rows are bad\n    data.jsonl:3:9: not JSON"
    (error,) = errors_document([mistake])["errors"]
    assert (error["places"][0]["line"], error["places"][0]["column"]) == (3, 9)


def test_a_value_that_json_does_not_know_is_text() -> None:
    mistake = Mistake(message=message("c", "t"), value=[math.inf, object])
    (error,) = errors_document([mistake])["errors"]
    assert error["value"] == ["inf", "<class 'object'>"]
