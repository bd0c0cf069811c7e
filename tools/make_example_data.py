"""Make ``examples/support_chat.jsonl``: a bilingual support and technical chat, always the same.

Every row is written from ``example_fragments.yaml`` with a seeded generator: English, 繁體中文 and
简体中文; one question to long threads; logs, code and tables in some. Devices and numbers are made
up; there are no people or companies in it.

    python tools/make_example_data.py [FILE]
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path

import yaml

SEED = 20260301
NUM_ROWS = 300
LANGUAGES = (("en", 0.5), ("tw", 0.28), ("cn", 0.22))

FRAGMENTS = yaml.safe_load((Path(__file__).parent / "example_fragments.yaml").read_text("utf-8"))


def values(rng: random.Random, language: str) -> dict[str, str]:
    """Made-up devices, numbers and names for one row."""
    filled = {
        "model": rng.choice(("NX-", "ST-", "BK-", "R")) + str(rng.randrange(2, 19) * 100 + 20),
        "volume": rng.choice(("vol", "pool", "data", "arc")) + str(rng.randrange(1, 9)),
        "place": rng.choice(FRAGMENTS["places"][language]),
        "bay": str(rng.randrange(1, 13)),
        "size": str(rng.choice((2, 4, 6, 8, 12, 16, 20, 40))),
        "hours": str(rng.randrange(2, 23)),
        "percent": str(rng.randrange(3, 98)),
        "count": str(rng.randrange(3, 64)),
        "days": str(rng.choice((7, 14, 30, 60, 90))),
        "speed": str(rng.randrange(4, 240)),
        "port": str(rng.choice((443, 873, 2049, 5001, 6281, 8443))),
        "code": f"E{rng.randrange(1000, 9999)}",
        "target": rng.choice(FRAGMENTS["targets"]),
        "job": rng.choice(FRAGMENTS["jobs"]),
        "link": rng.choice(("1 GbE", "2.5 GbE", "10 GbE", "25 GbE")),
        "version": f"{rng.randrange(5, 9)}.{rng.randrange(0, 10)}.{rng.randrange(0, 5)}",
        "years": str(rng.randrange(28, 36)),
    }
    filled["time"] = rng.choice(FRAGMENTS["times"][language]).format(**filled)
    return filled


def log_of(rng: random.Random, num_lines: int) -> str:
    """Lines of a device's log."""
    day, hour, minute = rng.randrange(1, 29), rng.randrange(0, 20), rng.randrange(0, 60)
    lines = []
    for _ in range(num_lines):
        minute += rng.randrange(0, 3)
        hour, minute = hour + minute // 60, minute % 60
        event = rng.choice(FRAGMENTS["events"]).format(**values(rng, "en"))
        lines.append(f"2026-02-{day:02d} {hour:02d}:{minute:02d} {event}")
    return "```\n" + "\n".join(lines) + "\n```"


def table_of(rng: random.Random, num_lines: int) -> str:
    """A table of measured copies."""
    head = "| folder | files | GB | MB/s |\n| --- | --- | --- | --- |\n"
    rows = (
        f"| /{rng.choice(FRAGMENTS['jobs'])}/{rng.randrange(2019, 2026)} "
        f"| {rng.randrange(40, 90000):,} "
        f"| {rng.uniform(0.5, 900):.1f} | {rng.uniform(3, 980):.0f} |"
        for _ in range(num_lines)
    )
    return head + "\n".join(rows)


def filler(rng: random.Random, language: str, size: int) -> Callable[[str], str]:
    """Fills templates of one row; ``size`` scales its logs and tables."""
    known = values(rng, language)

    def fill(template: str) -> str:
        # Templates with code hold braces of their own, so blocks are put in after the values.
        blocks = {
            "{log}": lambda: log_of(rng, rng.randrange(2, 4 + size)),
            "{table}": lambda: table_of(rng, rng.randrange(2, 4 + size)),
            "{code_block}": lambda: rng.choice(FRAGMENTS["codes"]).format(**known),
        }
        marked = template
        for number, name in enumerate(blocks):
            marked = marked.replace(name, f"\x00{number}")
        text = marked.format(**known)
        for number, make in enumerate(blocks.values()):
            while f"\x00{number}" in text:
                text = text.replace(f"\x00{number}", make(), 1)
        return text

    return fill


def turns(pair: str, fill: Callable[[str], str]) -> list[dict[str, str]]:
    """A question and its answer, written as ``question|answer``; tables hold bars of their own."""
    question, answer = pair.split("|", 1)
    return [
        {"role": "user", "content": fill(question)},
        {"role": "assistant", "content": fill(answer)},
    ]


def conversation(rng: random.Random) -> list[dict[str, str]]:
    """One row; how long it gets is drawn first, with a long tail."""
    names, weights = zip(*LANGUAGES, strict=True)
    language = rng.choices(names, weights)[0]
    length = min(9.0, rng.lognormvariate(0.3, 1.0))
    size = int(length * 2.2)
    fill = filler(rng, language, size)
    messages = []
    if rng.random() < 0.55:
        messages.append({"role": "system", "content": rng.choice(FRAGMENTS["system"][language])})
    if length < 0.75:
        return messages + turns(rng.choice(FRAGMENTS["short"][language]), fill)
    topics = rng.sample(FRAGMENTS["topics"], k=1 + (length > 3.0) + (length > 6.0))
    for topic in topics:
        said = topic[language]
        question = rng.randrange(len(said["ask"]))
        messages += turns(said["ask"][question] + "|" + said["answer"][question], fill)
        number = min(len(said["more"]), int(length * rng.uniform(0.3, 0.9)))
        for pair in rng.sample(said["more"], k=number):
            messages += turns(pair, fill)
    return messages


def make_rows() -> list[dict[str, list[dict[str, str]]]]:
    """All rows, none equal to another."""
    rng = random.Random(SEED)  # noqa: S311 - example data, not a secret
    rows: list[dict[str, list[dict[str, str]]]] = []
    seen = set()
    while len(rows) < NUM_ROWS:
        messages = conversation(rng)
        said = json.dumps(messages[-2:], ensure_ascii=False)
        if said not in seen:
            seen.add(said)
            rows.append({"messages": messages})
    return rows


def main() -> None:
    """Write the file."""
    default = Path(__file__).parents[1] / "examples" / "support_chat.jsonl"
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else default
    lines = (json.dumps(row, ensure_ascii=False) for row in make_rows())
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    print(f"{path}: {NUM_ROWS} rows, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
