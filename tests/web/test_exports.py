"""Downloads: what they hold, what they are called, what they never do."""

import io
import re
import zipfile

import openpyxl
import pytest
import yaml

from tuneplan.contract.reading import load_job
from tuneplan.planner.export import export_job
from tuneplan.planner.sources import sources_for
from web.asking import DAY, JOB, Elements, client

NAME = re.compile(r'attachment; filename="([A-Za-z0-9.-]+)"')


def name_of(answered) -> str:
    found = NAME.fullmatch(answered.headers["content-disposition"])
    assert found is not None, answered.headers["content-disposition"]
    return found[1]


def test_the_job_file_says_what_was_stated_and_reads_back():
    query = f"{JOB}&max_length=2048&deadline=24+h&set=training.loss%3Dchunked&packing=true"
    answered = client().get(f"/export/job.yaml?{query}")
    assert answered.status_code == 200
    assert name_of(answered) == "tuneplan-Qwen2.5-7B-Instruct-lora.job.yaml"
    tree = yaml.safe_load(answered.text)
    assert "goal" not in tree
    again = load_job(tree)
    assert again.stated == (
        "model", "method", "data.num_samples", "data.mean_tokens", "hardware.accelerator",
        "hardware.accelerators_per_node", "training.max_length", "training.packing",
        "training.loss", "limits.deadline",
    ) or set(again.stated) == {
        "model", "method", "data.num_samples", "data.mean_tokens", "hardware.accelerator",
        "hardware.accelerators_per_node", "training.max_length", "training.packing",
        "training.loss", "limits.deadline",
    }  # fmt: skip
    assert again.limits.deadline_s == 24 * 3600


def test_the_files_of_a_framework_are_those_of_the_command():
    answered = client().get(f"/export/framework.zip?{JOB}&to=llamafactory&launch=torchrun")
    assert answered.status_code == 200
    assert name_of(answered) == "tuneplan-Qwen2.5-7B-Instruct-lora-llamafactory.zip"
    job = load_job(
        {
            "model": "Qwen/Qwen2.5-7B-Instruct",
            "method": "lora",
            "data": {"num_samples": 1000, "mean_tokens": 500},
            "hardware": {"accelerator": "NVIDIA H100 SXM", "accelerators_per_node": 1},
        }
    )
    export = export_job(job, sources_for(job, today=DAY), to="llamafactory", launchers=["torchrun"])
    with zipfile.ZipFile(io.BytesIO(answered.content)) as archive:
        written = {one.rpartition("/")[2]: archive.read(one).decode() for one in archive.namelist()}
        assert not [one for one in archive.namelist() if one.startswith("/") or ".." in one]
    assert written == {one.name: one.text for one in export.files}


@pytest.mark.parametrize(
    ("ending", "begins"), [("html", b"<!doctype html>"), ("md", b"# "), ("xlsx", b"PK")]
)
def test_reports_come_in_every_format(ending, begins):
    answered = client().get(f"/export/report.{ending}?{JOB}&of=estimate")
    assert answered.status_code == 200
    assert name_of(answered) == f"tuneplan-Qwen2.5-7B-Instruct-lora-report.{ending}"
    assert answered.content.lower().startswith(begins.lower())


def test_words_of_a_job_are_no_formula_in_the_workbook():
    harmful = "%3DHYPERLINK(1)"
    answered = client().get(
        f"/export/report.xlsx?{JOB}&of=estimate&framework=trl&regions={harmful}"
    )
    assert answered.status_code in (200, 400)
    query = JOB.replace("Qwen/Qwen2.5-7B-Instruct", "7B")
    answered = client().get(
        f"/export/report.xlsx?{query}&of=estimate&set=limits.regions%3D{harmful}"
    )
    assert answered.status_code == 200
    book = openpyxl.load_workbook(io.BytesIO(answered.content))
    cells = [cell for sheet in book for row in sheet.iter_rows() for cell in row]
    told = [cell for cell in cells if isinstance(cell.value, str) and "HYPERLINK" in cell.value]
    assert told
    assert all(cell.data_type == "s" for cell in told)


@pytest.mark.parametrize(
    "model",
    [
        "../../../etc/passwd",
        'a"; filename="b.exe',
        "a\r\nSet-Cookie: x=1",
        "<script>",
        "模型",
        "...",
    ],
)
def test_a_name_of_a_file_is_made_of_harmless_signs(model):
    answered = client().get("/export/job.yaml", params={"model": model, "method": "lora"})
    if answered.status_code == 200:
        assert ".." not in name_of(answered)
        assert "Set-Cookie" not in answered.headers
    else:
        assert answered.status_code == 400
        assert "content-disposition" not in answered.headers


def test_what_cannot_be_exported_is_said_on_a_page():
    answered = client().get(f"/export/framework.zip?{JOB}&to=nothing")
    assert answered.status_code == 400
    assert Elements(answered.text).all("section")
    assert client().get(f"/export/framework.zip?{JOB}").status_code == 400
    assert client().get("/export/job.yaml?method=lora").status_code == 400
    assert client().get(f"/export/report.md?{JOB}&of=everything").status_code == 400


def test_every_view_of_a_job_offers_them():
    page = Elements(client().get(f"/fit?{JOB}&max_length=2048").text)
    links = [str(one["href"]) for one in page.all("a") if str(one["href"]).startswith("/export/")]
    assert {link.partition("?")[0] for link in links} == {
        "/export/job.yaml", "/export/report.html", "/export/report.md", "/export/report.xlsx",
    }  # fmt: skip
    assert all("max_length=2048" in link for link in links)
    assert page.one("form", action="/export/framework.zip")
    assert not [
        one for one in Elements(client().get("/accuracy").text).all("a")
        if str(one["href"]).startswith("/export/")
    ]  # fmt: skip
