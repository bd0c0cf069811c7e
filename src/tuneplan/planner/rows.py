"""How the rows of a job's data look: a glance at the first one."""

from __future__ import annotations

from pathlib import Path

from tuneplan.errors import InvalidRequest, Mistake
from tuneplan.formats.data_writing import UNKNOWN, Rows
from tuneplan.planner.dataset import place_of
from tuneplan.spec.stated import StatedJob


def rows_of(job: StatedJob) -> Rows:
    """The layout of the first row that reads; unknown for folders and other kinds of file.

    Raises:
        InvalidRequest: A file that the job names is not there or does not read.
    """
    from tuneplan.tokens.files import unreadable

    base = Path(job.base_path)
    names = [place_of(base, name) for name in job.data.path]
    files = [name for name in names if not Path(name).is_dir()]
    problems: list[Mistake] = [found for found in map(unreadable, files) if found is not None]
    if problems:
        raise InvalidRequest(problems)
    return next(map(_layout, files), UNKNOWN)


def _layout(path: str) -> Rows:
    from tuneplan.tokens.reading import read_rows
    from tuneplan.tokens.rows import Row
    from tuneplan.tokens.shapes import Shape, columns_of, shape_of

    first = next((item for item in read_rows(path) if isinstance(item, Row)), None)
    shape = shape_of(first.value) if first is not None else None
    if first is None or shape is None:
        return UNKNOWN
    column = None
    if shape in (Shape.MESSAGES, Shape.SHAREGPT):
        names = ("messages", "conversations", "conversation")
        column = next((name for name in names if name in first.value), None)
    elif shape is Shape.TEXT:
        column = "text" if "text" in first.value else "content"
    pair = columns_of(first.value) if shape is Shape.PROMPT_COMPLETION else None
    return Rows(shape=shape.value, column=column, pair=pair)
