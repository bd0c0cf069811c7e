r"""Read a folder of configurations and write what became of every key of every file.

    python tools/formats_page.py FOLDER --page docs/reference/formats.md [--gpu "H100 SXM"] \
        [--with-model Qwen/Qwen2.5-7B-Instruct]

The folder holds one folder a framework; the configurations are not part of the repository. Each
file is estimated as ``tuneplan check FILE --gpu ...`` would, with as many cards as it states, and,
where it names no model (DeepSpeed, Accelerate), with the given one.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from tuneplan.errors import InputError, Mistake  # noqa: E402 - the source tree comes first
from tuneplan.formats.foreign import Fate, ForeignKey, Imported  # noqa: E402
from tuneplan.formats.reading import read_foreign  # noqa: E402
from tuneplan.formats.registry import recognised  # noqa: E402
from tuneplan.planner.estimate import estimate_job  # noqa: E402
from tuneplan.planner.importing import in_own_words, keys_of, read_configuration  # noqa: E402
from tuneplan.planner.sources import Sources  # noqa: E402

MADE = "<!-- Made by tools/formats_page.py. -->"
ENDINGS = (".yaml", ".yml", ".json", ".toml", ".sh")
HEAD = """# Configurations of other frameworks

`tuneplan check` and `tuneplan import` read the files below ([how](../how-to/check.md)).
Every key of a file is one of four:

- **carried over** into the job;
- **irrelevant**: known to change neither memory nor time nor cost;
- **not carried over**: it matters, or may, and a job has no words for it; the reason is told;
- **not understood**: not known here; the nearest known key is told.

None is passed over in silence: `--all` lists them.

What follows was made on {day} by

    python tools/formats_page.py FOLDER --gpu "{gpu}" --with-model {model}

