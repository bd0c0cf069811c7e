"""One document, four formats: the same figures in each, and nothing that does harm."""

import html.parser
import io
import json
import math
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from typing import Any

import jsonschema
import openpyxl
import pytest

import sample_answers
import sample_money
from tuneplan.cli.main import run
from tuneplan.contract.reading import load_job
from tuneplan.contract.schema import json_schema
from tuneplan.errors import MissingExtra
from tuneplan.planner.check import check_configuration
from tuneplan.planner.importing import Configuration
from tuneplan.planner.sources import sources_for
from tuneplan.report.budget_document import budget_document
from tuneplan.report.check_answer import check_answer
from tuneplan.report.document import estimate_document, plan_document
from tuneplan.report.html import html as html_of
from tuneplan.report.markdown import markdown
from tuneplan.report.plan_charts import Option, cheaper_and_faster
from tuneplan.report.report_answer import document_json
from tuneplan.report.theme import DARK
from tuneplan.report.view import Amount, Cell, Chart, Document, Facts, Section, Table
from tuneplan.report.workbook import number_format, workbook
from tuneplan.report.writing import document_file

DAY = "2026-11-30"
JOB = {
    "model": "Qwen/Qwen2.5-7B-Instruct",
    "method": "lora",
    "data": {"num_samples": 21000, "mean_tokens": 850, "eval_fraction": 0.02},
    "training": {"max_length": 4096, "eval_steps": 200, "save_steps": 500},
    "hardware": {"accelerator": "NVIDIA H100 SXM", "accelerators_per_node": 1},
    "prices": [],
}


def checked() -> Document:
    job = load_job(JOB)
    configuration = Configuration(job=job, imported=None, files=())
    from datetime import date

    sources = sources_for(job, today=date.fromisoformat(DAY))
    return estimate_document(check_answer(check_configuration(configuration, sources), as_of=DAY))


ESTIMATE = checked()
PLAN = plan_document(sample_answers.plan(), sample_answers.check())
DOCUMENTS = {
    "estimate": ESTIMATE,
    "plan": PLAN,
    "sample": estimate_document(sample_answers.check()),
    "budget": budget_document(sample_money.budget()),
}
each_document = pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS)
OF_MEMORY = {name: document for name, document in DOCUMENTS.items() if name != "budget"}


def amounts(document: Document) -> Iterator[Amount]:
    for cell in document.cells():
        yield from cell.amounts


class Words(html.parser.HTMLParser):
    """The text of a page, and everything that it would load or run."""

    def __init__(self) -> None:
        super().__init__()
        self.text: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [
            value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "action")
        ]
        self.text += [value or "" for name, value in attrs if name == "title"]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read_html(document: Document) -> Words:
    words = Words()
    words.feed(html_of(document))
    return words


@each_document
def test_every_figure_reads_the_same_in_markdown_html_and_json(document: Document) -> None:
    plain = markdown(document).replace("\\", "")
    page = " ".join(" ".join(read_html(document).text).split())
    told = json.dumps(document_json(document), ensure_ascii=False)
    texts = [" ".join(cell.text.split()) for cell in document.cells()]
    assert len(texts) > 50
    for text in texts:
        assert text in plain
        assert text in page
        assert json.dumps(text, ensure_ascii=False)[1:-1] in told


@each_document
def test_the_parts_of_a_range_are_what_its_text_says(document: Document) -> None:
    for cell in document.cells():
        for amount in cell.amounts:
            assert amount.text in cell.text
        if cell.amounts:
            assert cell.text.replace("%", " %").startswith(cell.amounts[0].text)


def shown(value: float, pattern: str) -> str:
    """What a spreadsheet shows of a value under one of our formats."""
    _, point, zeros = pattern.split(";")[0].partition(".")
    step = Decimal(1).scaleb(-len(zeros) if point else 0)
    text = f"{Decimal(repr(value)).quantize(step, rounding=ROUND_HALF_EVEN):,f}"
    return f"+{text}" if pattern.startswith("+") and value > 0 else text


@each_document
def test_a_spreadsheet_shows_the_figures_that_the_page_shows(document: Document) -> None:
    for amount in amounts(document):
        if re.fullmatch(r"[+-]?[\d,]+(\.\d+)?", amount.text) and amount.text.strip("-0."):
            assert float(shown(amount.value, number_format(amount)).replace(",", "")) == (
                pytest.approx(float(amount.text.replace(",", "")), rel=2e-3)
            ), amount


