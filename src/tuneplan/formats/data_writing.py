"""What a job's files of samples are called in a framework's configuration."""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

from tuneplan.frozen import dataclass
from tuneplan.spec.stated import StatedJob

PLACEHOLDER: Final = "train.jsonl"
_LOADERS: Final = {".csv": "csv", ".parquet": "parquet", ".txt": "text", ".arrow": "arrow"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """How the rows of the data look, where it was looked at.

    Attributes:
        shape: ``messages``, ``sharegpt``, ``alpaca``, ``prompt_completion``, ``text``,
            ``preference``; None = not known, taken as ``messages``.
        column: The key that holds the turns or the text.
        pair: The keys of prompt and answer in ``prompt_completion`` rows.
    """

    shape: str | None = None
    column: str | None = None
    pair: tuple[str, str] | None = None


UNKNOWN: Final = Rows()


def files_of(job: StatedJob) -> tuple[str, ...]:
    """The files as the configuration names them; a placeholder where the job has none."""
    return job.data.path or (PLACEHOLDER,)


def loader_of(name: str) -> str:
    """The loader of the ``datasets`` library for a file, by its ending."""
    suffix = PurePath(name.removesuffix(".gz")).suffix.lower()
    return _LOADERS.get(suffix, "json")
