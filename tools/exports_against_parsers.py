"""Exported files, read by the frameworks' own parsers: ``docs/internals/exports.md``.

``python tools/exports_against_parsers.py --python trl=ENV --python llamafactory=ENV ...`` exports a
set of jobs, hands each framework's files to its own parser in an environment that has the package
(a folder of ``python -m venv``, or a Python), and writes the page. Environments: ``trl`` (trl,
deepspeed, accelerate), ``llamafactory``, ``axolotl``, ``torchtune``, ``ms-swift``, ``launch``
(skypilot, dstack, kubernetes-validate, kubeflow-training). Nothing is trained and nothing loaded.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from tuneplan import export, load_job  # noqa: E402 - the source tree of this file comes first
from tuneplan.errors import CannotExport, InputError  # noqa: E402
from tuneplan.formats.exports import ENGINES, LAUNCHERS, WRITERS  # noqa: E402
from tuneplan.formats.torchtune_builders import torchtune_model  # noqa: E402
from tuneplan.formats.torchtune_writing import recipe_of  # noqa: E402
from tuneplan.planner.estimate import estimate_job  # noqa: E402
from tuneplan.planner.sources import Sources  # noqa: E402

PAGE = ROOT / "docs" / "internals" / "exports.md"
CHECKS = ROOT / "tools" / "parser_checks"
MODEL = "Qwen/Qwen2.5-7B-Instruct"
EIGHT = {"accelerator": "H100 SXM", "accelerators_per_node": 8}
TWO_NODES = {**EIGHT, "num_nodes": 2}
# Check, environment, frameworks whose files it reads.
PARSERS = (
    ("check_trl.py", "trl", ("trl",)),
    ("check_llamafactory.py", "llamafactory", ("llamafactory",)),
    ("check_axolotl.py", "axolotl", ("axolotl",)),
    ("check_torchtune.py", "torchtune", ("torchtune",)),
    ("check_swift.py", "ms-swift", ("ms-swift",)),
    ("check_engines.py", "trl", (*WRITERS, *ENGINES)),
    ("check_launch.py", "launch", tuple(WRITERS)),
)
WHAT = {
    "check_trl.py": "`TrlParser` with the configuration class of the trainer",
    "check_llamafactory.py": "`get_train_args`, `get_dataset_list`",
    "check_axolotl.py": "`validate_config` for eight H100; every key one of the schema",
    "check_torchtune.py": "`config.validate`; recipe, model, optimizer and loss built on `meta`; "
    "parameters counted",
    "check_swift.py": "the parser of the command's argument class; nothing left over",
    "check_engines.py": "DeepSpeed's configuration classes, accelerate's reader",
    "check_launch.py": "`bash -n`; SkyPilot's schema, dstack's models, Kubernetes' schemas "
    "(strict), the PyTorchJob client",
}


@dataclass
class Tally:
    """What became of the jobs of one framework."""

    written: int = 0
    refused: dict[str, str] = field(default_factory=dict)


def jobs(framework: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Jobs that differ from a plain one in one thing each, by name."""
    base: dict[str, Any] = {"model": MODEL, "framework": framework, "method": "lora"}
    base["data"] = {"num_samples": 10_000, "mean_tokens": 500}
    yield "plain", base
    for method in ("full", "freeze", "dora", "qlora"):
        more = {"training": {"trained_layers": 4}} if method == "freeze" else {}
        yield f"method-{method}", {**base, **more, "method": method}
    yield "int8", {**base, "method": "qlora", "quantization": {"bits": 8}}
    for objective in ("pretrain", "dpo", "kto", "orpo", "simpo", "rm"):
        steps = {"training": {"max_steps": 500}} if objective == "pretrain" else {}
        yield f"objective-{objective}", {**base, **steps, "objective": objective}
    for strategy, offload in (
        *(("ddp", "none"), ("zero1", "none"), ("zero2", "none"), ("zero3", "none")),
        *(("zero2", "optimizer"), ("zero3", "params"), ("fsdp", "none"), ("fsdp2", "none")),
        *(("fsdp2", "params"), ("hsdp", "none")),
    ):
        spread = {"strategy": strategy, "offload": offload}
        hardware = TWO_NODES if strategy == "hsdp" else EIGHT
        name = strategy if offload == "none" else f"{strategy}-{offload}"
        yield name, {**base, "parallelism": spread, "hardware": hardware}
    for strategy in ("zero3", "fsdp2"):
        whole = {"method": "full", "parallelism": strategy, "hardware": EIGHT}
        yield f"full-{strategy}", {**base, **whole}
    for key, values in TRAINING.items():
        for value in values:
            data = (
                {**base["data"], "eval_fraction": 0.02} if key.startswith("eval") else base["data"]
            )
            yield f"{key}-{value}", {**base, "data": data, "training": {key: value}}
    for key, value in ADAPTER.items():
        yield f"adapter-{key}", {**base, "adapter": {key: value}}


