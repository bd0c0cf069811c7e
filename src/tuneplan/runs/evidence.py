"""A folder of measured runs: one TOML file a source, as ``evidence/README.md`` describes.

``[source]`` says who published where, ``[shared]`` holds cells that all runs have, ``[measured]``
the list ``runs`` of one inline table a run; keys are the columns of ``docs/reference/runs.md``.
``counts`` of a run names what its errors count for; a run without it serves verdicts alone.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from tuneplan.errors import InvalidRequest, Mistake, UnreadableFile
from tuneplan.frozen import dataclass
from tuneplan.language import Message, message
from tuneplan.runs.reading import Completeness, Record
from tuneplan.runs.rows import KNOWN_COLUMNS

_SOURCE_KEYS: Final = frozenset(
    ["name", "repository", "commit", "files", "memory", "stated", "partly_stated", "defaults",
     "remarks", "url"]
)  # fmt: skip
_NEEDED_OF_SOURCE: Final = ("name", "repository", "commit", "files")
_MEMORY, _THROUGHPUT = "memory", "throughput"
_OWN_KEYS: Final = frozenset(["counts", "notes", "source_path"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The runs of a folder.

    Attributes:
        records: In the order of file names, then of the files.
        complete: By id: the source, and what the run's errors count for.
        published: By source: where, as ``owner/name@commit``.
    """

    records: tuple[Record, ...]
    complete: Mapping[str, Completeness]
    published: Mapping[str, str]


class _Mistakes:
    """All of a folder's mistakes, raised together."""

    def __init__(self) -> None:
        self.found: list[Mistake] = []

    def add(self, path: Path, text: Message, *, line: int | None = None, **more: Any) -> None:
        self.found.append(Mistake(message=text, path=str(path), line=line, **more))


def read_evidence(folder: str | Path) -> Evidence:
    """Every ``*.toml`` of a folder.

    Raises:
        UnreadableFile: No file of this name, or none in the folder.
        InvalidRequest: Every mistake in all of them.
    """
    files = sorted(Path(folder).glob("*.toml"))
    if not files:
        problem = message(
            "no_evidence", "{folder} holds no *.toml file of runs", folder=str(folder)
        )
        raise UnreadableFile(problem, path=str(folder))
    mistakes = _Mistakes()
    records: list[Record] = []
    complete: dict[str, Completeness] = {}
    published: dict[str, str] = {}
    for file in files:
        text = file.read_text(encoding="utf-8", errors="replace")
        try:
            plain = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            mistakes.add(
                file, message("toml_broken", "the file is no TOML: {detail}", detail=str(error))
            )
            continue
        source = _source(file, plain, mistakes)
        published[source] = f"{plain.get('source', {}).get('repository', '')}@{_commit(plain)[:8]}"
        for record, counted in _runs(file, text, plain, source, mistakes):
            run_id = record.cells["id"]
            if run_id in complete:
                mistakes.add(
                    file,
                    message("id_twice", "the id {id!r} stands twice", id=run_id),
                    line=record.line,
                    value=run_id,
                )
                continue
            complete[run_id] = counted
            records.append(record)
    if mistakes.found:
        raise InvalidRequest(mistakes.found)
    return Evidence(
        records=tuple(records),
        complete=MappingProxyType(complete),
        published=MappingProxyType(published),
    )


def _commit(plain: Mapping[str, Any]) -> str:
    commit = plain.get("source", {}).get("commit", "")
    return str(commit)


def _source(file: Path, plain: Mapping[str, Any], mistakes: _Mistakes) -> str:
    source = plain.get("source")
    if not isinstance(source, dict):
        mistakes.add(
            file,
            message(
                "evidence_without_source",
                "no table [source]: it has to say who published the runs, with {needed}",
                needed=", ".join(_NEEDED_OF_SOURCE),
            ),
        )
        return file.stem
    for key in _NEEDED_OF_SOURCE:
        if not source.get(key):
            mistakes.add(
                file,
                message("evidence_key_missing", "[source] does not state {key!r}", key=key),
            )
    for key in source.keys() - _SOURCE_KEYS:
        _unknown(file, key, tuple(sorted(_SOURCE_KEYS)), mistakes, line=None)
    return str(source.get("name") or file.stem)


def _runs(
    file: Path, text: str, plain: Mapping[str, Any], source: str, mistakes: _Mistakes
) -> Iterator[tuple[Record, Completeness]]:
    shared = plain.get("shared", {})
    origin = plain.get("source", {})
    measured = plain.get("measured", {})
    runs = measured.get("runs") if isinstance(measured, dict) else None
    if not isinstance(shared, dict) or not isinstance(runs, list) or not runs:
        mistakes.add(
            file,
            message(
                "evidence_without_runs",
                "the file needs a table [measured] with a list 'runs' of one table a run",
            ),
        )
        return
    where = {"source_repo": origin.get("repository", ""), "source_commit": origin.get("commit", "")}
    for place, run in enumerate(runs, start=1):
        if not isinstance(run, dict) or not run.get("id"):
            mistakes.add(
                file,
                message("evidence_run_without_id", "run {place} has no id", place=place),
            )
            continue
        line = _line_of(text, str(run["id"]))
        cells = {**where, **shared, **run}
        for key in (key for key in cells if key not in KNOWN_COLUMNS | _OWN_KEYS):
            _unknown(file, key, tuple(sorted(KNOWN_COLUMNS | _OWN_KEYS)), mistakes, line=line)
        counts = cells.pop("counts", [])
        if not isinstance(counts, list) or not set(map(str, counts)) <= {_MEMORY, _THROUGHPUT}:
            mistakes.add(
                file,
                message(
                    "evidence_counts",
                    "'counts' is a list of memory and throughput; got {value!r}",
                    value=counts,
                ),
                line=line,
            )
            counts = []
        yield (
            Record(line, MappingProxyType({key: _cell(value) for key, value in cells.items()})),
            Completeness(source=source, memory=_MEMORY in counts, throughput=_THROUGHPUT in counts),
        )


def _unknown(
    file: Path, key: str, known: tuple[str, ...], mistakes: _Mistakes, *, line: int | None
) -> None:
    mistakes.add(
        file,
        message("evidence_key_unknown", "no key is named {key!r}", key=key),
        line=line,
        value=key,
        near=tuple(get_close_matches(key, known, n=3)),
    )


def _line_of(text: str, run_id: str) -> int:
    """The line of a run: TOML readers do not say."""
    at = text.find(f'"{run_id}"')
    return text.count("\n", 0, at) + 1 if at >= 0 else 1


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value).strip()
