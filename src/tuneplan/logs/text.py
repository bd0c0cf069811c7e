"""Text logs: console output and the files of line loggers, streamed line by line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from tuneplan.language import message
from tuneplan.logs.lines import LINE_READERS, LONGEST_LINE, LineScanner
from tuneplan.logs.refusing import io_reason, unreadable
from tuneplan.spec.answer import Notice
from tuneplan.spec.run_log import LogPoint, RunLog

_TRIED_LINES: Final = 50_000  # a log that says nothing for so long is none that we know


def read_text_log(path: Path) -> RunLog | None:
    """A text log of a framework; None where no line has a form that we know."""
    try:
        with path.open("r", encoding="utf-8-sig", errors="replace", newline="\n") as file:
            return _read(file, path)
    except OSError as error:
        raise unreadable(path, io_reason(error)) from None


def _read(file: IO[str], path: Path) -> RunLog | None:
    """The points of the format that most lines have.

    Lines of two formats can stand in one console log (DeepSpeed prints beside the Trainer); the
    format that tells most often wins, the others are counted in a notice.
    """
    points: dict[str, list[LogPoint]] = {name: [] for name in LINE_READERS}
    others: Counter[str] = Counter()
    scanner = LineScanner()
    for number, line in enumerate(_lines(file), start=1):
        if (read := scanner.read(line)) is not None:
            points[read[0]].append(read[1])
        if number == _TRIED_LINES and not any(points.values()):
            return None
    best = max(points, key=lambda name: len(points[name]))
    if not points[best]:
        return None
    others.update({name: len(found) for name, found in points.items() if found and name != best})
    return RunLog(
        format=best,
        path=str(path),
        points=_counted(points[best]),
        absolute_time=best in {"megatron", "deepspeed"},
        clock_step_s=1.0,
        notices=tuple(_beside(others, path)),
    )


def _lines(file: IO[str]) -> Iterator[str]:
    """Lines that may be records; the rest of one that is too long is passed over."""
    while line := file.readline(LONGEST_LINE):
        if len(line) == LONGEST_LINE and not line.endswith("\n"):
            while (rest := file.readline(LONGEST_LINE)) and not rest.endswith("\n"):
                pass
            yield ""
            continue
        yield line


def _counted(points: list[LogPoint]) -> tuple[LogPoint, ...]:
    """Points in the order of the file; a run that began again keeps the later account."""
    kept: list[LogPoint] = []
    for point in points:
        if kept and point.step is not None and (kept[-1].step or 0) > point.step:
            while kept and (kept[-1].step or 0) >= point.step:
                kept.pop()
        kept.append(point)
    return tuple(kept)


def _beside(others: Counter[str], path: Path) -> Iterator[Notice]:
    for name, count in sorted(others.items()):
        yield Notice(
            message=message(
                "log_lines_of_another_format",
                "{count} lines look like those of {format}; they were left out",
                count=count,
                format=name,
            ),
            path=str(path),
        )
