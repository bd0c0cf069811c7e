"""A configuration that was read, of whichever format: the job in it, and where each key stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuneplan.contract.documents import Origin
from tuneplan.frozen import dataclass
from tuneplan.spec.stated import StatedJob

if TYPE_CHECKING:
    from tuneplan.formats.foreign import Imported

JOB_FILE: Final = "tuneplan"  # the name of our own format


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """A configuration that was read.

    Attributes:
        job: With the flags laid over it; its places are lines of the user's own files.
        imported: What became of every key; None for a job file of ours.
        files: The file, then those that it points to and that were read too.
    """

    job: StatedJob
    imported: Imported | None
    files: tuple[str, ...]

    @property
    def format(self) -> str:
        """Name of the format: ``tuneplan`` for a job file."""
        return self.imported.format if self.imported else JOB_FILE

    def origin(self, path: str) -> Origin | None:
        """The user's own key, file and line of a key of the job; None where no file says it."""
        place = self.job.places.get(path)
        if place is None:
            return None
        own = origins_of(self.imported).get(path) if self.imported else None
        return own or Origin(path=path, file=place[0], line=place[1])


def origins_of(imported: Imported) -> dict[str, Origin]:
    """Key path of the job to the key of the configuration that says it."""
    return {
        job_key: Origin(path=key.path, file=key.file, line=key.line)
        for key in imported.keys
        for job_key in key.job_keys
    }
