"""Write ``evidence/field.toml``: reports of users whose job ran, or ran out of memory.

``python tools/collect_field.py CASES.jsonl`` takes the reports (lines as ``tools/field_cases.py``
reads them) that state model, card, count, layout, length and batch, and whose account was judged
sound (quality 4 or 5). What a report leaves open beside that stays blank, and the framework's
defaults of its day fill it. They serve verdicts alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from collect_evidence import TO, literal  # noqa: E402 - beside this file
from field_cases import _layout, _training, card_of, for_card, method_of, model_of  # noqa: E402

from tuneplan.catalog.models import load_models  # noqa: E402
from tuneplan.planner.sources import Sources  # noqa: E402

NUMBERS = ("num_gpus", "nodes", "seq_len", "micro_batch_per_gpu", "grad_accum", "lora_rank")
SOUND = 4
EIGHT = 8
HEAD = """# Made by tools/collect_field.py; evidence/README.md says how to read and extend it.

[source]
name = "field"
repository = "issues of hiyouga/LlamaFactory, OpenAccess-AI-Collective/axolotl and others"
commit = "each report has its own source_path"
files = ["issues and discussions"]
memory = []
remarks = "Each says in its own words what was run; lengths are caps, and batches may be shorter."

[measured]
runs = [
"""


def rows(cases: list[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Reports that say enough, as columns."""
    sources = Sources()
    known = {entry.name.casefold(): entry.name for entry in load_models().entries()}
    for case in cases:
        row = _row(case, known, sources)
        if row is not None:
            yield row


def _row(
    case: Mapping[str, Any], known: Mapping[str, str], sources: Sources
) -> dict[str, Any] | None:
    config, outcome = case["config"], case["outcome"]
    model = model_of(case["model"], known)
    count = case["num_gpus"]
    card = card_of(case["gpu"], count, sources)
    training = dict(_training({name: for_card(value, card) for name, value in config.items()}))
    length = training.get("max_length")
    batch = training.get("per_device_train_batch_size")
    host = str(outcome.get("oom_kind", "CUDA")).startswith("host")
    stage = outcome.get("stage")
    elsewhere = stage in ("load", "save", "eval") or host  # not the memory of a step
    layout = _layout(f"{config.get('distributed', '')} {config.get('framework', '')}")
    sound = (case.get("quality") or 0) >= SOUND and (layout is not None or count == 1)
    if not (model and card and count and length and batch and sound) or elsewhere:
        return None
    method = method_of(case)
    if "objective" in method or outcome.get("oom") is None:
        return None
    words = {"zero2": "zero=2", "zero3": "zero=3", "fsdp": "fsdp full_shard", "ddp": "ddp"}
    checkpointing = training.get("gradient_checkpointing")
    row: dict[str, Any] = {
        "id": f"field-{case['id']}",
        "source_path": case.get("url", ""),
        "model": model,
        "framework": _framework(config),
        "framework_version": case["date"],
        "gpu": card,
        "num_gpus": count,
        "method": method["method"],
        "quantization": _quantization(method),
        "lora_rank": method.get("adapter", {}).get("r"),
        "seq_len": length,
        "micro_batch_per_gpu": batch,
        "grad_accum": training.get("gradient_accumulation_steps"),
        "parallelism": words.get(layout["strategy"], "") if layout else "",
        "offload": "params" if layout and "offload" in layout else "",
        "activation_checkpointing": {True: "full", False: "none"}.get(checkpointing, ""),
        "oom": "yes" if outcome["oom"] else "no",
    }
    if count == 1 and not row["parallelism"]:
        row["parallelism"] = "single"
    return {key: value for key, value in row.items() if value not in ("", None)}


def _quantization(method: Mapping[str, Any]) -> str:
    if method.get("quantization", {}).get("bits") == EIGHT:
        return "bnb-8bit"
    return {"qlora": "bnb-nf4", "gptq-lora": "gptq-int4"}.get(method["method"], "")


def _framework(config: Mapping[str, Any]) -> str:
    said = str(config.get("framework", "")).casefold()
    for words, name in (
        ("llama-factory", "llamafactory"), ("axolotl", "axolotl"), ("torchtune", "torchtune"),
        ("ms-swift", "ms-swift"), ("unsloth", "unsloth"), ("trl", "trl"),
        ("alignment-handbook", "trl"), ("qwen finetune", "qwen"),
    ):  # fmt: skip
        if words in said:
            return name
    return "transformers"


if __name__ == "__main__":
    TEXT = Path(sys.argv[1]).read_text(encoding="utf-8")
    FOUND = list(rows([json.loads(line) for line in TEXT.splitlines() if line.strip()]))
    LINES = [
        "  { "
        + ", ".join(
            f"{key} = {value if key in NUMBERS else literal('', str(value))}"
            for key, value in row.items()
        )
        + " },"
        for row in FOUND
    ]
    (TO / "field.toml").write_text(HEAD + "\n".join(LINES) + "\n]\n", encoding="utf-8")
    print(f"field.toml: {len(FOUND)} reports")
