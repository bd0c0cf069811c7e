"""Where pictures stand in the messages of a row.

One character stands for each picture in the text of a message until the text is
rendered; what a model writes there is known only then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

# A noncharacter of Unicode, which no text may hold.
PICTURE: Final = "\ufdd0"
# LLaVA's ``DEFAULT_IMAGE_TOKEN``, LLaMA-Factory's ``IMAGE_PLACEHOLDER``, ms-swift's tag.
PLACEHOLDER: Final = "<image>"
_KINDS: Final = ("image", "image_url", "input_image")
_WHERE: Final = ("image", "image_url", "path", "url", "bytes")


def listed_pictures(row: Mapping[str, Any]) -> tuple[object, ...]:
    """The pictures in a row's own columns, ``images`` or ``image``, with sizes where it has them.

    InternVL's rows state sizes in ``height`` and ``width``, or ``height_list`` and ``width_list``.
    """
    listed = row.get("images") or row.get("image")
    if not listed:
        return ()
    found: Sequence[object] = listed if isinstance(listed, list) else (listed,)
    heights, widths = (_sizes(row, side, len(found)) for side in ("height", "width"))
    if heights is None or widths is None:
        return tuple(found)
    return tuple(
        {"height": height, "width": width, "path": one}
        for one, height, width in zip(found, heights, widths, strict=True)
    )


def _sizes(row: Mapping[str, Any], side: str, number: int) -> list[Any] | None:
    found = row.get(f"{side}_list", row.get(side))
    found = found if isinstance(found, list) else [found]
    return found if len(found) == number and all(isinstance(one, int) for one in found) else None


def num_other_media(row: Mapping[str, Any]) -> int:
    """Videos and sound recordings of a row, which are not counted."""
    listed = (row.get(key) for key in ("videos", "video", "audios", "audio"))
    return sum(len(found) if isinstance(found, list) else 1 for found in listed if found)


def is_picture(part: Mapping[str, Any]) -> bool:
    """Whether a part of a message is a picture."""
    return part.get("type") in _KINDS


def text_of_part(part: Mapping[str, Any]) -> str:
    """The text of a part of a message, or the mark of a picture."""
    if is_picture(part):
        return PICTURE
    text = part.get("text", part.get("value", ""))
    return text if isinstance(text, str) else ""


def inline_pictures(turns: Iterable[Any]) -> tuple[object, ...]:
    """The pictures named inside messages; None for one that only stands there."""
    return tuple(
        next((part[key] for key in _WHERE if part.get(key) is not None), None)
        for turn in turns
        if isinstance(turn, dict) and isinstance(turn.get("content"), list)
        for part in turn["content"]
        if isinstance(part, dict) and is_picture(part)
    )


def num_marks(messages: Iterable[Mapping[str, Any]]) -> int:
    """How many places for a picture the messages have."""
    return sum(turn["content"].count(PICTURE) for turn in messages)


def marked(messages: Sequence[Mapping[str, Any]], number: int) -> tuple[Mapping[str, Any], ...]:
    """Messages with a mark for each of ``number`` pictures that a row lists.

    ``<image>`` in the text is such a place; pictures without a place stand before the first user
    message, where trl puts them (1.16 ``data_utils.py`` ``prepare_multimodal_messages``).
    """
    if not num_marks(messages):
        messages = [
            {**turn, "content": turn["content"].replace(PLACEHOLDER, PICTURE)} for turn in messages
        ]
    missing = number - num_marks(messages)
    if missing <= 0:
        return tuple(messages)
    first = next((at for at, turn in enumerate(messages) if turn["role"] == "user"), 0)
    return tuple(
        {**turn, "content": PICTURE * missing + turn["content"]} if at == first else turn
        for at, turn in enumerate(messages)
    )


def parts_of(content: str) -> list[dict[str, str]]:
    """A message as the list of parts that multimodal chat templates walk."""
    parts: list[dict[str, str]] = []
    for number, text in enumerate(content.split(PICTURE)):
        if number:
            parts.append({"type": "image"})
        if text:
            parts.append({"type": "text", "text": text})
    return parts or [{"type": "text", "text": ""}]
