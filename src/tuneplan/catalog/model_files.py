"""A model folder: its configuration, and its safetensors headers read without loading weights.

A safetensors file starts with eight bytes (little-endian length of the header) and a JSON header
that names every tensor with dtype and shape (safetensors format, version 0.3 to 0.8).
"""

from __future__ import annotations

import json
import math
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tuneplan.errors import UnreadableFile
from tuneplan.frozen import dataclass
from tuneplan.language import message

_MAX_HEADER_BYTES: Final = 100 * 2**20  # the format's own limit
_LONGEST_NAME: Final = 255
_DAMAGES: Final = (
    OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, struct.error,
)  # fmt: skip
_DTYPES: Final = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredWeights:
    """What the headers of a folder's safetensors files say.

    Attributes:
        num_parameters: Elements of all floating-point tensors.
        num_packed: Elements of other tensors (quantised weights, integers).
        dtype: The floating-point dtype most elements have, Hugging Face's name; None without any.
        names: Elements by tensor name.
        missing_files: Shards that the index names and the folder lacks.
    """

    num_parameters: int
    num_packed: int
    dtype: str | None
    names: Mapping[str, int]
    missing_files: tuple[str, ...]


def find_config(folder: Path) -> Path:
    """The ``config.json`` of a folder.

    Raises:
        UnreadableFile: there is none; says so where the folder holds an adapter instead.
    """
    config = folder / "config.json"
    if config.is_file():
        return config
    if (folder / "adapter_config.json").is_file():
        text = message(
            "folder_is_adapter",
            "{path} holds an adapter (adapter_config.json), not a model: give its base model",
            path=str(folder),
        )
    else:
        text = message(
            "folder_lacks_config", "the folder {path} holds no config.json", path=str(folder)
        )
    raise UnreadableFile(text, path=str(folder))


def stored_weights(folder: Path) -> StoredWeights | None:
    """Counts and dtypes from the safetensors headers; None where the folder has no such files.

    Raises:
        UnreadableFile: an index or a header is damaged.
    """
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        listed = sorted(set(_index_files(index)))
        files = [folder / name for name in listed]
    else:
        files = sorted(folder.glob("*.safetensors"))
    present = [file for file in files if file.is_file()]
    if not present:
        return None
    names: dict[str, int] = {}
    elements: Counter[str] = Counter()
    for file in present:
        for name, dtype, size in _tensors(file):
            names[name] = size
            elements[dtype] += size
    floats = {dtype: size for dtype, size in elements.items() if dtype in _DTYPES}
    return StoredWeights(
        num_parameters=sum(floats.values()),
        num_packed=sum(elements.values()) - sum(floats.values()),
        dtype=_DTYPES[max(floats, key=lambda dtype: floats[dtype])] if floats else None,
        names=names,
        missing_files=tuple(file.name for file in files if not file.is_file()),
    )


def _index_files(index: Path) -> Iterator[str]:
    try:
        weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        for name in map(str, weight_map.values()):
            if len(name) > _LONGEST_NAME or Path(name).is_absolute() or ".." in Path(name).parts:
                msg = f"{name[:80]!r} is no file of this folder"
                raise ValueError(msg)
            yield name
    except _DAMAGES as problem:
        raise _damaged(index, problem) from problem


def _tensors(file: Path) -> Iterator[tuple[str, str, int]]:
    """Name, dtype and number of elements of each tensor of one file."""
    try:
        header = _header(file)
        for name, tensor in header.items():
            if name != "__metadata__":
                yield name, str(tensor["dtype"]), _num_elements(tensor["shape"])
    except _DAMAGES as problem:
        raise _damaged(file, problem) from problem


def _num_elements(shape: Any) -> int:
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        msg = f"{str(shape)[:80]} is no shape"
        raise ValueError(msg)
    return math.prod(shape)


def _header(file: Path) -> Mapping[str, Any]:
    with file.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        if length > _MAX_HEADER_BYTES:
            msg = f"its header would have {length} bytes"
            raise ValueError(msg)
        header: Mapping[str, Any] = json.loads(stream.read(length))
        return header


def _damaged(file: Path, problem: Exception) -> UnreadableFile:
    return UnreadableFile(
        message(
            "damaged_weights_file",
            "{path} is not a readable safetensors file: {problem}; is the download complete?",
            path=str(file),
            problem=str(problem) or type(problem).__name__,
        ),
        path=str(file),
    )
