"""A data set to shards of tokens: resumable, and whole or not there at all.

Shards are made in ``FOLDER.partial``, one for each unit of the data; a small file says of each that
it is done. When all are, the manifest is written and the folder gets its name. A run that is killed
leaves only ``FOLDER.partial``; the same command goes on from there, and the result has the same
bytes as that of a run that was not disturbed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from tuneplan.errors import NotSupported, UnreadableFile
from tuneplan.frozen import dataclass
from tuneplan.language import message
from tuneplan.tokens.counting import RowCounter
from tuneplan.tokens.profiling import Progress, engine_for, refuse_unusable
from tuneplan.tokens.rows import BadRow
from tuneplan.tokens.shapes import Shape
from tuneplan.tokens.shard_files import (
    ShardFormat,
    remove_unfinished,
    sync_folder,
    write_json,
    write_rows,
)
from tuneplan.tokens.shard_manifest import manifest_of, plain_row, plan_of, row_of, told_row
from tuneplan.tokens.token_rows import RowSettings, encoded, token_rows
from tuneplan.tokens.tokenizers import Tokenizer
from tuneplan.tokens.totals import Totals
from tuneplan.tokens.work import Counted, DataSet, Unit
from tuneplan.tokens.workers import Engine
from tuneplan.units import MIB

MANIFEST: Final = "manifest.json"
SHARD_BYTES: Final = 32 * MIB
_PLAN: Final = "plan.json"
_DONE: Final = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSettings:
    """What shards shall be like.

    Attributes:
        shard_bytes: Data that goes into one shard, as stored; samples are packed within a shard.
    """

    rows: RowSettings
    format: ShardFormat = ShardFormat.ARROW
    shard_bytes: int = SHARD_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenShards:
    """Shards that are made.

    Attributes:
        manifest: What ``manifest.json`` in the folder says.
        num_resumed: Shards that an earlier run had made.
        bad_rows: The first rows that were left out.
    """

    folder: str
    manifest: Mapping[str, Any]
    num_resumed: int
    bad_rows: tuple[BadRow, ...]


class _ShardWriter:
    """Makes the shard of a unit; what every worker has."""

    def __init__(self, counter: RowCounter, folder: Path, settings: ShardSettings) -> None:
        self._counter = counter
        self._folder = folder
        self._settings = settings

    def __call__(self, task: tuple[int, Unit | None]) -> dict[str, Any]:
        """Make a shard and say what is in it; without a unit, say it of one that is there."""
        number, unit = task
        done = _done(self._folder, number)
        if unit is None:
            found: dict[str, Any] = json.loads(done.read_bytes())
            return found
        totals = Totals()
        made = encoded(self._counter, unit.items(), unit.content.path, unit.shape, totals)
        rows = token_rows(made, self._settings.rows)
        name = f"train-{number:05d}.{self._settings.format}"
        digest = None
        if rows.num_rows:
            digest = write_rows(self._folder / name, rows, self._settings.format)
        said = {
            "file": unit.file,
            "shape": unit.shape,
            "shift": getattr(unit.content, "shift", None),
            "size_bytes": unit.content.size_bytes,
            "name": name if digest else None,
            "bytes": (self._folder / name).stat().st_size if digest else 0,
            "sha256": digest,
            "rows": rows.num_rows,
            "sequences": rows.num_sequences,
            "tokens": len(rows.columns["input_ids"]),
            "labels": int((rows.columns["labels"] >= 0).sum()),
            "cut_sequences": rows.num_cut,
            "cut_tokens": rows.cut_tokens,
            "dropped_sequences": rows.num_dropped,
            "empty_sequences": rows.num_empty,
            "rows_ok": totals.rows_ok,
            "samples": totals.num_samples,
            "blank_lines": totals.blank_lines,
            "bad_by_code": dict(totals.bad_by_code),
            "bad_rows": [plain_row(row) for row in totals.bad_rows],
        }
        write_json(done, said)
        return said


def tokenise_files(
    paths: Sequence[str],
    folder: Path,
    *,
    tokenizer: Tokenizer,
    settings: ShardSettings,
    skip_bad_rows: bool = False,
    progress: Progress | None = None,
    engine: Engine | None = None,
) -> TokenShards:
    """Write the samples of data files as shards of tokens, or go on with that.

    Args:
        paths: Data files, as ``data_files`` gives them.
        folder: Where the shards go; it comes to be when all of them are written.
        tokenizer: From ``find_tokenizer``.
        settings: What the shards are like.
        skip_bad_rows: Leave bad rows out, counted and located, in place of an error.
        progress: Told now and then how many bytes of how many are done.
        engine: Where shards are made; None for this process, or all cores for large files. They
            have the same bytes.

    Raises:
        InvalidRequest: Bad rows that are not to be skipped, or no sample at all.
        UnreadableFile: The folder holds something else, or shards of other settings.
        NotSupported: Preference pairs, which trainers tokenise themselves; an approximate count.
    """
    data = DataSet(paths=tuple(paths), part_bytes=settings.shard_bytes)
    counter = RowCounter(tokenizer)
    plan = plan_of(data, tokenizer, settings)
    if folder.exists():
        return _made_before(folder, plan)
    partial = folder.with_name(folder.name + ".partial")
    with _only_one(partial):
        _begin(partial, plan)
        resumed = _num_done(partial)
        try:
            if not (partial / MANIFEST).exists():
                make = _ShardWriter(counter, partial, settings)
                chosen = engine or engine_for(data.size_bytes)
                with closing(chosen.run(make, _tasks(data, partial))) as results:
                    shards, totals = _gathered(data, results, progress)
                facts = [tally.facts() for tally in data.tallies]
                refuse_unusable(facts, totals, skip_bad_rows=skip_bad_rows)
                write_json(partial / MANIFEST, manifest_of(plan, facts, shards, totals))
        except BaseException:
            if not _num_done(partial):  # there is nothing to go on from
                shutil.rmtree(partial)
            raise
        _finish(partial, folder, settings)
    manifest = json.loads((folder / MANIFEST).read_bytes())
    return TokenShards(
        folder=str(folder),
        manifest=manifest,
        num_resumed=resumed,
        bad_rows=tuple(map(told_row, manifest["bad_rows"])),
    )


def _tasks(data: DataSet, partial: Path) -> Iterator[tuple[int, Unit | None]]:
    for number, unit in enumerate(data.units()):
        if unit.shape is Shape.PREFERENCE:
            raise NotSupported(
                message(
                    "pairs_not_tokenised",
                    "{path} holds preference pairs: trainers tokenise prompt, chosen and rejected "
                    "themselves, each in a way of its own",
                    path=unit.content.path,
                )
            )
        yield number, None if _done(partial, number).exists() else unit


def _num_done(folder: Path) -> int:
    return sum(1 for _ in (folder / _DONE).glob("[0-9]*.json"))


def _done(folder: Path, number: int) -> Path:
    return folder / _DONE / f"{number:05d}.json"


def _gathered(
    data: DataSet, results: Iterable[dict[str, Any]], progress: Progress | None
) -> tuple[list[dict[str, Any]], Totals]:
    """What the shards hold, and the totals of the set; the tallies of its files are filled in."""
    shards, totals, done = [], Totals(), 0
    for said in results:
        own = Totals(
            rows_ok=said["rows_ok"], num_samples=said["samples"], blank_lines=said["blank_lines"]
        )
        own.bad_by_code.update(said["bad_by_code"])
        own.bad_rows = [row_of(row) for row in said["bad_rows"]]
        tally = data.tallies[said["file"]]
        size = said["size_bytes"]
        tally.enter(
            Counted(
                file=said["file"], totals=own, row_bytes=size, size_bytes=size, shift=said["shift"]
            )
        )
        totals.merge(own)
        shards.append(said)
        done += size
        if progress is not None:
            progress(done, data.size_bytes)
    return shards, totals


# --- Beginning and end ---------------------------------------------------------------------------


def _begin(partial: Path, plan: Mapping[str, Any]) -> None:
    """Make the folder, or see that what is in it is of the same plan."""
    remove_unfinished(partial)
    (partial / _DONE).mkdir(exist_ok=True)
    path = partial / _PLAN
    if not path.exists() and not (partial / MANIFEST).exists():
        write_json(path, plan)
    before = json.loads((path if path.exists() else partial / MANIFEST).read_bytes())
    _refuse_other(before, plan, partial)


def _made_before(folder: Path, plan: Mapping[str, Any]) -> TokenShards:
    if not (folder / MANIFEST).is_file():
        raise UnreadableFile(
            message(
                "folder_is_taken",
                "{path} exists and holds no shards of tokens; name another folder",
                path=str(folder),
            ),
            path=str(folder),
        )
    manifest = json.loads((folder / MANIFEST).read_bytes())
    _refuse_other(manifest, plan, folder)
    return TokenShards(
        folder=str(folder),
        manifest=manifest,
        num_resumed=len(manifest["shards"]),
        bad_rows=tuple(map(told_row, manifest["bad_rows"])),
    )


def _refuse_other(before: Mapping[str, Any], plan: Mapping[str, Any], folder: Path) -> None:
    """Refuse shards of another tokenizer, other settings or other data."""
    differs = [
        name for name in ("tokenizer", "settings", "made_with") if before[name] != plan[name]
    ]
    known = set.intersection(*(set(one) for one in (*before["data"], *plan["data"])))
    files, now = ([{k: one[k] for k in known} for one in each["data"]] for each in (before, plan))
    if differs or files != now:
        raise UnreadableFile(
            message(
                "other_shards",
                "{path} holds shards that were made with other {what}; delete it, or name "
                "another folder",
                path=str(folder),
                what=", ".join(differs or ["data"]),
            ),
            path=str(folder),
        )


def _finish(partial: Path, folder: Path, settings: ShardSettings) -> None:
    """Give the folder its name; from here on it is whole."""
    if settings.format is ShardFormat.ARROW:
        _describe(partial)
    shutil.rmtree(partial / _DONE)
    (partial / _PLAN).unlink(missing_ok=True)
    remove_unfinished(partial)
    sync_folder(partial)
    partial.rename(folder)
    sync_folder(folder.parent)


def _describe(partial: Path) -> None:
    """What ``datasets.load_from_disk`` reads first.

    Source: datasets 4 ``arrow_dataset.py`` ``save_to_disk``, ``load_from_disk``.
    """
    manifest = json.loads((partial / MANIFEST).read_bytes())
    fingerprint = sha256(json.dumps(manifest["shards"]).encode()).hexdigest()[:16]
    write_json(partial / "dataset_info.json", {"citation": "", "description": ""})
    write_json(
        partial / "state.json",
        {
            "_data_files": [{"filename": shard["name"]} for shard in manifest["shards"]],
            "_fingerprint": fingerprint,
            "_format_columns": None,
            "_format_kwargs": {},
            "_format_type": None,
            "_output_all_columns": False,
            "_split": "train",
        },
    )


@contextmanager
def _only_one(partial: Path) -> Iterator[None]:
    """One run at a time in a folder; the system lets go of it when a process is killed."""
    import fcntl

    partial.mkdir(parents=True, exist_ok=True)
    lock = partial.with_name(partial.name + ".lock")
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UnreadableFile(
                message("other_run", "another run is making {path}", path=str(partial)),
                path=str(partial),
            ) from None
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)
