"""Profiles of data: of files that a request sends, or names; those made before are kept in memory.

A file that was sent is written to a folder of its own, read, and removed before there is an answer.
Archives are not unpacked. Of large files a part is read, as the answer says.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tuneplan.access.roots import may_name, refused
from tuneplan.errors import InputError, InvalidRequest, Mistake
from tuneplan.language import message

if TYPE_CHECKING:
    from tuneplan.tokens.profile import DataProfile
    from tuneplan.web.form import Form, Upload
    from tuneplan.web.world import World

FIELD: Final = "profile"
_WHOLE_UP_TO_BYTES: Final = 32 * 2**20
_READ_BYTES: Final = 24 * 2**20
_ARCHIVES: Final = frozenset(
    [".gz", ".bz2", ".xz", ".zst", ".zip", ".tar", ".tgz", ".7z", ".rar", ".lz4"]
)
_LONGEST_NAME: Final = 255
_UNSAFE: Final = re.compile(r"[^\w.\- ]+")


def profile_of(form: Form, world: World) -> DataProfile:
    """The profile that a request asks for.

    Raises:
        InputError: Nothing is named, a file may not be read, or cannot be.
    """
    uploads = form.uploads.get("file", ())
    if uploads:
        return _of_uploads(uploads, form)
    token = form.text(FIELD)
    if token:
        from tuneplan.tokens.profile import DataProfile

        kept: DataProfile = world.shelf.get(token, DataProfile, path=FIELD)
        return kept
    paths = form.several("data")
    if not paths:
        text = message("no_data_named", "give a file, or the path of one that the page may read")
        raise InvalidRequest([Mistake(message=text, path="data.path")])
    return _of_paths(paths, form, world)


def keep_profile(form: Form, world: World) -> Form:
    """The form that names the profile of the file that came along."""
    if not form.uploads.get("file"):
        return form
    profile = profile_of(form, world)
    size_bytes = 200 * len(profile.length_counts)
    token = world.shelf.put(profile, size_bytes=size_bytes)
    return form.with_keys({FIELD: token, "data.path": None}).without_uploads()


def _of_paths(paths: Sequence[str], form: Form, world: World) -> DataProfile:
    outside = [path for path in paths if not may_name(path, form.roots)]
    if outside:
        raise InvalidRequest([refused(path, form.roots, path="data.path") for path in outside])
    found = [str(Path(form.base_path) / Path(path).expanduser()) for path in paths]
    key = (*_stamps(found), *_counting(form).items())
    known: DataProfile | None = world.known.get(key)
    if known is None:
        known = _profiled(found, form, _size_bytes(found))
        world.known.put(key, known)
    return known


def _counting(form: Form) -> Mapping[str, Any]:
    """What decides how tokens are counted; without a model characters are."""
    model, tokenizer = (_placed(name, form) for name in ("model", "tokenizer"))
    if not model and not tokenizer:
        tokenizer = "approximate"
    return {
        "model": model or None,
        "tokenizer": tokenizer or None,
        "skip_bad_rows": form.text("skip") == "true",
    }


def _placed(field: str, form: Form) -> str:
    """A name, or the path of what lies in a folder that may be read."""
    from tuneplan.planner.dataset import beside

    said = form.text(field)
    if not may_name(said, form.roots):
        raise InvalidRequest([refused(said, form.roots, path=field)])
    named = said and len(said) < _LONGEST_NAME
    return beside(Path(form.base_path), said) if named else said


def _profiled(paths: Sequence[str], form: Form, size_bytes: int) -> DataProfile:
    from tuneplan.planner.profile_data import profile_data

    form.refuse_mistakes()
    sample = _READ_BYTES if size_bytes > _WHOLE_UP_TO_BYTES else None
    return profile_data(paths, workers=1, sample_bytes=sample, **_counting(form))


def _stamps(paths: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    for path in paths:
        size = changed = 0
        with suppress(OSError, ValueError):
            found = Path(path).stat()
            size, changed = found.st_size, found.st_mtime_ns
        yield path, size, changed


def _size_bytes(paths: Sequence[str]) -> int:
    return sum(size for _, size, _ in _stamps(paths))


# --- files that came along ------------------------------------------------------------------------


def _of_uploads(uploads: Sequence[Upload], form: Form) -> DataProfile:
    refused = [one for one in uploads if Path(one.name).suffix.lower() in _ARCHIVES]
    if refused:
        raise InvalidRequest(
            [
                Mistake(
                    message=message(
                        "archive_not_unpacked",
                        "{name} is packed, and what is sent is not unpacked here: unpack it first, "
                        "or name its path in a folder that the page may read",
                        name=one.name,
                    ),
                    path="file",
                )
                for one in refused
            ]
        )
    with tempfile.TemporaryDirectory(prefix="tuneplan-data-") as folder:
        paths = [_written(one, number, Path(folder)) for number, one in enumerate(uploads)]
        try:
            found = _profiled(paths, form, _size_bytes(paths))
        except InputError as error:
            raise InvalidRequest([_renamed(one, folder) for one in error.mistakes]) from None
    return replace(
        found,
        files=tuple(replace(one, path=_name(one.path)) for one in found.files),
        bad_rows=tuple(replace(one, path=_name(one.path)) for one in found.bad_rows),
    )


def _written(upload: Upload, number: int, folder: Path) -> str:
    """The path of a file that came along; of its name only harmless signs are kept."""
    name = _UNSAFE.sub("_", upload.name.replace("\\", "/").rpartition("/")[2])[-100:].lstrip(".")
    inner = folder / str(number)
    inner.mkdir()
    path = inner / (name or "data.jsonl")
    path.write_bytes(upload.content)
    return str(path)


def _name(path: str) -> str:
    return Path(path).name


def _renamed(mistake: Mistake, folder: str) -> Mistake:
    """The mistake without our folder: files bear the names that the user knows."""

    def plain(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return re.sub(rf"{re.escape(folder)}/\d+/", "", value)

    text = mistake.message
    params = {name: plain(value) for name, value in text.params.items()}
    return replace(
        mistake,
        message=replace(text, params=params),
        path=plain(mistake.path),
        value=plain(mistake.value),
        places=tuple(_renamed(one, folder) for one in mistake.places),
    )