TRAINING: dict[str, tuple[Any, ...]] = {
    "precision": ("bf16", "fp16", "fp32", "tf32", "none"),
    "packing": (True,),
    "padding": ("longest", "max_length", "grouped", "none"),
    "gradient_checkpointing": (True, False, "offload", "selective"),
    "attn_implementation": ("eager", "sdpa", "flash_attention_2", "flex_attention"),
    "loss": ("full", "chunked", "fused"),
    "use_liger_kernel": (True,),
    "torch_compile": (True,),
    "optim": (
        *("adamw_torch", "adamw_bnb_8bit", "paged_adamw_32bit", "adafactor", "lion_8bit", "muon"),
    ),
    "eval_steps": (50,),
    "eval_strategy": ("epoch",),
    "save_strategy": ("epoch", "no"),
    "max_steps": (100,),
}
ADAPTER: dict[str, Any] = {
    "target_modules": "all-linear",
    "use_rslora": True,
    "modules_to_save": ["embed_tokens", "lm_head"],
    "lora_dropout": 0.1,
}


def builders() -> Iterator[tuple[str, dict[str, Any]]]:
    """A job for every model of the catalogue that torchtune builds."""
    for entry in Sources().models.entries():
        name = entry.hf_id or entry.name
        if torchtune_model(name) is not None:
            yield (
                f"model-{name.rsplit('/', 1)[-1]}",
                {
                    "model": name,
                    "framework": "torchtune",
                    "method": "lora",
                    "data": {"num_samples": 10_000, "mean_tokens": 500},
                },
            )


_FUSED = "microsoft/"  # Phi's projections are one linear for Hugging Face, three for torchtune


def write(folder: Path, framework: str, tree: dict[str, Any], kinds: list[str]) -> None:
    """Export a job into a folder."""
    found = export(tree, to=framework, launchers=kinds)
    folder.mkdir(parents=True)
    for one in found.files:
        (folder / one.name).write_text(one.text, encoding="utf-8")
    if framework == "torchtune":
        estimate = estimate_job(load_job(tree), Sources())
        adapts = tree["method"] != "full" and not tree["model"].startswith(_FUSED)
        expected = {
            "recipe": recipe_of(found.job),
            "total_parameters": estimate.resolved.model.total_parameters,
            "trainable_parameters": estimate.memory.num_trained if adapts else None,
        }
        (folder / "expected.json").write_text(json.dumps(expected), encoding="utf-8")


def write_all(folder: Path) -> dict[str, Tally]:
    """Export every job for every framework, launch files of every kind, and the engines' files."""
    tallies = {framework: write_jobs(folder, framework) for framework in WRITERS}
    for framework in WRITERS:
        write_launches(folder, framework)
    for engine, strategies in (
        ("deepspeed", ("zero2", "zero3")),
        ("accelerate", ("ddp", "zero2", "zero3", "fsdp", "fsdp2")),
    ):
        for strategy in strategies:
            tree = {"model": MODEL, "method": "lora", "hardware": EIGHT, "parallelism": strategy}
            write(folder / engine / strategy, engine, tree, [])
    return tallies


def write_jobs(folder: Path, framework: str) -> Tally:
    """Every job that the framework can say."""
    tally = Tally()
    for name, tree in (*jobs(framework), *(builders() if framework == "torchtune" else ())):
        try:
            write(folder / framework / name, framework, tree, [])
            tally.written += 1
        except CannotExport as error:
            tally.refused[name] = "; ".join(f"{one.path}: {one.message}" for one in error.mistakes)
        except InputError as error:
            tally.refused[name] = f"no job: {error}"
    return tally


