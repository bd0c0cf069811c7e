"""Data: files within the allowed folders, files that are sent, lengths, prices, going on."""

import gzip
import json
import tempfile
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tuneplan.planner.profile_data import look_at, profile_data
from tuneplan.report.profile_answer import profile_answer
from web.asking import DAY, Elements, client

EXAMPLES = Path(__file__).parents[2] / "examples"
CHAT = EXAMPLES / "support_chat.jsonl"
ASKED = "data=support_chat.jsonl&tokenizer=approximate"
ROWS = b"".join(
    json.dumps({"messages": [{"role": "user", "content": "why? " * n},
                             {"role": "assistant", "content": "so. " * n}]}).encode() + b"\n"
    for n in (3, 30, 300)
)  # fmt: skip


def told(asking: TestClient, query: str, **how: object) -> dict[str, object]:
    answered = asking.get(f"/api/data?{query}", **how)
    assert answered.status_code == 200, answered.text
    return json.loads(answered.text)


def test_the_json_is_that_of_the_command():
    profile = look_at(profile_data([CHAT], tokenizer="approximate"), max_length=700)
    expected = profile_answer(profile, as_of=DAY.isoformat()).model_dump(mode="json")
    assert told(client(EXAMPLES), f"{ASKED}&max_length=700") == expected


def test_the_line_and_every_table_follow_the_length():
    asking = client(EXAMPLES)
    first, other = (asking.get(f"/data?{ASKED}&max_length={n}").text for n in (128, 1024))
    assert "max_length 128 cuts" in first
    assert "max_length 1,024 cuts" in other
    assert Elements(first).one("input", id="max_length")["value"] == "128"


def test_batches_of_another_size_have_other_padding():
    asking = client(EXAMPLES)
    padding = [
        told(asking, f"{ASKED}&micro_batch={size}")["at_max_length"][-1]["padding_fraction"]
        for size in (2, 16)
    ]
    assert padding[0]["longest"] < padding[1]["longest"]


def test_with_a_card_each_length_has_hours_and_a_price():
    job = "model=Qwen/Qwen2.5-7B-Instruct&method=lora&gpu=NVIDIA+H100+SXM&count=1"
    found = told(client(EXAMPLES), f"{ASKED}&max_length=300&{job}")
    prices = [one["price"] for one in found["at_max_length"]]
    assert all(price["cost"]["likely"]["currency"] == "USD" for price in prices)


def test_the_figures_go_on_to_the_other_views():
    asking = client(EXAMPLES)
    page = Elements(asking.get(f"/data?{ASKED}&max_length=512&model=7B&gpu=NVIDIA+L4").text)
    (link,) = (
        one["href"] for one in page.all("a") if str(one["href"]).startswith("/fit?") and
        "samples=300" in str(one["href"])
    )  # fmt: skip
    assert "mean_tokens=263" in str(link)
    assert "max_length=512" in str(link)
    answered = asking.get(str(link))
    assert answered.status_code == 200
    assert Elements(answered.text).one("input", id="samples")["value"] == "300"


@pytest.mark.parametrize("path", ["/etc/passwd", "../README.md", "~/x.jsonl", "http://x/y.jsonl"])
def test_nothing_outside_the_allowed_folders_is_read(path):
    answered = client(EXAMPLES).get("/api/data", params={"data": path})
    assert answered.status_code == 400
    (mistake,) = answered.json()["errors"]
    assert (mistake["code"], mistake["path"]) == ("path_not_allowed", "data.path")
    assert "tuneplan serve --allow-path FOLDER" in mistake["how_to_fix"]


def test_without_allowed_folders_no_file_is_read():
    assert client().get("/api/data", params={"data": str(CHAT)}).status_code == 400


# --- files that are sent --------------------------------------------------------------------------


def test_a_file_that_is_sent_is_profiled_and_named_by_the_address_from_then_on(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    asking = client()
    sent = asking.post(
        "/data?max_length=64", files={"file": ("chats.jsonl", ROWS)}, follow_redirects=False
    )
    assert sent.status_code == 303
    assert list(tmp_path.iterdir()) == []  # nothing is left behind
    address = sent.headers["location"]
    assert "profile=" in address
    page = asking.get(address)
    assert page.status_code == 200
    assert "max_length 64 cuts" in page.text
    assert "chats.jsonl" in page.text
    assert str(tmp_path) not in page.text
    other = asking.get(address.replace("max_length=64", "max_length=128"))
    assert "max_length 128 cuts" in other.text


def test_a_program_sends_a_file_and_gets_the_profile():
    answered = client().post("/api/data", files={"file": ("chats.jsonl", ROWS)})
    assert answered.status_code == 200
    assert answered.json()["num_samples"] == 3
    assert answered.json()["files"][0]["path"] == "chats.jsonl"
    assert any(one["name"] == "data.tokenizer" for one in answered.json()["assumptions"])


def test_bad_rows_are_told_with_the_name_that_the_user_knows(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    bad = ROWS + b"{broken\n"
    answered = client().post("/api/data", files={"file": ("a b/chats.jsonl", bad)})
    assert answered.status_code == 400
    assert str(tmp_path) not in answered.text
    assert "chats.jsonl" in answered.text
    skipped = client().post("/api/data?skip=true", files={"file": ("chats.jsonl", bad)})
    assert skipped.status_code == 200
    assert skipped.json()["bad_rows"][0]["path"] == "chats.jsonl"


@pytest.mark.parametrize("name", ["x.jsonl.gz", "x.zip", "x.tar", "x.jsonl.zst"])
def test_what_is_packed_is_not_unpacked(name):
    answered = client().post("/api/data", files={"file": (name, gzip.compress(ROWS))})
    assert answered.status_code == 400
    assert answered.json()["errors"][0]["code"] == "archive_not_unpacked"


@pytest.mark.parametrize(
    "name", ["../../etc/cron.d/x.jsonl", "..\\..\\x.jsonl", ".jsonl", "\u202ex.jsonl"]
)
def test_the_name_of_a_file_leads_nowhere(name, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    answered = client().post("/api/data", files={"file": (name, ROWS)})
    assert answered.status_code in (200, 400)
    assert list(tmp_path.iterdir()) == []


def test_more_than_the_limit_is_refused():
    answered = client(upload_limit_bytes=1000).post(
        "/api/data", files={"file": ("chats.jsonl", ROWS)}
    )
    assert answered.status_code == 413


def test_a_profile_that_is_not_kept_any_more_is_said_to_be_gone():
    answered = client().get("/api/data?profile=gone")
    assert answered.status_code == 400
    assert answered.json()["errors"][0]["code"] == "not_kept_any_more"


def test_no_two_parts_of_a_page_have_one_name():
    job = "model=Qwen/Qwen2.5-7B-Instruct&method=lora&gpu=NVIDIA+H100+SXM&count=1"
    asking = client(EXAMPLES)
    addresses = [f"/data?{ASKED}&max_length=512&{job}", "/accuracy", f"/project?{job}&samples=100"]
    for address in [*addresses, f"/oom?{job}", f"/runs?{job}"]:
        page = Elements(asking.get(address).text)
        names = [one["id"] for _, one in page.found if "id" in one]
        assert sorted(set(names)) == sorted(names), address
