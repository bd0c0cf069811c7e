r"""Check the configurations that measured runs name, and write how far off the answers are.

    python tools/check_against_runs.py RUNS.csv --configs FOLDER [--configs FOLDER ...] \
        [--complete COMPLETE.csv] [--page PAGE.md]

Neither runs (columns of ``docs/reference/runs.md``) nor configurations are part of the repository.
A run is that of a configuration where its notes or its source name one; in the folders its file is
``owner__name__path__of__the__file``. Chip, number of cards, versions and lengths of the samples
are those of the run; everything else is what the file says, and what the file leaves blank is the
framework's default.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from tuneplan.errors import InputError  # noqa: E402 - the source tree comes first
from tuneplan.formats.foreign import Fate  # noqa: E402
from tuneplan.planner.changing import with_settings  # noqa: E402
from tuneplan.planner.importing import Configuration, read_configuration  # noqa: E402
from tuneplan.planner.predicting import Predictor  # noqa: E402
from tuneplan.planner.sources import Sources  # noqa: E402
from tuneplan.runs.comparison import Comparison, Prediction, compare, judge  # noqa: E402
from tuneplan.runs.reading import read_complete, read_records  # noqa: E402
from tuneplan.runs.rows import MeasuredRun, measured_run  # noqa: E402
from tuneplan.runs.skips import Skip  # noqa: E402
from tuneplan.runs.software import software_of  # noqa: E402
from tuneplan.runs.to_job import to_job  # noqa: E402
from tuneplan.spec.stated import StatedJob  # noqa: E402

MADE = "<!-- Made by tools/check_against_runs.py. -->"
HEAD = """# Checks against measured runs

`tuneplan check` on the configuration files that published runs name, against what was measured.
Made on {day} by

    python tools/check_against_runs.py RUNS.csv --configs FOLDER --complete COMPLETE.csv \\
        --page docs/internals/check_accuracy.md

Neither runs nor configurations are part of this repository.
Chip, number of cards, versions and lengths of samples are those of the run.
All else is what the file says; what it leaves blank is the framework's default at that version.
Beside it stands the same run predicted from the columns of its row (`validate`):
where the two agree, reading the file has added no error of its own.
"""
_NAMED = (
    # what the notes call it, and where it lies in the repository
    (re.compile(r"\bconfig=([\w./-]+\.ya?ml)"), "{}"),
    (re.compile(r"\bcfg=([\w./-]+\.ya?ml)"), "config_hub/finetune/{}"),
    (re.compile(r"\bconfig ([\w.]+/[\w.]+)\b"), "recipes/configs/{}.yaml"),
)


_OF_DATA = ("dataset", "data", "test_datasets", "eval_dataset", "tokenizer")
_FAR = 0.10
_STATE = (
    *("frozen_weights", "quantized_weights", "quantization_constants", "trained_weights"),
    *("adapters", "gradients", "optimizer_states", "master_weights"),
)


@dataclass(slots=True)
class Row:
    """A run, its configuration, and what came of the two."""

    run: MeasuredRun
    path: Path
    checked: Prediction | None = None
    problem: str = ""
    compared: tuple[Comparison, ...] = ()
    validated: tuple[Comparison, ...] = ()
    counts: bool = True
    lengths_known: bool = True
    missing: str = ""
    lost: tuple[str, ...] = ()
    cards: int | None = None


def named_by(notes: str, source_path: str) -> str | None:
    """Path in its repository of the configuration of a run; None where it names none."""
    if source_path.endswith((".sh", ".yaml", ".yml")):
        return source_path
    for pattern, place in _NAMED:
        match = pattern.search(notes)
        if match is not None:
            return place.format(match[1])
    return None


def found(path: str, repository: str, folders: Sequence[Path]) -> Path | None:
    """The file in one of the folders, whatever the case of its letters."""
    wanted = f"{repository}/{path}".replace("/", "__").lower()
    for folder in folders:
        for file in folder.rglob("*"):
            if file.name.lower() == wanted:
                return file
    return None


def job_of(read: Configuration, run: MeasuredRun, row: StatedJob | None) -> StatedJob:
    """The job of the file, on the run's chip, with its versions and lengths."""
    job = read.job
    software = software_of(run)
    recipe = replace(
        job.recipe,
        framework_version=software.version or job.recipe.framework_version,
        software=software.libraries or job.recipe.software,
        date=software.date or job.recipe.date,
    )
    job = replace(job, recipe=recipe)
    if row is not None:
        job = replace(job, hardware=row.hardware, data=row.data)
    stated, longest = job.recipe.training.max_length, run.max_length
    if longest is not None and (stated is None or longest < stated):
        job = with_settings(job, {"training.max_length": longest})
    return job


def cards_of_file(read: Configuration) -> int | None:
    """How many cards the file itself says; None where it leaves that to the launcher."""
    hardware = read.job.hardware
    if len(hardware.accelerators_per_node) != 1:
        return None
    return hardware.accelerators_per_node[0] * (hardware.num_nodes or 1)


