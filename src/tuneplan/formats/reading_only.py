"""Formats that are read and not written."""

from __future__ import annotations

from collections.abc import Callable

from tuneplan.errors import CannotExport, Mistake
from tuneplan.formats.foreign import ExportedFile
from tuneplan.language import message
from tuneplan.spec.stated import StatedJob


def read_only(name: str) -> Callable[[StatedJob], tuple[ExportedFile, ...]]:
    """The ``dump`` of a format that is not written: it raises ``CannotExport``, always."""

    def dump(job: StatedJob) -> tuple[ExportedFile, ...]:
        del job
        text = message(
            "format_not_written", "configurations of {name} are read, not written", name=name
        )
        raise CannotExport([Mistake(message=text, value=name)])

    return dump
