"""Use-case: a configuration of any framework, or a job file, as a job."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tuneplan.contract.documents import Document
from tuneplan.contract.job import JobFile
from tuneplan.contract.reading import load_document, load_imported
from tuneplan.contract.spellings import IRRELEVANT, SPELLINGS
from tuneplan.errors import InputError, InvalidRequest, Mistake, NotSupported, UnreadableFile
from tuneplan.formats.foreign import Companion, ForeignDocument, Imported
from tuneplan.formats.model_folder import named_by_folder
from tuneplan.formats.reading import (
    companions_of,
    no_companions,
    parse_foreign,
    read_foreign,
    texts_beside,
    with_configuration,
)
from tuneplan.formats.registry import FORMATS, format_named, recognised
from tuneplan.frozen import dataclass
from tuneplan.language import Message, message
from tuneplan.planner.configuration import Configuration as Configuration
from tuneplan.planner.configuration import origins_of
from tuneplan.spec.answer import Notice
from tuneplan.spec.stated import StatedJob

# Sections that no configuration of a framework has as a mapping; ``data`` and ``model`` others do.
_OUR_SECTIONS: Final = ("training", "hardware", "limits", "parallelism", "project")


def read_configuration(
    source: str | Path,
    *,
    framework: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    set_: Sequence[str] = (),
) -> Configuration:
    """Read a configuration and everything that it points to.

    Args:
        source: A job file, the configuration of a framework, or a launch script; ``-`` is
            standard input.
        framework: ``NAME`` or ``NAME==VERSION``: whose defaults count, and which format is meant
            where the file could be of several.
        overrides: Key paths of the job file and values that go before the file.
        set_: The same as text: ``"training.max_length=4096"``.

    Raises:
        UnreadableFile: The file is absent, empty, broken, or of no known format.
        InvalidRequest: Every mistake, at the key and line of the user's own file; and what asks
            for something that has no formula.
    """
    base_path = str(Path(source).parent) if str(source) != "-" else "."
    return _configuration(
        read_foreign(source),
        companion=_beside(source),
        base_path=base_path,
        framework=framework,
        overrides=overrides,
        set_=set_,
    )


def read_configuration_text(
    text: str,
    *,
    name: str,
    beside: Mapping[str, str] | None = None,
    base_path: str = ".",
    framework: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    set_: Sequence[str] = (),
) -> Configuration:
    """``read_configuration`` of a text; no other file is read for it.

    Args:
        text: What the file would hold.
        name: Of the file; its ending decides how the text is read.
        beside: Texts by the names of files that the configuration may point to.
        base_path: Where relative paths of the job start.
        framework: As for ``read_configuration``.
        overrides: As for ``read_configuration``.
        set_: As for ``read_configuration``.

    Raises:
        UnreadableFile: As ``read_configuration``.
        InvalidRequest: As ``read_configuration``.
    """
    companion = texts_beside(beside or {})
    return _configuration(
        with_configuration(parse_foreign(text, name=name), companion),
        companion=companion,
        base_path=base_path,
        framework=framework,
        overrides=overrides,
        set_=set_,
    )


def _configuration(
    document: ForeignDocument,
    *,
    companion: Companion,
    base_path: str,
    framework: str | None,
    overrides: Mapping[str, Any] | None,
    set_: Sequence[str],
) -> Configuration:
    flags = dict(overrides or {})
    if framework is not None:
        flags["framework"] = framework
    candidates = recognised(document)
    if is_job_file(document, candidates):
        job = load_document(_as_job_file(document), base_path=base_path, overrides=flags, set_=set_)
        return Configuration(job=job, imported=None, files=(document.file,))
    imported = _imported(document, candidates, framework, companion)
    if imported.refusals:
        raise InvalidRequest(imported.refusals)
    try:
        job = load_imported(
            imported.job,
            origins=origins_of(imported),
            base_path=base_path,
            overrides=flags,
            set_=set_,
        )
    except InvalidRequest as error:
        raise InvalidRequest([_named(one, imported) for one in error.mistakes]) from error
    job = replace(job, notices=(*imported.notices, *job.notices))
    imported = _with_stated_data(imported, job)
    return Configuration(job=job, imported=imported, files=imported.files)


def foreign_instead(source: str | None) -> Mistake | None:
    """That a file is no job file but the configuration of a framework; None where it is not."""
    if source is None or source == "-":
        return None
    try:
        document = read_foreign(source)
    except InputError:
        return None
    candidates = recognised(document)
    if not candidates or is_job_file(document, candidates):
        return None
    return Mistake(
        message=message(
            "foreign_not_job",
            "{path} is a configuration of {format}, not a job file",
            path=source,
            format=candidates[0],
        ),
        path=source,
        how_to_fix=message(
            "import_first",
            "tuneplan check reads it as it is; tuneplan import {path} -o job.yaml makes a job file "
            "of it",
            path=source,
        ),
    )


# What a format says of data that only the configuration names, or cuts.
_DATA_ASKED_FOR: Final = ("data_not_here", "samples_cut")
DATA_STATED: Final = message(
    "data_stated", "the data set is not here: the data that you state stand for it"
)

DATA_COUNTED_WHOLE: Final = message(
    "data_counted_whole",
    "it cuts each data set to so many rows, but the data that you give are counted whole: give "
    "files of so many rows, or data.num_samples with data.mean_tokens",
)


def _with_stated_data(imported: Imported, job: StatedJob) -> Imported:
    """Flags have said what the data are: no key asks for it any more."""
    own = imported.job.get("data")
    if not job.data.given or (isinstance(own, Mapping) and own.get("path")):
        return imported
    keys = tuple(
        replace(key, why=_data_reason(key.why.code, job))
        if key.why is not None and key.why.code in _DATA_ASKED_FOR
        else key
        for key in imported.keys
    )
    return replace(imported, keys=keys)


def _data_reason(code: str, job: StatedJob) -> Message:
    """Why a key about data says nothing of the job; files that are given count whole."""
    counts_whole = code == "samples_cut" and (job.data.path or job.data.profile)
    return DATA_COUNTED_WHOLE if counts_whole else DATA_STATED


def _named(mistake: Mistake, imported: Imported) -> Mistake:
    """The mistake; that no model is named is told of the file, and with the flag."""
    if mistake.message.code != "no_model":
        return mistake
    return Mistake(
        message=message("file_without_model", "{file} names no model", file=imported.files[0]),
        path=imported.files[0],
        how_to_fix=message("model_flag", "add --model, e.g. --model Qwen/Qwen2.5-7B-Instruct"),
    )


@contextmanager
def in_own_words(configuration: Configuration) -> Iterator[None]:
    """Within the block a mistake is told at the key, file and line of the user's own.

    Raises:
        InvalidRequest: The mistakes with their places.
        NotSupported: What has no formula, with its place.
    """
    try:
        yield
    except InvalidRequest as error:
        raise InvalidRequest([_told(one, configuration) for one in error.mistakes]) from error
    except NotSupported as error:
        raise error.at(_told(error.mistake, configuration)) from error


def _told(mistake: Mistake, configuration: Configuration) -> Mistake:
    origin = configuration.origin(mistake.path or "")
    if origin is None or mistake.line not in (None, origin.line):
        return mistake
    return replace(mistake, path=origin.path, file=origin.file, line=origin.line)


def keys_of(source: str | Path, *, framework: str | None = None) -> Imported | None:
    """What became of every key, nothing validated; None for a job file.

    Raises:
        UnreadableFile: As ``read_configuration``.
        InvalidRequest: Values that the framework itself would refuse.
    """
    document = read_foreign(source)
    candidates = recognised(document)
    if is_job_file(document, candidates):
        return None
    return _imported(document, candidates, framework, _beside(source))


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedJob:
    """A job file made from a configuration.

    Attributes:
        job: What the configuration says, in the keys of the job file; paths fit the place that
            the job file is written to.
    """

    imported: Imported
    job: Mapping[str, Any]
    notices: tuple[Notice, ...]


def import_job(
    source: str | Path, *, framework: str | None = None, folder: str | Path = "."
) -> ImportedJob:
    """Read the configuration of a framework and say the same as a job file.

    Args:
        source: As for ``read_configuration``, but no job file.
        framework: As for ``read_configuration``.
        folder: Where the job file is to lie.

    Raises:
        UnreadableFile: As ``read_configuration``.
        InvalidRequest: Every mistake, at the key and line of the user's own file; that it names
            no model is none.
    """
    document = read_foreign(source)
    candidates = recognised(document)
    if is_job_file(document, candidates):
        raise UnreadableFile(
            message("already_a_job_file", "{path} is a job file already", path=document.file),
            path=document.file,
        )
    imported = _imported(document, candidates, framework, _beside(source))
    base_path = "." if str(source) == "-" else str(Path(source).parent)
    tree = dict(imported.job)
    if framework is not None:
        tree["framework"] = framework
    notices = list(imported.notices)
    try:
        read = load_imported(tree, origins=origins_of(imported), base_path=base_path)
    except InvalidRequest as error:
        if any(mistake.message.code != "no_model" for mistake in error.mistakes):
            raise
        text = message("imported_without_model", "the configuration names no model: add model:")
        notices.append(Notice(message=text, path="model"))
    else:
        notices += read.notices
    return ImportedJob(
        imported=imported,
        job=_moved(tree, Path(base_path), Path(folder)),
        notices=tuple(notices),
    )


def _moved(tree: Mapping[str, Any], base: Path, folder: Path) -> dict[str, Any]:
    """The job with the paths of files rewritten for another folder."""
    moved = dict(tree)
    if base.absolute() == folder.absolute():
        return moved
    model = moved.get("model")
    if isinstance(model, str) and _exists(base / model):
        moved["model"] = _from(folder, base / model)
    data = moved.get("data")
    if isinstance(data, Mapping) and data.get("path"):
        paths = [data["path"]] if isinstance(data["path"], str) else list(data["path"])
        found = [_from(folder, base / path) for path in paths]
        moved["data"] = {**data, "path": found[0] if len(found) == 1 else found}
    return moved


def _from(folder: Path, path: Path) -> str:
    return os.path.relpath(path.absolute(), folder.absolute())


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def is_job_file(document: ForeignDocument, candidates: Sequence[str]) -> bool:
    """Whether a document is a job file of ours rather than the configuration of a framework.

    It is where it has a section that only we have among keys that are mostly ours, or where it has
    our keys alone, or where no framework claims it. Hugging Face's names are read as ours too: a
    file of nothing else is theirs where it says no ``model``.
    """
    tree = document.tree
    model = tree.get("model")
    if document.form == "shell" or not isinstance(model, str | None):
        return False
    foreign = [name for name in tree if name not in _known_keys()]
    if any(isinstance(tree.get(name), Mapping) for name in _OUR_SECTIONS):
        return not candidates or len(foreign) < len(tree) / 2
    if model is None:
        return not candidates and "framework" in tree
    return not candidates or not foreign


def _known_keys() -> frozenset[str]:
    spellings = (name for spelling in SPELLINGS for name in spelling.written)
    return frozenset((*JobFile.model_fields, *spellings, *IRRELEVANT))


def _as_job_file(document: ForeignDocument) -> Document:
    return Document(
        tree=dict(document.tree),
        lines=document.lines,
        file=document.file,
        mistakes=document.mistakes,
    )


def _beside(source: str | Path) -> Companion:
    return no_companions if str(source) == "-" else companions_of(source)


def _imported(
    document: ForeignDocument,
    candidates: Sequence[str],
    framework: str | None,
    companion: Companion,
) -> Imported:
    name, _, version = (framework or "").partition("==")
    chosen = name if name in candidates else next(iter(candidates), None)
    if chosen is None and name in FORMATS:
        chosen = name
    if chosen is None:
        raise _unrecognised(document)
    found = format_named(chosen).load(document, companion=companion, version=version or None)
    return named_by_folder(found)


def _unrecognised(document: ForeignDocument) -> UnreadableFile:
    return UnreadableFile(
        message(
            "unrecognised_configuration",
            "{path} is neither a job file nor a configuration that is known here ({formats}); "
            "--framework NAME says whose it is",
            path=document.file,
            formats=", ".join(FORMATS),
        ),
        path=document.file,
    )