def checked(row: Row, predict: Predictor, *, memory: bool, throughput: bool) -> None:
    """Predict the run twice: from its file, and from its columns."""
    stated = to_job(row.run)
    from_columns = None if isinstance(stated, Skip) else stated
    try:
        read = read_configuration(row.path)
        lost = (
            read.imported.with_fate(Fate.NOT_CARRIED, Fate.NOT_UNDERSTOOD) if read.imported else ()
        )
        row.lost = tuple(key.path for key in lost if not str(key.path).startswith(_OF_DATA))
        row.cards = cards_of_file(read)
        row.checked = predict(job_of(read, row.run, from_columns))
    except InputError as error:
        mistake = error.mistakes[0]
        row.problem = str(mistake.message).replace(str(row.path), "the file")
        return
    row.counts = memory or throughput
    row.lengths_known = bool(row.run.max_length or row.run.tokens_per_sample)
    row.compared = compare(row.run, row.checked, memory=True, throughput=throughput)
    if from_columns is None:
        return
    try:
        row.validated = compare(row.run, predict(from_columns), memory=True, throughput=throughput)
    except InputError:
        return


def page(rows: Sequence[Row], *, day: str, unnamed: Counter[str]) -> Iterator[str]:
    """The page, paragraph by paragraph."""
    yield MADE
    yield HEAD.format(day=day).rstrip()
    yield "## In short"
    yield "\n".join(_summary(rows))
    yield "\n".join(_verdicts(rows))
    yield (
        "Where lengths are not known every row is taken as full, up to what the file allows; where "
        "the file cuts nothing either, rows of 2,048 tokens are assumed; whoever runs the file has "
        "the data and says `--data`."
    )
    yield "## Run by run"
    yield (
        "Errors are likely over measured, minus 1. `validate` is the prediction from the row's "
        "columns. A run marked * is incomplete: something that decides the figure is not known, so "
        "it does not count in the table above."
    )
    yield "\n".join(_table([row for row in rows if row.lengths_known]))
    unknown = [row for row in rows if not row.lengths_known]
    if unknown:
        yield "## Lengths not known"
        yield "\n".join(_table(unknown))
    far = list(_far(rows))
    if far:
        yield "## Off by more than a tenth"
        yield "\n".join(far)
    problems = [row for row in rows if row.problem]
    if problems:
        yield "## Not predicted"
        yield "\n".join(_problems(problems))
    yield "## Runs whose file is not at hand"
    yield ", ".join(f"{name}: {count}" for name, count in sorted(unnamed.items())) or "None."


def _summary(rows: Iterable[Row]) -> Iterator[str]:
    groups: dict[tuple[str, str], list[tuple[Comparison, Comparison | None]]] = defaultdict(list)
    for row in rows:
        other = {one.quantity: one for one in row.validated}
        for one in row.compared:
            if row.counts:
                groups[row.run.source, one.quantity.value].append((one, other.get(one.quantity)))
    yield "| runs of | figure | runs | median error | P90 | bias | inside the range | validate: median error |"  # noqa: E501
    yield "|---|---|---|---|---|---|---|---|"
    for (source, quantity), pairs in sorted(groups.items()):
        errors = sorted(abs(one.error_fraction) for one, _ in pairs)
        others = [abs(other.error_fraction) for _, other in pairs if other is not None]
        cells = (
            source,
            quantity,
            len(pairs),
            f"{statistics.median(errors):.1%}",
            f"{errors[min(len(errors) - 1, round(0.9 * (len(errors) - 1)))]:.1%}",
            f"{statistics.median(one.error_fraction for one, _ in pairs):+.1%}",
            f"{sum(one.inside_interval for one, _ in pairs)} of {len(pairs)}",
            f"{statistics.median(others):.1%}" if others else "–",
        )
        yield "| " + " | ".join(str(cell) for cell in cells) + " |"


def _verdicts(rows: Iterable[Row]) -> Iterator[str]:
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.checked is not None and row.checked.verdict is not None:
            lengths = "" if row.lengths_known else ", lengths not known"
            groups[row.run.source + lengths].append(row)
    yield "| runs of | ran | out of memory | predicted to fit, did not | predicted not to fit, ran | predicted tight |"  # noqa: E501
    yield "|---|---|---|---|---|---|"
    for source, group in sorted(groups.items()):
        found = judge((row.run.measured.out_of_memory, row.checked.verdict) for row in group)  # type: ignore[union-attr]
        yield (
            f"| {source} | {found.num_ran} | {found.num_out_of_memory} | {found.missed_oom} | "
            f"{found.false_oom} | {found.tight} |"
        )