def sheet_values(book: bytes, *, computed: bool) -> dict[tuple[str, str], Any]:
    loaded = openpyxl.load_workbook(io.BytesIO(book), data_only=computed)
    return {
        (sheet.title, cell.coordinate): cell
        for sheet in loaded
        for row in sheet.iter_rows()
        for cell in row
        if cell.value is not None
    }


NAMES = {"MAX": max, "ROUND": round, "ROUNDUP": lambda x, _: math.ceil(x)}
PLACE = re.compile(r"(?:'([^']+)'!)?\$([A-Z]+)\$(\d+)")


@each_document
def test_formulas_of_the_workbook_give_the_figures_of_the_document(document: Document) -> None:
    book = workbook(document)
    formulas, values = sheet_values(book, computed=False), sheet_values(book, computed=True)

    def value(place: tuple[str, str], depth: int = 0) -> float:
        content = formulas[place].value
        if not isinstance(content, str):
            return float(content)
        assert depth < 20
        found = PLACE.sub(
            lambda m: repr(value((m[1] or place[0], f"{m[2]}{m[3]}"), depth + 1)), content[1:]
        )
        return float(eval(found, {"__builtins__": {}}, NAMES))  # noqa: S307 - our own formulas

    computed = [place for place, cell in formulas.items() if cell.data_type == "f"]
    assert len(computed) > 5
    for place in computed:
        cached = values[place].value
        assert value(place) == pytest.approx(cached, rel=3e-3, abs=0.011), place


def test_the_cost_is_hours_times_price_in_the_workbook() -> None:
    # 5.70 h x 2.31 USD: whoever changes the price sees the cost change.
    cost = next(one for one in amounts(ESTIMATE) if one.key == "cost.total.likely")
    assert cost.formula == "ROUND({cost.hours.likely} * {cost.price} * {cost.instances}, 2)"
    keys = {one.key: one.value for one in amounts(ESTIMATE)}
    assert cost.value == pytest.approx(keys["cost.hours.likely"] * keys["cost.price"], abs=0.006)


def test_the_sheets_are_the_parts_of_the_document() -> None:
    book = openpyxl.load_workbook(io.BytesIO(workbook(ESTIMATE)))
    assert book.sheetnames == [
        *("Summary", "Memory", "Time", "Cost", "Disks and data", "Alternatives"),
        *("Remarks", "Assumptions", "Sources"),
    ]


HARMFUL = ("=HYPERLINK(1)", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "<script>alert(1)</script>", "a|b")


def harmful() -> Document:
    rows = tuple((Cell(text=text), Cell(text="x")) for text in HARMFUL)
    from tuneplan.report.view import Column, Fact

    block = Table(title="=1+1", columns=(Column(name="@a"), Column(name="b")), rows=rows)
    fact = Facts(title="-1", rows=(Fact(name="=x", cell=Cell(text="=y\x07"), remark="+z"),))
    section = Section(name="summary", title="=A'[1]:*", blocks=(block, fact))
    return replace(ESTIMATE, title="=cmd|' /C calc'!A0", sections=(section,))


def test_text_that_looks_like_a_formula_is_text_in_the_workbook() -> None:
    cells = sheet_values(workbook(harmful()), computed=False)
    found = [cell for cell in cells.values() if str(cell.value).lstrip()[:1] in tuple("=+-@")]
    assert len(found) >= 8
    for cell in found:
        assert cell.data_type == "s"
        assert cell.quotePrefix


def test_markup_in_a_job_is_text_on_the_page_and_in_markdown() -> None:
    assert "script" not in read_html(harmful()).tags
    assert "\\<script\\>alert(1)\\</script\\>" in markdown(harmful())
    assert "| a\\|b | x |" in markdown(harmful())


@each_document
def test_the_page_loads_nothing_and_runs_nothing(document: Document) -> None:
    words = read_html(document)
    assert not {"script", "iframe", "object", "img"} & set(words.tags)
    assert all(link.startswith(("#", "data:,")) for link in words.links)
    page = html_of(document)
    assert "url(" not in page
    assert "@import" not in page
    assert "default-src 'none'" in page


@each_document
def test_every_colour_of_a_picture_has_one_for_dark_screens(document: Document) -> None:
    pictures = re.findall(r"<figure>.*?</figure>", html_of(document), re.DOTALL)
    colours = set(re.findall(r'(?:fill|stroke)="([^"]+)"', "".join(pictures)))
    assert len(pictures) >= 1
    assert colours <= {*DARK, "none", "transparent", "black"}


