"""The pictures of the pages: charts of our own answers, drawn as SVG.

Each is a command with ``--json``, and the chart that reports and the page draw of such an answer.
How text is set depends on the fonts of a machine, so a picture carries the digest of its
Vega-Lite specification, and that is what says whether it is out of date.
"""

from __future__ import annotations

import hashlib
import html
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

from console_blocks import SETTING

from tuneplan.cli.main import run
from tuneplan.contract.answers import EstimateAnswer, PlanAnswer
from tuneplan.contract.measured import DataProfileAnswer
from tuneplan.contract.priced import BreakEvenAnswer
from tuneplan.report.budget_charts import break_even_lines
from tuneplan.report.data_charts import length_tradeoff, packing_bars
from tuneplan.report.drawing import svg
from tuneplan.report.plan_charts import Interval, interval_bars, memory_bar, memory_stack
from tuneplan.report.sections.alternatives import scatter
from tuneplan.units import HOUR_S

ROOT = Path(__file__).resolve().parents[1]
FOLDER = "docs/pictures"
WIDTH = 560
DIGEST = re.compile(r"<!-- specification ([0-9a-f]{64}) -->")
CHAT = ("--set", "data.num_samples=20000", "--set", "data.mean_tokens=600", "--max-length", "2048")
JOB = ("estimate", "--model", "Qwen/Qwen2.5-7B-Instruct", *CHAT, "--set", "training.dtype=bfloat16")
BATCH = ("--set", "training.per_device_train_batch_size=2")
KEEP = ("--set", "training.gradient_checkpointing=false")
AGAIN = ("--set", "training.gradient_checkpointing=true")
METHODS: Mapping[str, tuple[str, ...]] = {
    "full": ("--method", "full", *KEEP),
    "full, checkpointing": ("--method", "full", *AGAIN),
    "LoRA": ("--method", "lora", *KEEP),
    "LoRA, checkpointing": ("--method", "lora", *AGAIN),
    "QLoRA": ("--method", "qlora", *KEEP),
    "QLoRA, checkpointing": ("--method", "qlora", *AGAIN),
}
CARDS = ("H100 SXM", "A100 SXM 80GB", "L40S", "RTX 5090", "RTX 4090", "RTX 3090")


def answered(*words: str) -> str:
    """What a command says with ``--json``, on the day of all shown answers."""
    printed = StringIO()
    with chdir(ROOT), patch.dict(os.environ, SETTING), redirect_stdout(printed):
        status = run([*words, "--json"])
    if status:
        msg = f"tuneplan {' '.join(words)} left with status {status}: {printed.getvalue()}"
        raise ValueError(msg)
    return printed.getvalue()


def _estimate(*words: str) -> EstimateAnswer:
    return EstimateAnswer.model_validate_json(answered(*JOB, *words))


def memory_by_method() -> dict[str, Any]:
    """One model on one card, by method."""
    bars = [
        memory_bar(name, _estimate("--accelerator", "H100 SXM", *BATCH, *words))
        for name, words in METHODS.items()
    ]
    return memory_stack(bars, width=WIDTH)


def hours_by_card() -> dict[str, Any]:
    """The same run on several cards, with its ranges."""
    rows = []
    for card in CARDS:
        time = _estimate("--accelerator", card, "--method", "qlora", *BATCH, *AGAIN).time
        if time is None or time.total_s is None:
            msg = f"no duration on {card}"
            raise ValueError(msg)
        hours = {name: getattr(time.total_s, name) / HOUR_S for name in ("low", "likely", "high")}
        rows.append(Interval(name=card, **hours))
    return interval_bars(rows, title="hours", width=WIDTH)


def _profile() -> DataProfileAnswer:
    lengths = [word for length in (512, 1024, 2048, 4096) for word in ("--max-length", str(length))]
    profile = ("data", "profile", "examples/support_chat.jsonl", "--model")
    return DataProfileAnswer.model_validate_json(
        answered(*profile, "Qwen/Qwen2.5-7B-Instruct", *lengths)
    )


def padded_and_packed() -> dict[str, Any]:
    """What a length cuts off, and what padding and packing leave empty."""
    return length_tradeoff(_profile(), width=WIDTH)


def packing() -> dict[str, Any]:
    """How full rows get, framework by framework."""
    return packing_bars(_profile(), max_length=2048, width=WIDTH)


def cost_and_time() -> dict[str, Any]:
    """The plans of the quickstart."""
    answer = PlanAnswer.model_validate_json(answered("plan", "examples/support_chat.yaml"))
    chart = scatter(answer)
    if chart is None:
        msg = "no two plans with hours and cost"
        raise ValueError(msg)
    return dict(chart.specification)


def break_even() -> dict[str, Any]:
    """By the hour against by the month."""
    offers = ("h100-hour", "h100-month", "--file", "examples/prices.yaml")
    answer = BreakEvenAnswer.model_validate_json(answered("prices", "break-even", *offers))
    return break_even_lines(answer.break_even, width=WIDTH)


# The name of a picture, what it is of for those who do not see it, and its specification.
PICTURES: Mapping[str, tuple[str, Callable[[], dict[str, Any]]]] = {
    "memory_by_method": ("Memory of one card by method, against its capacity", memory_by_method),
    "hours_by_card": ("Hours of one run on several cards, with ranges", hours_by_card),
    "padded_and_packed": ("What each max_length cuts off and leaves empty", padded_and_packed),
    "packing": ("How full packed rows get, by framework", packing),
    "cost_and_time": ("Cost against time of the plans of the quickstart", cost_and_time),
    "break_even": ("What an offer by the hour and one by the month cost", break_even),
}


def outdated(root: Path) -> Iterator[tuple[Path, Callable[[], str]]]:
    """Pictures that do not show what their command says, and what draws each anew."""
    for name, (label, specify) in PICTURES.items():
        path = root / FOLDER / f"{name}.svg"
        specification = specify()
        digest = hashlib.sha256(json.dumps(specification, sort_keys=True).encode()).hexdigest()
        found = DIGEST.search(path.read_text(encoding="utf-8")) if path.exists() else None
        if found is None or found[1] != digest:
            yield path, partial(drawn, specification, digest=digest, label=label)


def drawn(specification: Mapping[str, Any], *, digest: str, label: str) -> str:
    """A picture that is legible on light and dark pages alike: it brings its own paper."""
    picture = svg(specification, label=label)
    title = f"<title>{html.escape(label)}</title>"
    start, _, rest = picture.partition(">")
    start = start.replace("<svg ", '<svg style="background:#fff" ', 1)
    return f"{start}><!-- specification {digest} -->{title}{rest}\n"
