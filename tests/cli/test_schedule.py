"""``tuneplan schedule`` by its command: pools, mistakes with their lines, answers, files."""

import json
from pathlib import Path

import jsonschema
import openpyxl
import pytest

from tuneplan.cli.main import run
from tuneplan.contract.schema import json_schema

POOL = """\
start: 2026-12-07 09:00
nodes:
  - {name: dgx, accelerator: H100 SXM, accelerators_per_node: 8, price: 24 USD}
  - {name: lab, accelerator: A100 SXM 80GB, accelerators_per_node: 4, price: 6 USD}
jobs:
  - {name: tokenise, duration: 2 h}
  - {name: chat, job: chat.yaml, cards: [1, 2], after: tokenise, priority: 3}
  - {name: wide, duration: 9 h, cards: 8, deadline: 2026-12-08}
  - {name: last, duration: 90 min, cards: 4, after: [chat, wide]}
"""
CHAT = """\
model: Qwen/Qwen2.5-0.5B-Instruct
method: lora
data: {num_samples: 20000, mean_tokens: 600}
training: {max_length: 2048, packing: true}
"""


def write(folder: Path, pool: str, **jobs: str) -> str:
    for name, text in jobs.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    path = folder / "pool.yaml"
    path.write_text(pool, encoding="utf-8")
    return str(path)


def said(capsys: pytest.CaptureFixture, *arguments: str, status: int = 0) -> str:
    assert run(["schedule", *arguments]) == status
    captured = capsys.readouterr()
    return str(captured.out if status == 0 else captured.err)