@pytest.mark.parametrize("document", OF_MEMORY.values(), ids=OF_MEMORY)
def test_a_chart_holds_the_figures_of_its_document(document: Document) -> None:
    charts = [
        block for part in document.sections for block in part.blocks if isinstance(block, Chart)
    ]
    assert {"memory_stack", "intervals"} <= {chart.name for chart in charts}
    for chart in charts:
        assert chart.caption
        assert chart.specification["$schema"].startswith("https://vega.github.io/schema/vega-lite/")
    stack = next(chart for chart in charts if chart.name == "memory_stack")
    bars = stack.specification["layer"][0]["data"]["values"]
    first = sum(bar["gib"] for bar in bars if bar["card"] == bars[0]["card"])
    needed = [one.value for one in amounts(document) if one.key == "memory.needed"]
    assert first == pytest.approx(needed[0], rel=1e-6)


@each_document
def test_the_answer_keeps_its_schema(document: Document) -> None:
    jsonschema.validate(document_json(document), json_schema("report"))


def test_the_front_holds_what_nothing_beats_in_both() -> None:
    def option(name: str, hours: float, money: float) -> Option:
        return Option(name=name, hours=(hours,) * 3, money=(money,) * 3)

    options = [option("a", 1, 9), option("b", 2, 5), option("c", 3, 6), option("d", 4, 2)]
    assert [one.name for one in cheaper_and_faster(options)] == ["a", "b", "d"]


def test_the_same_document_is_the_same_file() -> None:
    assert workbook(ESTIMATE) == workbook(ESTIMATE)


@pytest.mark.parametrize(("module", "name"), [("openpyxl", "a.xlsx"), ("vl_convert", "a.html")])
def test_a_missing_extra_is_told_with_its_command(
    module: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=r"pip install 'tuneplan\[report\]'"):
        document_file(ESTIMATE, name)


def job_file(folder: Path) -> Path:
    path = folder / "job.json"
    path.write_text(json.dumps(JOB), encoding="utf-8")
    return path


def test_the_command_writes_every_format(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    names = [str(tmp_path / f"report{ending}") for ending in (".html", ".md", ".json", ".xlsx")]
    flags = [word for name in names for word in ("--to", name)]
    assert run(["report", str(job_file(tmp_path)), *flags, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    jsonschema.validate(answer, json_schema("report"))
    assert answer["kind"] == "estimate"
    assert answer["written"] == names
    written = json.loads(Path(names[2]).read_text(encoding="utf-8"))
    assert written["sections"] == answer["sections"]


def test_the_command_refuses_what_it_cannot_write(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    job = job_file(tmp_path)
    assert run(["report", str(job), "--to", "a.pdf", "--to", "b.htm"]) == 2
    said = capsys.readouterr().err
    assert "a.pdf" in said
    assert "b.htm" in said
    assert "nearest: .html" in said
    assert run(["report", str(job)]) == 2
    assert "--to report.html" in capsys.readouterr().err
    assert run(["report", str(job), "--to", str(job)]) == 2
    assert "is not written over" in capsys.readouterr().err
    assert run(["report", str(job), "--to", str(tmp_path / "no" / "a.md")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_a_plan_without_an_entry_says_what_to_relax() -> None:
    none = sample_answers.plan().model_copy(update={"entries": [], "pareto": []})
    told = markdown(plan_document(none, None))
    assert "Nothing fits within the limits." in told
    assert "To relax first" in told
    assert workbook(plan_document(none, None))


def test_the_pictures_of_a_budget_hold_its_figures() -> None:
    answer = sample_money.budget()
    document = DOCUMENTS["budget"]
    charts = {
        block.name: block for part in document.sections for block in part.blocks
        if isinstance(block, Chart)
    }  # fmt: skip
    assert set(charts) == {"distribution", "tornado", "weeks", "break_even"}
    curve = charts["distribution"].specification["layer"][0]["data"]["values"]
    assert [one["name"] for one in curve] == ["P10", "P50", "P80", "P95"]
    assert curve[1]["total"] == float(answer.money.p50.amount)
    bars = charts["tornado"].specification["layer"][0]["data"]["values"]
    assert [(bar["from"], bar["to"]) for bar in bars] == [(41000, 83000), (54000, 61000)]
    held = charts["weeks"].specification["data"]["values"]
    assert [row["held"] for row in held] == [week.rented_hours for week in answer.calendar]
    lines = charts["break_even"].specification["data"]["values"]
    assert {row["money"] for row in lines if row["hours"] == 100} == {12000, 50000}
    assert all(chart.caption for chart in charts.values())
