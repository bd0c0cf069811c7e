"""``tuneplan data profile`` with a job, with pictures, and kept for a job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from tuneplan.cli.main import run

ROOT = Path(__file__).parents[2]
CHAT = str(ROOT / "examples" / "support_chat.jsonl")
JOB = ROOT / "examples" / "support_chat.yaml"
APPROXIMATE = ("--tokenizer", "approximate")


def answer(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> dict:
    assert run(["data", "profile", *arguments, "--json"]) == status
    return json.loads(capsys.readouterr().out)


def test_a_job_says_what_each_length_costs(capsys: pytest.CaptureFixture[str]) -> None:
    job = ("--job", str(JOB), "--accelerator", "H100 SXM")
    found = answer(capsys, *job, *APPROXIMATE)
    recommended = found["recommended"]
    prices = [recommended["price"], *(one["price"] for one in recommended["alternatives"])]
    assert all(price["total_s"]["likely"] > 0 for price in prices)
    assert all(price["cost"]["likely"]["currency"] == "USD" for price in prices)
    assert {price["fit"] for price in prices} <= {"fits", "tight", "does_not_fit"}
    assert all(one["price"] for one in found["at_max_length"])
    assert run(["data", "profile", *job, *APPROXIMATE]) == 0
    assert "hours of" in capsys.readouterr().out


def test_flags_alone_are_a_job_too(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--model", "Qwen/Qwen2.5-7B", "--accelerator", "H100 SXM", "--method", "lora")
    found = answer(capsys, CHAT, *flags, *APPROXIMATE)
    assert found["recommended"]["price"]["accelerator_hours"]["likely"] > 0


def test_without_a_job_no_price_is_made_up(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, CHAT, *APPROXIMATE)
    assert found["recommended"]["price"] is None
    assert found["recommended"]["computed_tokens"]["packed"] > 0


def test_neither_files_nor_a_job_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["data", "profile", *APPROXIMATE]) == 2
    assert "Name at least one data file" in capsys.readouterr().err
    numbers = ("--set", "data.num_samples=5", "--set", "data.mean_tokens=10")
    assert run(["data", "profile", "--model", "Qwen/Qwen2.5-7B", *numbers]) == 2
    assert "the job names no data files" in capsys.readouterr().err


def pictures(folder: Path) -> str:
    """Three rows: a picture at hand, one that is not, none."""
    Image.new("RGB", (640, 480)).save(folder / "here.png")
    turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    rows = [{"messages": turns, "images": [name]} for name in ("here.png", "away.png")]
    path = folder / "data.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"messages": turns}]))
    return str(path)


def test_pictures_are_counted_by_the_rule_of_the_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = pictures(tmp_path)
    model = ("--model", "Qwen/Qwen2.5-VL-7B-Instruct")
    found = answer(capsys, path, *model)
    assert found["tokens"]["image"] is None
    assert (found["pictures"]["count"], found["pictures"]["unsized"]) == (2, 1)
    assert [one["code"] for one in found["warnings"]] == ["images_not_at_hand"]

    found = answer(capsys, path, *model, "--image", "480x640")
    # Each is 17 x 23 squares of 28 pixels, with two marks.
    assert found["tokens"]["image"]["likely"] == 2 * (17 * 23 + 2)
    assert found["tokens"]["image"]["basis"] == "assumed"
    assert "data.image" in [one["name"] for one in found["assumptions"]]
    assert found["length"]["max"] > 17 * 23

    found = answer(capsys, path, "--model", "Qwen/Qwen2.5-7B")
    assert [one["code"] for one in found["warnings"]] == ["images_not_counted"]
    assert run(["data", "profile", path, *model, "--image", "480 by 640"]) == 2
    assert "HEIGHTxWIDTH" in capsys.readouterr().err


def test_a_kept_profile_stands_for_the_data_in_a_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "chat.profile.json"
    job = ("--model", "Qwen/Qwen2.5-7B-Instruct", "--method", "lora", "--accelerator", "H100 SXM")
    answer(capsys, CHAT, *job[:2], *APPROXIMATE, "--save", str(kept))
    figures = []
    for data in (f"data.profile={kept}", f"data.path={CHAT}"):
        more = ("--set", "data.tokenizer=approximate") if "path" in data else ()
        assert run(["estimate", *job, "--set", data, *more, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        figures.append((found["data"], found["time"]["total_s"], found["cost"]["total"]))
    assert figures[0] == figures[1]