def test_the_answer_holds_the_bars_the_machines_and_the_queue(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    pool = write(tmp_path, POOL, chat=CHAT)
    page, book = str(tmp_path / "s.html"), str(tmp_path / "s.xlsx")
    told = said(capsys, "--pool", pool, "--to", page, "--to", book, "--json")
    answer = json.loads(told)
    jsonschema.validate(answer, json_schema("schedule"))
    assert answer["status"] == "optimal"
    assert answer["gap_fraction"] == 0
    by_name = {job["name"]: job for job in answer["jobs"]}
    assert by_name["chat"]["start_s"] >= by_name["tokenise"]["end_s"] == 7200
    assert by_name["wide"]["on"] == [
        {"machine": "dgx", "accelerator": "NVIDIA H100 SXM", "cards": [*range(8)]}
    ]
    # 9 h on all of the 24 USD machine, 2 h on a quarter of the 6 USD one.
    assert by_name["wide"]["cost"] == {"amount": "216.00", "currency": "USD"}
    assert by_name["tokenise"]["cost"] == {"amount": "3.00", "currency": "USD"}
    assert by_name["wide"]["starts_at"] == "2026-12-07T09:00:00+00:00"
    # The day of a deadline counts to its end: 39 h after Monday 9:00.
    assert by_name["wide"]["deadline_s"] == 39 * 3600
    assert answer["total"]["makespan_s"] == answer["objective_value"]
    assert answer["total"]["makespan_s"] < answer["first_come"]["makespan_s"]
    assert sum(float(job["cost"]["amount"]) for job in answer["jobs"]) == pytest.approx(
        float(answer["total"]["cost"]["amount"]), abs=0.02
    )
    assert "<svg" in Path(page).read_text(encoding="utf-8")
    assert openpyxl.load_workbook(book).sheetnames == ["Summary", "Jobs", "Machines", "Remarks"]


def test_the_text_draws_the_bars(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    told = said(capsys, "--pool", write(tmp_path, POOL, chat=CHAT))
    assert "Proven the best: no schedule is done sooner." in told
    assert "First come, first served" in told
    assert "████" in told
    assert "dgx: 8" in told


def test_a_pool_can_be_said_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    write(tmp_path, POOL, chat=CHAT, other=CHAT)
    jobs = [str(tmp_path / "chat.yaml"), str(tmp_path / "other.yaml")]
    answer = json.loads(said(capsys, *jobs, "--pool", "L40S:1x2", "--json"))
    assert [machine["name"] for machine in answer["machines"]] == [
        "1 x NVIDIA L40S #1",
        "1 x NVIDIA L40S #2",
    ]
    assert {job["on"][0]["machine"] for job in answer["jobs"]} == {
        machine["name"] for machine in answer["machines"]
    }
    assert answer["makespan_s"]["low"] <= answer["makespan_s"]["likely"]
    assert answer["makespan_s"]["likely"] < answer["makespan_s"]["high"]


BAD = """\
start: 2026-12-07
nodes:
  - {name: lab, accelerator: RTX 3090, accelerators_per_node: 2, price: 6}
  - {name: x, accelerator: H1000}
jobs:
  - {name: a, duration: 2 h, deadline: 2026-12-01}
  - {name: b, duration: 2}
  - {name: c, duration: 2 h, memry: 3 GiB}
"""


def test_every_mistake_of_a_pool_is_told_at_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    told = said(capsys, "--pool", write(tmp_path, BAD), status=2)
    assert "pool.yaml:3: nodes[0].price: 6 is not an amount of money" in told
    assert "pool.yaml:4: nodes[1].accelerator: no accelerator is called 'H1000'" in told
    assert "pool.yaml:6: jobs[0].deadline: the deadline 2026-12-01 is not after the start" in told
    assert "pool.yaml:7: jobs[1].duration: 2 is not a duration" in told
    assert "pool.yaml:8: jobs[2].memry" in told
    assert "5 mistakes in all" in told


CIRCLE = """\
  - {name: a, duration: 2 h, after: c}
  - {name: b, duration: 2 h, after: a}
  - {name: c, duration: 2 h, after: [b]}
"""
NODES = "nodes:\n  - {name: lab, accelerator: RTX 3090, accelerators_per_node: 2}\njobs:\n"


@pytest.mark.parametrize(
    ("jobs", "words"),
    [
        (
            CIRCLE,
            ["jobs[0].after", "in a circle: a -> c -> b -> a"],
        ),
        ("  - {name: a, duration: 2 h, after: z}\n", ["jobs[0].after", "waits for z, which is no"]),
        (
            "  - {name: a, duration: 2 h}\n  - {name: a, duration: 3 h}\n",
            ["pool.yaml:5: jobs[1].name", "two jobs are called a"],
        ),
        (
            "  - {name: a, duration: 2 h, memory: 40 GiB}\n",
            ["pool.yaml:4: jobs[0].memory", "40.0 GiB", "23.6 GiB"],
        ),
        (
            "  - {name: a, duration: 2 h, cards: 4}\n",
            ["jobs[0].cards", "4 cards; the pool has 2 x NVIDIA GeForce RTX 3090"],
        ),
        (
            "  - {name: a, duration: 2 h, accelerator: H100 SXM}\n",
            ["jobs[0].accelerator", "is to run on NVIDIA H100 SXM; the pool has"],
        ),
        ("  - {job: full.yaml}\n", ["full.yaml fits on no card of the pool", "method: qlora"]),
        ("  - {job: blank.yaml}\n", ["blank.yaml", "how long it runs is not known"]),
        ("  - {job: absent.yaml}\n", ["absent.yaml"]),
    ],
)
def test_what_cannot_be_scheduled_is_refused_by_name(
    jobs: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    full = "model: Qwen/Qwen2.5-7B-Instruct\nmethod: full\ndata: {num_samples: 9, mean_tokens: 9}\n"
    blank = "model: Qwen/Qwen2.5-0.5B-Instruct\nmethod: lora\n"
    told = said(capsys, "--pool", write(tmp_path, NODES + jobs, full=full, blank=blank), status=2)
    for word in words:
        assert word in told


def test_a_cost_needs_prices(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    pool = write(tmp_path, NODES + "  - {name: a, duration: 2 h}\n")
    told = said(capsys, "--pool", pool, "--objective", "cost", status=2)
    assert "a cost needs a price of every machine" in told


def test_deadlines_that_cannot_be_kept_are_an_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    jobs = (
        "  - {name: a, duration: 20 h, cards: 2, deadline: 24 h}\n"
        "  - {name: b, duration: 6 h, deadline: 24 h, priority: 5}\n"
    )
    pool = write(tmp_path, NODES + jobs)
    told = said(capsys, "--pool", pool)
    assert "NOT ALL DEADLINES CAN BE KEPT" in told
    assert "a has to give way" in told
    assert run(["schedule", "--pool", pool, "--require-fit"]) == 3
    capsys.readouterr()
    late = json.loads(said(capsys, "--pool", pool, "--objective", "lateness", "--json"))
    assert late["total"]["num_late"] == 1
    assert late["total"]["lateness_s"] == 2 * 3600


def test_a_pool_must_be_named(capsys: pytest.CaptureFixture) -> None:
    assert "--pool H100:8" in said(capsys, status=2)
    assert "neither a file nor machines" in said(capsys, "--pool", "H100:8:9", status=2)
    assert "no accelerator is called" in said(capsys, "--pool", "H1000:8", status=2)
