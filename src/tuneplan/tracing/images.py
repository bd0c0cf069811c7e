"""Images of every row of a batch: how they are written, and which families are traced with them."""

from __future__ import annotations

import re
from typing import Final

from tuneplan.errors import InvalidRequest, Mistake
from tuneplan.frozen import dataclass
from tuneplan.language import message

FIXED_SIZE: Final = "gemma3"  # its processor makes every image as large as the configuration says
FAMILIES: Final = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5", FIXED_SIZE)
_WRITTEN: Final = re.compile(r"([1-9]\d{0,4})x([1-9]\d{0,4})")


@dataclass(frozen=True, slots=True)
class ImageSize:
    """Pixels of an image as the processor leaves it."""

    height: int
    width: int

    def __str__(self) -> str:
        return f"{self.height}x{self.width}"


def image_size(text: str) -> ImageSize:
    """``1024x768``: height and width.

    Raises:
        InvalidRequest: It is not written so.
    """
    found = _WRITTEN.fullmatch(text.strip())
    if found is not None:
        return ImageSize(int(found[1]), int(found[2]))
    mistake = Mistake(
        message=message("image_size", "{text} is no size of an image", text=repr(text)),
        path="image",
        value=text,
        how_to_fix=message(
            "image_size_written",
            "write HEIGHTxWIDTH in pixels, such as 1024x768",
        ),
    )
    raise InvalidRequest([mistake])


def traced_with_images(model_type: str) -> bool:
    """Whether the batches that this family's processor makes of images are known."""
    return model_type == FIXED_SIZE or model_type.startswith(FAMILIES[:-1])
