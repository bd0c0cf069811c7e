"""What reading somebody else's configuration gives, and the surface that every format has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any, Protocol

from tuneplan.errors import Mistake
from tuneplan.frozen import dataclass
from tuneplan.language import Message
from tuneplan.spec.answer import Notice
from tuneplan.spec.stated import StatedJob


class Fate(StrEnum):
    """What became of a key."""

    CARRIED = "carried"  # said in the job
    IRRELEVANT = "irrelevant"  # known to change neither memory nor time nor cost
    NOT_CARRIED = "not_carried"  # known to matter (or able to), and no key of a job says it
    NOT_UNDERSTOOD = "not_understood"  # this format's module does not know the key


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignDocument:
    """A configuration as written.

    Attributes:
        tree: Sections and values; every key is a string.
        lines: Key path to line, counted from 1, where it is known.
        file: Its name, for people.
        form: ``yaml``, ``json``, ``toml`` or ``shell`` (the arguments of a launch line: long
            option names without their dashes are the keys, ``shell.*`` what the launcher says).
        mistakes: What is wrong with its form (a key that stands twice).
        unknown: Key path to the text of a value that is only known when the job starts
            (``$MODEL``, ``${oc.env:HOME}``); the value in the tree is None.
        notices: What reading it has to tell (an option that stands twice).
        elsewhere: Key path to the file that it stands in, where a launch line and the
            configuration that it names are one document.
    """

    tree: Mapping[str, Any]
    lines: Mapping[str, int] = field(default_factory=dict)
    file: str
    form: str
    mistakes: tuple[Mistake, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)
    notices: tuple[Notice, ...] = ()
    elsewhere: Mapping[str, str] = field(default_factory=dict)

    def line_of(self, path: str) -> int | None:
        """The line of a key path, or of the nearest section around it."""
        while path:
            if path in self.lines:
                return self.lines[path]
            path = path.rpartition(".")[0]
        return None

    def file_of(self, path: str) -> str:
        """The file that a key path stands in."""
        while path:
            if path in self.elsewhere:
                return self.elsewhere[path]
            path = path.rpartition(".")[0]
        return self.file


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignKey:
    """One key of a configuration and what became of it.

    Attributes:
        path: As written, sections joined by dots.
        why: The reason, unless it was carried.
        job_keys: Where it stands in the job, if it was carried.
    """

    path: str
    value: Any
    file: str
    line: int | None
    fate: Fate
    why: Message | None = None
    job_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A configuration in the words of a job file.

    Attributes:
        format: Name of the format, e.g. ``llamafactory``, ``deepspeed``.
        format_version: As stated by the user or the file; None = the newest known is assumed.
        files: The file, then those that it points to and that were read too.
        job: The job as a tree of job-file keys; not yet validated.
        keys: Every key of every file, in the order of the files.
        notices: What a reader should know (a file that is pointed to and does not exist).
        refusals: What the configuration asks for and no estimate can be made of (a teacher model
            beside the student), each by name and with its key; reading it is possible all the same.
    """

    format: str
    format_version: str | None
    files: tuple[str, ...]
    job: Mapping[str, Any]
    keys: tuple[ForeignKey, ...]
    notices: tuple[Notice, ...] = ()
    refusals: tuple[Mistake, ...] = ()

    @property
    def places(self) -> dict[str, tuple[str, int]]:
        """Job key to file and line of the key that it comes from."""
        return {
            job_key: (key.file, key.line)
            for key in self.keys
            if key.line is not None
            for job_key in key.job_keys
        }

    def with_fate(self, *fates: Fate) -> tuple[ForeignKey, ...]:
        """The keys that one of these became of."""
        return tuple(key for key in self.keys if key.fate in fates)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFile:
    """One file of an exported job.

    Attributes:
        name: Its name, e.g. ``train.yaml``, ``ds_config.json``, ``launch.sh``.
        text: What is in it.
        purpose: One sentence: what it is and how it is used.
    """

    name: str
    text: str
    purpose: Message


# Reads a file that a configuration points to, relative to it; None (and a notice) if it is absent.
Companion = Callable[[str], ForeignDocument | None]


class ConfigFormat(Protocol):
    """The surface of a format; a module with these names is one."""

    NAME: str

    def recognise(self, document: ForeignDocument) -> float:
        """How surely the document is of this format: 0 not at all, 1 certainly."""

    def load(
        self, document: ForeignDocument, *, companion: Companion, version: str | None
    ) -> Imported:
        """Read it. Every key of the document gets a fate.

        Raises:
            InvalidRequest: Values that the framework itself would refuse, all at once, with lines
                and near matches.
        """

    def dump(self, job: StatedJob) -> tuple[ExportedFile, ...]:
        """Write the job for the framework.

        Raises:
            CannotExport: The framework has no way to say a setting of the job; all of them named.
        """