def _table(rows: Iterable[Row]) -> Iterator[str]:
    yield "| run | configuration | on | verdict | ran? | figure | measured | low – likely – high | error | validate |"  # noqa: E501
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for row in rows:
        if row.checked is None:
            continue
        chip = f"{row.run.accelerators} x {row.run.accelerator or 'any'}"
        ran = {True: "out of memory", False: "ran", None: "–"}[row.run.measured.out_of_memory]
        name = row.path.name.split("__", 2)[-1].replace("__", "/")
        start = f"| {row.run.id}{'' if row.counts else ' *'} | {name} | {chip} | {row.checked.verdict or '–'} | {ran} "  # noqa: E501
        other = {one.quantity: one for one in row.validated}
        if not row.compared:
            yield start + _unlike(row)
        for one in row.compared:
            scale, unit = (2**30, " GiB") if one.quantity.is_memory else (1.0, "/s")
            same = other.get(one.quantity)
            yield (
                f"{start}| {one.quantity.value} | {one.measured / scale:,.2f}{unit} | "
                f"{one.low / scale:,.2f} – {one.likely / scale:,.2f} – {one.high / scale:,.2f} | "
                f"{one.error_fraction:+.1%} | {'–' if same is None else f'{same.error_fraction:+.1%}'} |"  # noqa: E501
            )


def _far(rows: Iterable[Row]) -> Iterator[str]:
    """Runs far off, with what could be the reason: of the measurement, of the file, of the row."""
    found = []
    for row in (row for row in rows if row.lengths_known):
        pairs = [(one.quantity.value, one.error_fraction) for one in row.compared]
        size, device = (
            row.run.measured.peak_memory_bytes,
            row.checked and row.checked.peak_device_bytes,
        )
        if not pairs and size and device:
            pairs = [("(kind not stated; device)", device.likely / size - 1)]
        for name, error in pairs:
            if abs(error) > _FAR:
                found.append(f"| {row.run.id} | {name} | {error:+.0%} | {_reasons(row)} |")
    if found:
        yield "| run | figure | error | what is known of it |"
        yield "|---|---|---|---|"
        yield from found


def _reasons(row: Row) -> str:
    reasons = []
    size = row.run.measured.peak_memory_bytes
    terms = row.checked.memory_terms if row.checked else ()
    state = sum(term.value for term in terms if term.kind in _STATE)
    if size and size < state:
        reasons.append(
            f"weights, gradients and states of the file as it is read take {state / 2**30:.1f} "
            "GiB, more than was measured: something of it is not carried over, or something else "
            "ran"
        )
    if row.cards is not None and row.cards != row.run.accelerators:
        reasons.append(f"the file says {row.cards} card(s), the row {row.run.accelerators}")
    if row.lost:
        reasons.append("not carried over: " + ", ".join(f"`{name}`" for name in row.lost))
    if row.missing:
        reasons.append(f"the row is incomplete: {row.missing}")
    return "; ".join(reasons) or "not explained"


def _unlike(row: Row) -> str:
    """A measured size of which nobody says what it counts, beside what nvidia-smi would show."""
    size, device = row.run.measured.peak_memory_bytes, row.checked and row.checked.peak_device_bytes
    if size is None or not device:
        return "| – | – | – | – | – |"
    ends = " – ".join(f"{one / 2**30:,.2f}" for one in (device.low, device.likely, device.high))
    return (
        f"| (kind not stated; device) | {size / 2**30:,.2f} GiB | {ends} | "
        f"({device.likely / size - 1:+.1%}) | – |"
    )


def _problems(rows: Iterable[Row]) -> Iterator[str]:
    groups: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        groups[" ".join(row.problem.split()).replace("|", "\\|")].append(row.run.id)
    yield "| runs | why |"
    yield "|---|---|"
    for why, ids in sorted(groups.items(), key=lambda pair: -len(pair[1])):
        shown = ", ".join(ids[:6]) + (f" and {len(ids) - 6} more" if len(ids) > 6 else "")
        yield f"| {shown} | {why} |"


def main(arguments: list[str]) -> int:
    """Compare every run whose configuration is at hand."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("runs", type=Path)
    parser.add_argument("--configs", type=Path, action="append", required=True)
    parser.add_argument("--complete", type=Path)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--only", default="", help="only sources whose name starts so")
    options = parser.parse_args(arguments)
    complete = read_complete(options.complete) if options.complete else {}
    predict = Predictor(Sources(today=datetime.now(tz=UTC).date()))
    rows: list[Row] = []
    unnamed: Counter[str] = Counter()
    for record in read_records(options.runs):
        known = complete.get(record.cells.get("id", ""))
        run = measured_run(record, source=known.source if known else "")
        if not run.source.startswith(options.only):
            continue
        name = named_by(record.cells.get("notes", ""), record.cells.get("source_path", ""))
        if name is None:
            continue
        path = found(name, run.repository, options.configs)
        if path is None:
            unnamed[run.source] += 1
            continue
        row = Row(run=run, path=path, missing=known.missing if known else "")
        checked(
            row,
            predict,
            memory=known.memory if known else True,
            throughput=known.throughput if known else True,
        )
        rows.append(row)
        print(
            run.id, path.name, row.problem or [f"{one.error_fraction:+.1%}" for one in row.compared]
        )
    text = "\n\n".join(page(rows, day=datetime.now(tz=UTC).date().isoformat(), unnamed=unnamed))
    if options.page is not None:
        options.page.write_text(text + "\n", encoding="utf-8")
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
