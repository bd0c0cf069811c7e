"""Where data lies: a path of this machine, or a URL that ``fsspec`` opens (s3, gs, oss, memory).

A source is named by its path or URL, as the user wrote it. Drivers of clouds are the user's own:
where one is missing the error is the line that installs it.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from io import BufferedIOBase
from pathlib import Path
from typing import Any, Final

from tuneplan.errors import InputError
from tuneplan.language import message

# What installs the driver, by the scheme of the URL.
# Source: fsspec 2026.9 `registry.known_implementations`.
_DRIVERS: Final = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "oss": "ossfs",
    "az": "adlfs",
    "abfs": "adlfs",
    "adl": "adlfs",
    "abfss": "adlfs",
    "hf": "huggingface_hub",
    "http": "aiohttp",
    "https": "aiohttp",
    "sftp": "paramiko",
    "ssh": "paramiko",
    "hdfs": "pyarrow",
}


def is_url(name: str | Path) -> bool:
    """Whether a source is a URL, not a path."""
    return isinstance(name, str) and "://" in name


def base_name(name: str | Path) -> str:
    """The last part of a path or URL."""
    return str(name).rstrip("/").replace(os.sep, "/").rsplit("/", 1)[-1]


def size_of(name: str | Path) -> int:
    """Bytes of a source.

    Raises:
        InputError: The URL's driver is not installed, or does not know the URL.
        OSError: There is no such source.
    """
    if not is_url(name):
        return Path(name).stat().st_size
    files, path = _file_system(str(name))
    return int(files.size(path) or 0)


@contextmanager
def opened(name: str | Path) -> Iterator[BufferedIOBase]:
    """A source, open for reading from its start, as the bytes that are stored.

    Raises:
        InputError: The URL's driver is not installed, or does not know the URL.
        OSError: It cannot be read.
    """
    if not is_url(name):
        with Path(name).open("rb") as file:
            yield file
        return
    files, path = _file_system(str(name))
    with files.open(path, "rb") as remote:
        yield remote if isinstance(remote, BufferedIOBase) else io.BufferedReader(remote)


def matching(name: str) -> tuple[str, ...]:
    """The URLs that a URL with ``*``, ``?`` or ``[`` stands for; any other name is itself."""
    if not is_url(name) or not any(sign in name for sign in "*?["):
        return (name,)
    files, path = _file_system(name)
    return tuple(sorted(files.unstrip_protocol(found) for found in files.glob(path)))


def _file_system(url: str) -> tuple[Any, str]:
    scheme = url.split("://", 1)[0]
    driver = _DRIVERS.get(scheme)
    try:
        core = import_module("fsspec.core")
        files, path = core.url_to_fs(url)
    except ImportError:
        raise InputError(
            message(
                "missing_driver",
                "{url}: reading {scheme}:// needs a driver: pip install {packages}",
                url=url,
                scheme=scheme,
                packages=" ".join(filter(None, ("fsspec", driver))),
            )
        ) from None
    except ValueError as error:
        raise InputError(
            message(
                "unknown_url",
                "{url}: fsspec does not know this kind of URL ({reason})",
                url=url,
                reason=str(error),
            )
        ) from None
    return files, str(path)