def write_launches(folder: Path, framework: str) -> None:
    """One plain job with each kind of launch file, on one machine and on two."""
    for nodes, hardware in ((1, EIGHT), (2, TWO_NODES)):
        for kind in LAUNCHERS:
            tree = {"model": MODEL, "framework": framework, "method": "lora"}
            tree |= {"hardware": hardware, "limits": {"deadline": "30 h"}}
            if framework == "torchtune" and kind in ("accelerate", "deepspeed"):
                continue  # tune run is a torchrun of its own
            write(folder / framework / f"launch-{kind}-{nodes}", framework, tree, [kind])


def run_check(check: str, python: str, folders: list[str]) -> dict[str, Any]:
    """What one parser says; the last line of its output is the answer."""
    done = subprocess.run(
        [python, str(CHECKS / check)],
        input=json.dumps(folders),
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.strip().splitlines()
    if not lines or not lines[-1].startswith("{"):
        sys.exit(f"{check} gave no answer:\n{done.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer


def page(tallies: dict[str, Tally], answers: dict[str, dict[str, Any]], folder: Path) -> str:
    """The page from what the parsers said."""
    lines = [
        "<!-- Made by tools/exports_against_parsers.py. -->",
        "",
        "# Exported files against the frameworks' own parsers",
        "",
        "Every file below was written by `tuneplan export` and read by the package that will read",
        "it, on a machine without a GPU: nothing was trained and no weights were loaded.",
        "Where a parser asks whether the device has bf16 or TF32, it was told that it has;",
        "LLaMA-Factory's look for packages that need a GPU was passed over.",
        "",
        "| read by | versions | how | files | accepted |",
        "|---|---|---|---|---|",
    ]
    for check, answer in answers.items():
        results = answer["results"]
        good = sum(one["error"] is None for one in results)
        versions = ", ".join(f"{name} {number}" for name, number in answer["versions"].items())
        own = check.removeprefix("check_").removesuffix(".py")
        lines.append(f"| {own} | {versions} | {WHAT[check]} | {len(results)} | {good} |")
    bad = [(c, one) for c, a in answers.items() for one in a["results"] if one["error"]]
    lines += ["", "## Not accepted", ""]
    if not bad:
        lines.append("None.")
    for check, one in bad:
        place = Path(one["folder"]).relative_to(folder)
        error = " ".join(one["error"].split())
        lines.append(f"- {check}, `{place}/{one['file']}`: {error}")
    lines += [
        "",
        "## What was written",
        "",
        "One plain LoRA job and jobs that differ from it in one setting each; for torchtune one",
        "for every model of the catalogue that it builds, whose parameters are counted",
        "(not the adapters of Phi: torchtune splits linears that `estimate` counts as one).",
        "",
        "| framework | jobs written | refused by name |",
        "|---|---|---|",
    ]
    for framework, tally in tallies.items():
        lines.append(f"| {framework} | {tally.written} | {len(tally.refused)} |")
    lines += ["", "The refusals:", ""]
    for framework, tally in tallies.items():
        reasons: dict[str, list[str]] = {}
        for name, reason in tally.refused.items():
            reasons.setdefault(reason, []).append(name)
        lines += [f"- {framework}"]
        lines += [f"  - {', '.join(names)}: {reason}" for reason, names in reasons.items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Export, ask, write the page; the exit status is 1 where a file was not accepted."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument(
        "--python", action="append", default=[], metavar="NAME=PATH", required=True
    )
    given = arguments.parse_args()
    pythons = {}
    for text in given.python:
        name, _, path = text.partition("=")
        python = Path(path) / "bin" / "python" if Path(path).is_dir() else Path(path)
        pythons[name] = str(python.absolute())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        tallies = write_all(folder)
        answers = {}
        for check, environment, frameworks in PARSERS:
            if environment not in pythons:
                sys.exit(f"--python {environment}=PATH is missing")
            folders = [
                str(one)
                for framework in frameworks
                for one in sorted((folder / framework).iterdir())
                if check != "check_launch.py" or one.name.startswith("launch-")
            ]
            answers[check] = run_check(check, pythons[environment], folders)
            results = answers[check]["results"]
            bad = sum(one["error"] is not None for one in results)
            print(f"{check}: {len(results)} files, {bad} not accepted", flush=True)
        text = page(tallies, answers, folder)
    PAGE.write_text(text, encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
    failed = any(one["error"] for answer in answers.values() for one in answer["results"])
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
