"""Compressed streams: gzip and Zstandard, opened so that a cut stream is an error, not an end."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Mapping
from importlib import import_module
from io import BufferedIOBase
from typing import Any, Final

from tuneplan.errors import MissingExtra
from tuneplan.frozen import dataclass
from tuneplan.language import message

# Bytes of the stored stream unpacked at a time.
_STEP_BYTES: Final = 256 * 1024


class BrokenStream(Exception):
    """A compressed stream that is cut, or is not what its name says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compression:
    """A way of compressing, by the end of the file's name."""

    suffix: str
    code: str
    name: str


GZIP: Final = Compression(suffix=".gz", code="broken_gzip", name="gzip")
ZSTANDARD: Final = Compression(suffix=".zst", code="broken_zstd", name="Zstandard")
_BY_SUFFIX: Final[Mapping[str, Compression]] = {".gz": GZIP, ".zst": ZSTANDARD, ".zstd": ZSTANDARD}


def compression_of(name: str) -> Compression | None:
    """How a file is compressed, by its name; None where it is not."""
    return next((one for end, one in _BY_SUFFIX.items() if name.lower().endswith(end)), None)


def without_compression(name: str) -> str:
    """A name without the ending that says how the file is compressed."""
    end = next((end for end in _BY_SUFFIX if name.lower().endswith(end)), "")
    return name[: len(name) - len(end)]


def unpacked(name: str, raw: BufferedIOBase) -> BufferedIOBase:
    """The content of an open file; reading it raises BrokenStream where the stream breaks.

    Raises:
        MissingExtra: The library for Zstandard is not installed.
    """
    compression = compression_of(name)
    if compression is None:
        return raw
    if compression is GZIP:
        return io.BufferedReader(_Checked(gzip.GzipFile(fileobj=raw, mode="rb")), _STEP_BYTES)
    try:
        library = import_module("zstandard")
    except ImportError:
        purpose = str(message("reading_zstd", "reading Zstandard files (.zst)"))
        raise MissingExtra(extra="tokens", purpose=purpose) from None
    return io.BufferedReader(_Zstandard(raw, library), _STEP_BYTES)


class _Checked(io.RawIOBase):
    """Gzip with one exception for all that can be wrong."""

    def __init__(self, packed: gzip.GzipFile) -> None:
        self._packed = packed

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._packed.read1(len(buffer))
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise BrokenStream(str(error)) from error
        buffer[: len(data)] = data
        return len(data)


class _Zstandard(io.RawIOBase):
    """Zstandard frames one after the other; ``zstandard``'s own reader takes a cut for the end."""

    def __init__(self, raw: BufferedIOBase, library: Any) -> None:
        self._raw = raw
        self._library = library
        self._stream = library.ZstdDecompressor().decompressobj()
        self._fed = False
        self._rest = b""
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            if not self._step():
                return 0
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def _step(self) -> bool:
        """Unpack some more; False at the end."""
        if self._stream.eof:
            self._rest = self._stream.unused_data + self._rest
            self._stream = self._library.ZstdDecompressor().decompressobj()
            self._fed = False
        data = self._rest or self._raw.read(_STEP_BYTES)
        self._rest = b""
        if not data:
            if self._fed:
                raise BrokenStream(
                    str(message("cut_stream", "the file ended before the end of the stream"))
                )
            return False
        try:
            self._ready = memoryview(self._stream.decompress(data))
        except self._library.ZstdError as error:
            raise BrokenStream(str(error)) from error
        self._fed = True
        return True