from {files} configurations that the frameworks ship as examples, one folder a framework.
They are not part of this repository.
An estimate was asked for on the chip above, with as many cards as the file says.
No data was given, so rows are taken as full: up to the length that the file states, or, where
nothing cuts them (torchtune's files), up to the model's own limit.
"""
UNKNOWN_MODEL = "unknown model"
OUTCOMES = ("fits", "tight", "does_not_fit", "with a given model", UNKNOWN_MODEL, "refused")
FATES = (Fate.CARRIED, Fate.IRRELEVANT, Fate.NOT_CARRIED, Fate.NOT_UNDERSTOOD)


@dataclass(slots=True)
class Tried:
    """What came of one file."""

    path: Path
    folder: str
    format: str | None = None
    keys: tuple[ForeignKey, ...] = ()
    outcome: str = "refused"
    reasons: list[Mistake] = field(default_factory=list)


def tried(path: Path, folder: str, gpu: str, model: str, sources: Sources) -> Tried:
    """Read one file, and estimate it where it says enough."""
    result = Tried(path=path, folder=folder)
    try:
        document = read_foreign(path)
        result.format = next(iter(recognised(document)), None)
        imported: Imported | None = keys_of(path)
    except InputError as error:
        result.reasons = list(error.mistakes)
        return result
    if imported is not None:
        result.format, result.keys = imported.format, imported.keys
    flags = {"hardware.accelerator": gpu}
    names_model = imported is None or "model" in imported.job
    try:
        read = read_configuration(path, overrides=flags | ({} if names_model else {"model": model}))
        with in_own_words(read):
            estimate = estimate_job(read.job, sources)
    except InputError as error:
        result.reasons = list(error.mistakes)
        if all(one.message.code == "unknown_model" for one in result.reasons):
            result.outcome = UNKNOWN_MODEL
        return result
    verdict = estimate.memory.fit.verdict.value if estimate.memory.fit else "no card"
    result.outcome = verdict if names_model else "with a given model"
    return result


def page(results: list[Tried], *, gpu: str, model: str, day: date) -> Iterator[str]:
    """The page, paragraph by paragraph."""
    yield MADE
    yield HEAD.format(day=day.isoformat(), gpu=gpu, model=model, files=len(results)).rstrip()
    yield "## By framework"
    yield (
        "`fits`, `tight`, `does not fit`: estimates made.\n"
        "`with a given model`: the file says how a job is spread and names no model, so one was "
        "given.\n"
        "`unknown model`: the name is in no catalogue and nothing was downloaded; a folder or a "
        "config.json of it would do.\n"
        "`refused`: see below."
    )
    yield "\n".join(_table(results))
    yield "## Not understood"
    yield "\n".join(_not_understood(results)) or "No key of these files."
    yield "## Not carried over"
    yield "Keys that matter, or may, and that a job file has no words for, by reason."
    yield "\n".join(_not_carried(results))
    yield "## Refused"
    yield "No estimate where it would be a guess. The reason is told at its key and line."
    yield "\n".join(_refused(results))


def _table(results: Iterable[Tried]) -> Iterator[str]:
    fate_heads = (fate.value.replace("_", " ") for fate in FATES)
    outcomes = (name.replace("_", " ") for name in OUTCOMES)
    heads = ("folder", "files", "read as", "keys", *fate_heads, *outcomes)
    yield "| " + " | ".join(heads) + " |"
    yield "|---|" + "---|" * (len(heads) - 1)
    by_folder: dict[str, list[Tried]] = defaultdict(list)
    for one in results:
        by_folder[one.folder].append(one)
    for folder, group in [*sorted(by_folder.items()), ("**all**", list(results))]:
        fates = Counter(key.fate for one in group for key in one.keys)
        outcomes = Counter(one.outcome for one in group)
        formats = Counter(one.format or "not recognised" for one in group)
        names = ", ".join(f"{name} {count}" for name, count in formats.most_common())
        cells = [
            folder,
            len(group),
            "" if folder == "**all**" else names,
            sum(fates.values()),
            *(fates[fate] for fate in FATES),
            *(outcomes[name] for name in OUTCOMES),
        ]
        yield "| " + " | ".join(str(cell) for cell in cells) + " |"


def _not_understood(results: Iterable[Tried]) -> Iterator[str]:
    found: dict[tuple[str, str], list[ForeignKey]] = defaultdict(list)
    for one in results:
        for key in one.keys:
            if key.fate is Fate.NOT_UNDERSTOOD:
                found[one.format or "", key.path].append(key)
    if not found:
        return
    yield "| format | key | files | a value | why |"
    yield "|---|---|---|---|---|"
    for (name, path), keys in sorted(found.items(), key=lambda pair: (-len(pair[1]), pair[0])):
        value = _cell(str(keys[0].value))
        yield f"| {name} | `{path}` | {len(keys)} | `{value}` | {_cell(str(keys[0].why))} |"


def _not_carried(results: Iterable[Tried]) -> Iterator[str]:
    found: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for one in results:
        for key in one.keys:
            if key.fate is Fate.NOT_CARRIED:
                found[one.format or "", str(key.why)][key.path] += 1
    yield "| format | why | times | keys |"
    yield "|---|---|---|---|"
    for (name, why), keys in sorted(found.items(), key=lambda pair: (pair[0][0], -pair[1].total())):
        shown = ", ".join(f"`{path}`" for path, _ in keys.most_common(6))
        rest = f" and {len(keys) - 6} more" if len(keys) > 6 else ""
        yield f"| {name} | {_cell(why)} | {keys.total()} | {shown}{rest} |"


def _refused(results: Iterable[Tried]) -> Iterator[str]:
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    models: dict[str, set[str]] = defaultdict(set)
    for one in results:
        reason = one.reasons[0] if one.reasons else None
        if one.outcome == UNKNOWN_MODEL and reason is not None:
            models[one.folder].add(str(reason.value))
        elif one.outcome == "refused":
            place = f"`{reason.path}`: " if reason and reason.path and reason.line else ""
            told = str(reason.message).replace(str(one.path), "the file") if reason else "?"
            text = place + _cell(told)
            found[one.folder, text].append(one.path.name)
    yield "| folder | files | why (the first reason) |"
    yield "|---|---|---|"
    for (folder, why), names in sorted(found.items(), key=lambda pair: (pair[0][0], -len(pair[1]))):
        yield f"| {folder} | {len(names)} | {why} |"
    yield ""
    yield "Unknown models:"
    for folder, names in sorted(models.items()):
        yield f"{folder}: " + ", ".join(f"`{name}`" for name in sorted(names)) + "."


def _cell(text: str, longest: int = 160) -> str:
    text = " ".join(text.split()).replace("|", "\\|").replace("`", "'")
    return text if len(text) <= longest else text[: longest - 1] + "…"


def main(arguments: list[str]) -> int:
    """Try every file, print what is refused, write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--gpu", default="NVIDIA H100 SXM")
    parser.add_argument("--with-model", default="Qwen/Qwen2.5-7B-Instruct")
    parser.add_argument("--only", help="only folders whose name contains this")
    options = parser.parse_args(arguments)
    day = datetime.now(tz=UTC).date()
    sources = Sources(today=day)
    results = []
    for path in sorted(options.folder.rglob("*")):
        folder = path.relative_to(options.folder).parts[0]
        if path.suffix not in ENDINGS or not path.is_file() or (options.only or "") not in folder:
            continue
        result = tried(path, folder, options.gpu, options.with_model, sources)
        results.append(result)
        unknown = [key.path for key in result.keys if key.fate is Fate.NOT_UNDERSTOOD]
        why = "; ".join(
            f"{one.path or ''}:{one.line or ''} {one.message}" for one in result.reasons[:3]
        )
        print(f"{folder}/{path.name}: {result.format} {result.outcome} {why} {unknown or ''}")
    text = "\n\n".join(page(results, gpu=options.gpu, model=options.with_model, day=day)) + "\n"
    if options.page is not None:
        options.page.write_text(text, encoding="utf-8")
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
