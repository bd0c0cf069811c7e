"""No request reads a file outside the folders that the user allows."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tuneplan.access.roots import inside, own_roots
from web.asking import client

ROW = {"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}]}
BASE = {"model": "7B", "method": "lora", "gpu": "NVIDIA L4"}


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """An allowed folder and another one, each with the same files; and a link out of the first."""
    allowed, other = tmp_path / "allowed", tmp_path / "other"
    for folder in (allowed, other):
        folder.mkdir()
        (folder / "chat.jsonl").write_text(json.dumps(ROW) + "\n", encoding="utf-8")
        (folder / "prices.yaml").write_text("SECRET: 1\n", encoding="utf-8")
        (folder / "config.json").write_text('{"SECRET": 1}', encoding="utf-8")
    (allowed / "link.jsonl").symlink_to(other / "chat.jsonl")
    (allowed / "linked").symlink_to(other)
    return allowed, other


KEYS = (
    *("data.path", "data.profile", "data.tokenizer", "prices", "accelerators", "models"),
    *("model", "training.optim", "hardware.accelerator", "framework"),
)


def _refused(answered) -> bool:
    assert answered.status_code == 400
    codes = {one["code"] for one in answered.json()["errors"]}
    assert "SECRET" not in answered.text
    return "path_not_allowed" in codes


@pytest.mark.parametrize("key", KEYS)
def test_a_file_outside_is_refused_whatever_key_names_it(key: str, folders) -> None:
    _, other = folders
    name = str(other / "config.json")
    asked = client(folders[0]).get("/api/fit", params={**BASE, "set": f"{key}={name}"})
    assert _refused(asked) or key in ("framework",)  # which takes names only
    job = {"model": "7B", "method": "lora"}
    *holders, leaf = key.split(".")
    holder = job
    for one in holders:
        holder = holder.setdefault(one, {})
    holder[leaf] = name
    assert _refused(client(folders[0]).post("/api/fit", json={"job": job})) or key == "framework"


WAYS = (
    "{other}/chat.jsonl",
    "{allowed}/../other/chat.jsonl",
    "../other/chat.jsonl",
    "link.jsonl",
    "{allowed}/link.jsonl",
    "linked/chat.jsonl",
    "./linked",
    "~/chat.jsonl",
    "~root/chat.jsonl",
    "file://{other}/chat.jsonl",
    "//{other}/chat.jsonl",
    "/etc/passwd",
    "/proc/self/environ",
)


@pytest.mark.parametrize("way", WAYS)
def test_no_way_of_writing_a_path_leads_outside(way: str, folders) -> None:
    allowed, other = folders
    name = way.format(allowed=allowed, other=other)
    asking = client(allowed)
    assert _refused(asking.get("/api/fit", params={**BASE, "data": name}))
    assert _refused(asking.get("/api/fit", params={**BASE, "prices": name}))
    assert _refused(asking.get("/api/fit", params={**BASE, "model": name}))


@pytest.mark.parametrize("way", ['"\\x2fetc/passwd"', "!!str /etc/passwd", "[/etc/passwd]", ">-"])
def test_what_yaml_makes_of_a_setting_is_looked_at(way: str, folders) -> None:
    setting = f"data.path={way}"
    answered = client(folders[0]).get("/api/fit", params={**BASE, "set": setting})
    assert answered.status_code == 400
    assert "root:" not in answered.text


def test_a_file_inside_is_read_by_its_name_in_the_folder(folders) -> None:
    allowed, _ = folders
    query = {**BASE, "data": "chat.jsonl", "tokenizer": "approximate"}
    answered = client(allowed).get("/api/fit", params=query)
    assert answered.status_code == 200, answered.text
    assert answered.json()["data"]["num_samples"] == 1


def test_without_a_folder_no_file_is_read(folders) -> None:
    allowed, _ = folders
    for name in (str(allowed / "chat.jsonl"), "pyproject.toml", "examples/support_chat.jsonl"):
        query = {**BASE, "data": name, "tokenizer": "approximate"}
        answered = client().get("/api/fit", params=query)
        assert answered.status_code == 400, name


def test_static_files_are_ours_alone() -> None:
    asking = client()
    assert asking.get("/static/page.css").status_code == 200
    for name in (
        "../app.py",
        "%2e%2e/app.py",
        "..%2fapp.py",
        "//etc/passwd",
        "vendor/../../app.py",
    ):
        assert asking.get(f"/static/{name}").status_code == 404


def test_a_pipe_is_no_file_and_nobody_waits_for_its_other_end(folders) -> None:
    allowed, _ = folders
    os.mkfifo(allowed / "pipe.yaml")
    for name in ("prices", "data.profile", "accelerators"):
        answered = client(allowed).get("/api/fit", params={**BASE, "set": f"{name}=pipe.yaml"})
        assert answered.status_code == 400, name


def test_a_tokenizer_is_named_as_data_is_by_its_place_in_the_folder(folders) -> None:
    allowed, _ = folders
    (allowed / "own").mkdir()
    query = {"data": "chat.jsonl", "tokenizer": "own"}
    answered = client(allowed).get("/api/data", params=query)
    assert answered.json()["errors"][0]["code"] == "no_tokenizer_in_folder"


def test_where_the_server_was_started_is_no_folder_that_may_be_read(folders, monkeypatch) -> None:
    _, other = folders
    monkeypatch.chdir(other)
    monkeypatch.syspath_prepend(str(other))  # as ``python -m`` does
    assert not inside(other / "config.json", own_roots())
    assert inside(Path(json.__file__), own_roots())


def test_a_refused_path_names_the_way_to_allow_it(folders) -> None:
    name = str(folders[1] / "chat.jsonl")
    answered = client().get("/api/fit", params={**BASE, "set": f"data.path={name}"})
    assert _refused(answered)
    assert "tuneplan serve --allow-path" in answered.json()["errors"][0]["how_to_fix"]
