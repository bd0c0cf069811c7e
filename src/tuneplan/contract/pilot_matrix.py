"""A matrix file: a list of pilots, each a job with limits of its own."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, ValidationError

from tuneplan.contract.documents import Document, read_document
from tuneplan.contract.reading import load_job
from tuneplan.contract.section import Section
from tuneplan.errors import InputError, InvalidRequest, Mistake
from tuneplan.frozen import dataclass
from tuneplan.language import message
from tuneplan.spec.stated import StatedJob
from tuneplan.units import parse_bytes, parse_seconds

_FILES: Final = Path(__file__).parents[1] / "piloting" / "matrices"


class CaseSection(Section):
    """One pilot. ``set`` holds job keys that go before those of ``job``."""

    name: str = Field(min_length=1, max_length=80)
    job: dict[str, Any] | str
    set: dict[str, Any] = Field(default_factory=dict)
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    needs: Literal["cpu", "cuda"] = "cpu"
    needs_memory: str | None = None
    steps: int = Field(default=12, ge=2, le=10_000)
    all_steps: bool = False
    time_limit: str = "40 s"
    memory_limit: str | None = None
    images: list[str] = Field(default_factory=list)
    synthetic: bool = False
    weights: str | None = None


class MatrixFile(Section):
    """The file."""

    name: str | None = Field(default=None, max_length=60)
    cases: list[CaseSection] = Field(min_length=1, max_length=1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixCase:
    """One pilot, read.

    Attributes:
        digest: Of all that is stated; another case has another.
        needs_cuda: Not run where there is no such card.
        needs_bytes: Memory of the card without which it is not run.
    """

    name: str
    digest: str
    job: StatedJob
    device: str
    needs_cuda: bool
    needs_bytes: int | None
    steps: int
    all_steps: bool
    time_s: float
    memory_bytes: int | None
    images: tuple[str, ...]
    synthetic: bool
    weights: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """Cases in their order; ``name`` is the file's where it says none."""

    name: str
    cases: tuple[MatrixCase, ...]


def prepared_matrices() -> tuple[str, ...]:
    """Names of the files that come with the package."""
    return tuple(sorted(path.stem for path in _FILES.glob("*.yaml")))


def read_matrix(source: str) -> Matrix:
    """A matrix from its file, or one of those that come with the package, by its name.

    Raises:
        UnreadableFile: Absent, empty or broken.
        InvalidRequest: Every mistake of every case.
    """
    path = _FILES / f"{source}.yaml" if source in prepared_matrices() else Path(source)
    document = read_document(path)
    if document.mistakes:
        raise InvalidRequest(document.mistakes)
    try:
        found = MatrixFile.model_validate(document.tree)
    except ValidationError as error:
        raise InvalidRequest([_told(one, document) for one in error.errors()]) from None
    cases, mistakes = [], list(_repeated(found, document))
    for number, case in enumerate(found.cases):
        try:
            cases.append(_case(case, path.parent))
        except InputError as error:
            mistakes += [_inside(one, number, document) for one in error.mistakes]
    if mistakes:
        raise InvalidRequest(mistakes)
    return Matrix(name=found.name or path.stem, cases=tuple(cases))


def _case(case: CaseSection, folder: Path) -> MatrixCase:

    source = case.job if isinstance(case.job, dict) else folder / case.job
    job = load_job(source, overrides=case.set)
    if isinstance(case.job, dict):
        job = replace(job, base_path=str(folder))
    stated = json.dumps(case.model_dump(exclude={"name"}), sort_keys=True, default=str)
    return MatrixCase(
        name=case.name,
        digest=hashlib.sha256(stated.encode()).hexdigest(),
        job=job,
        device=case.device,
        needs_cuda=case.needs == "cuda",
        needs_bytes=parse_bytes(case.needs_memory) if case.needs_memory else None,
        steps=case.steps,
        all_steps=case.all_steps,
        time_s=parse_seconds(case.time_limit),
        memory_bytes=parse_bytes(case.memory_limit) if case.memory_limit else None,
        images=tuple(case.images),
        synthetic=case.synthetic,
        weights=case.weights,
    )


def _told(detail: Any, document: Document) -> Mistake:
    path = ".".join(map(str, detail["loc"]))
    text = message("matrix_invalid", "{problem}", problem=detail["msg"])
    if detail["type"] == "extra_forbidden":
        kind = CaseSection if path.startswith("cases.") else MatrixFile
        text = message(
            "matrix_unknown_key",
            "there is no key {key}; there are {names}",
            key=str(detail["loc"][-1]),
            names=", ".join(kind.model_fields),
        )
    return Mistake(
        message=text,
        path=path,
        file=document.file,
        line=_line(path, document),
    )


def _repeated(found: MatrixFile, document: Document) -> list[Mistake]:
    names = [case.name for case in found.cases]
    return [
        Mistake(
            message=message("matrix_name_twice", "two cases are named {name}", name=name),
            path=f"cases.{number}.name",
            file=document.file,
            line=_line(f"cases.{number}.name", document),
        )
        for number, name in enumerate(names)
        if name in names[:number]
    ]


def _inside(one: Mistake, number: int, document: Document) -> Mistake:
    """A mistake of a job, at its place in the matrix; a job file's own place stays."""
    if one.file is not None:
        return one
    inner = f"cases.{number}" + (f".{one.path}" if one.path else "")
    line = _line(f"cases.{number}.job.{one.path}", document)
    return replace(one, path=inner, file=document.file, line=line)


def _line(path: str, document: Document) -> int | None:
    """The line of a key, or of the nearest section around it."""
    while path:
        if path in document.lines:
            return document.lines[path]
        path = path.rpartition(".")[0]
    return None
