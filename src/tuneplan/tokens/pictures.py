"""Pictures of a row: how large each is, and the tokens that a model makes of it.

A size is read from the head of the file (a path beside the data file, bytes in the row, a data
address), or taken from ``width`` and ``height`` in the row. Nothing is downloaded, nothing decoded.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from tuneplan.errors import MissingExtra
from tuneplan.frozen import dataclass
from tuneplan.language import message, phrase
from tuneplan.tokens.picture_rules import PictureRule
from tuneplan.tokens.turns import RowProblem

Size = tuple[int, int]
_DATA_ADDRESS: Final = re.compile(r"data:image/[\w.+-]+;base64,")
# EXIF orientations that turn a picture on its side; transformers' ``load_image`` heeds them.
_ORIENTATION: Final = 0x0112
_ON_ITS_SIDE: Final = (5, 6, 7, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pictures:
    """What a model makes of pictures.

    Attributes:
        usual_size: Height and width of a picture whose file is not at hand; None leaves such
            pictures uncounted.
    """

    rule: PictureRule
    usual_size: Size | None = None

    def tokens(self, picture: object, folder: Path) -> tuple[int | None, bool]:
        """Tokens of one picture with its marks, and whether the usual size was taken for it.

        None where the size is not known.

        Args:
            picture: As the row names it: a path, an address, bytes, or an object with these or
                with ``height`` and ``width``.
            folder: What a path is relative to.

        Raises:
            RowProblem: The file is no picture, or of a shape that the model refuses.
        """
        if self.rule.way == "fixed":
            return self.rule.tokens(1, 1), False
        size = size_of(picture, folder)
        taken = size or self.usual_size
        if taken is None:
            return None, False
        try:
            return self.rule.tokens(*taken), size is None
        except ValueError as error:
            raise RowProblem(
                message("picture_refused", "the model takes no such picture: {why}", why=str(error))
            ) from error


def size_of(picture: object, folder: Path) -> Size | None:
    """Height and width of a picture, or None where the row does not say and no file is at hand.

    Raises:
        RowProblem: The file is there and is no picture.
    """
    if isinstance(picture, Mapping):
        stated = _stated(picture)
        if stated is not None:
            return stated
        keys = ("bytes", "path", "url", "image", "image_url")
        inner = next((picture[key] for key in keys if picture.get(key)), None)
        return None if inner is None else size_of(inner, folder)
    if isinstance(picture, bytes):
        return _measured(BytesIO(picture), "bytes")
    if not isinstance(picture, str):
        return None
    head = _DATA_ADDRESS.match(picture)
    if head is not None:
        return _measured(BytesIO(_decoded(picture[head.end() :])), "data:image")
    path = Path(picture.removeprefix("file://"))
    path = path if path.is_absolute() else folder / path
    try:
        there = path.is_file()
    except (OSError, ValueError):  # a name that no file can have
        return None
    return _measured(path, picture) if there else None


def _stated(picture: Mapping[str, Any]) -> Size | None:
    height, width = picture.get("height"), picture.get("width")
    if isinstance(height, int) and isinstance(width, int) and height > 0 and width > 0:
        return height, width
    return None


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _no_picture("data:image", str(error)) from error


def _measured(file: Path | BytesIO, name: str) -> Size:
    try:
        image = import_module("PIL.Image")
    except ImportError:
        raise MissingExtra(extra="tokens", purpose=phrase("reading the size of pictures")) from None
    try:
        with image.open(file) as opened:
            width, height = opened.size
            turned = opened.getexif().get(_ORIENTATION) in _ON_ITS_SIDE
    except (OSError, ValueError, SyntaxError, image.DecompressionBombError) as error:
        raise _no_picture(name, str(error)) from error
    return (width, height) if turned else (height, width)


def _no_picture(name: str, reason: str) -> RowProblem:
    return RowProblem(
        message("no_picture", "{name} is no picture: {reason}", name=name, reason=reason)
    )
