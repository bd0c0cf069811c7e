"""Which logs there are in a folder, and of which format each is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tuneplan.errors import InvalidRequest, Mistake, UnreadableFile
from tuneplan.language import message
from tuneplan.logs.memory_snapshot import is_memory_snapshot, read_memory_snapshot
from tuneplan.logs.refusing import io_reason, unreadable
from tuneplan.logs.tables import read_table
from tuneplan.logs.tensorboard_events import is_event_file, read_event_file
from tuneplan.logs.text import read_text_log
from tuneplan.logs.trainer_state import is_trainer_state, read_trainer_state
from tuneplan.spec.run_log import RunLog

_HEAD_BYTES: Final = 65_536
_TEXT_ENDINGS: Final = frozenset({".log", ".txt", ".out", ".err", ".jsonl", ""})
_DEEPEST: Final = 6
_MOST_FILES: Final = 10_000


def read_log(path: Path) -> RunLog:
    """One log, whatever its format.

    Raises:
        UnreadableFile: It is absent, broken, or of no format that we know.
        MissingExtra: It is a TensorBoard file and TensorBoard is not installed.
    """
    head = _head(path)
    if is_event_file(path):
        return read_event_file(path)
    if is_memory_snapshot(path, head):
        return read_memory_snapshot(path)
    if is_trainer_state(path, head):
        return read_trainer_state(path)
    log = read_table(path) if path.suffix == ".csv" else None
    log = log or read_text_log(path)
    if log is None:
        raise UnreadableFile(
            message(
                "log_of_no_known_format",
                "{path} is no log that is known here: trainer_state.json, TensorBoard events, CSV "
                "(Weights & Biases, nvidia-smi), a memory snapshot of PyTorch, or the text log of "
                "transformers, LLaMA-Factory, Axolotl, torchtune, Megatron or DeepSpeed",
                path=str(path),
            ),
            path=str(path),
        )
    return log


def find_logs(sources: Sequence[str | Path]) -> tuple[Path, ...]:
    """The files named, and in folders every file that looks like a log, in order of their names.

    Of the states that a Trainer leaves beside each checkpoint only the newest is taken.

    Raises:
        InvalidRequest: A source does not exist, or a folder holds no log: all of them at once.
    """
    found: list[Path] = []
    mistakes = []
    for source in sources:
        path = Path(source)
        here = [path] if path.is_file() else list(_in_folder(path)) if path.is_dir() else []
        if not here:
            absent = not path.exists()
            mistakes.append(
                Mistake(
                    message=message("no_such_log", "{path} does not exist", path=str(source))
                    if absent
                    else message("no_log_in_folder", "{path} holds no log", path=str(source)),
                    path=str(source),
                )
            )
        found.extend(one for one in here if one not in found)
    if mistakes:
        raise InvalidRequest(mistakes)
    return tuple(found)


def _in_folder(folder: Path) -> Iterator[Path]:
    states, others = [], []
    for number, path in enumerate(sorted(_files(folder, _DEEPEST))):
        if number == _MOST_FILES:
            break
        if path.name == "trainer_state.json":
            states.append(path)
        elif _looks_like_log(path):
            others.append(path)
    if states:
        yield max(states, key=lambda path: (path.stat().st_size, path.stat().st_mtime))
    yield from others


def _files(folder: Path, depth: int) -> Iterator[Path]:
    try:
        entries = list(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir() and not entry.is_symlink():
            if depth:
                yield from _files(entry, depth - 1)
        elif entry.is_file():
            yield entry


def _looks_like_log(path: Path) -> bool:
    """By name alone where that is enough, else by what the file holds."""
    if is_event_file(path):
        return True
    try:
        head = _head(path)
    except UnreadableFile:
        return False
    if is_memory_snapshot(path, head):
        return b"segments" in head or b"device_traces" in head
    if path.suffix == ".csv":
        return read_table(path) is not None
    if path.suffix.casefold() in _TEXT_ENDINGS and b"\0" not in head:
        return read_text_log(path) is not None
    return False


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_HEAD_BYTES)
    except OSError as error:
        raise unreadable(path, io_reason(error)) from None
