"""Batches with images: patches, their grid, and the places of image tokens in the text.

Sizes follow each family's processor (transformers 5): Qwen's merge two by two patches into a
token, Gemma 3 makes 256 tokens of every image.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from tuneplan.errors import NotSupported
from tuneplan.language import message
from tuneplan.tracing.device import fake_device, patched
from tuneplan.tracing.images import FIXED_SIZE, ImageSize, traced_with_images
from tuneplan.tracing.values import KnownValues, on_host


def image_batch(
    config: Any, values: KnownValues, images: tuple[ImageSize, ...], sequences: int, length: int
) -> dict[str, Any]:
    """What a processor gives a model beside labels: the images stand first in every row.

    Args:
        config: The model's configuration.
        values: Told the places of image tokens and the grids.
        images: Of every sequence.
        sequences: Rows.
        length: Tokens of a row, those of the images among them.

    Raises:
        NotSupported: For a family whose batches are not known, or images that do not fit.
    """
    kind = config.model_type
    pixels: tuple[int, ...]
    if not traced_with_images(kind):
        raise NotSupported(
            message("trace_images", "batches of {kind} with images are not traced", kind=kind)
        )
    if kind == FIXED_SIZE:
        side = config.vision_config.image_size
        shape = (sequences * len(images), config.vision_config.num_channels, side, side)
        pixels, tokens, extra = shape, config.mm_tokens_per_image * len(images), {}
    else:
        pixels, tokens, grid = _patches(config.vision_config, images * sequences)
        extra = {"image_grid_thw": grid}
    per_row = tokens // (sequences if extra else 1)
    if per_row >= length:
        raise NotSupported(
            message(
                "trace_images_too_large",
                "the images of a sequence take {tokens} tokens, more than its {length}",
                tokens=per_row,
                length=length,
            )
        )
    image_token = getattr(config, "image_token_id", None) or config.image_token_index
    with on_host():
        types = torch.zeros((sequences, length), dtype=torch.int64)
        types[:, :per_row] = 1
        ids = types * image_token
    batch = {
        "pixel_values": torch.empty(pixels, dtype=torch.float32, device=fake_device()),
        "input_ids": _told(values, ids),
        "token_type_ids" if kind == FIXED_SIZE else "mm_token_type_ids": _told(values, types),
    }
    with on_host():
        mask = torch.ones((sequences, length), dtype=torch.int64)
    batch["attention_mask"] = _told(values, mask)
    for name, value in extra.items():
        batch[name] = _told(values, value)
    return batch


def _patches(vision: Any, images: tuple[ImageSize, ...]) -> tuple[tuple[int, int], int, Any]:
    """Shape of the patches, tokens they become, and the grid of each image."""
    patch, merge = vision.patch_size, vision.spatial_merge_size
    channels = getattr(vision, "in_channels", None) or vision.in_chans
    with on_host():
        grid = torch.tensor(
            [[1, *(_patches_along(side, patch, merge) for side in (one.height, one.width))]
             for one in images], dtype=torch.int64,
        )  # fmt: skip
        count = int(grid.prod(-1).sum())
    width = channels * vision.temporal_patch_size * patch * patch
    return (count, width), count // merge**2, grid


def _patches_along(side: int, patch: int, merge: int) -> int:
    return max(round(side / (patch * merge)), 1) * merge


def _told(values: KnownValues, real: Any) -> Any:
    tensor = torch.empty(tuple(real.shape), dtype=real.dtype, device=fake_device())
    values.tell(tensor, real)
    return tensor


@contextlib.contextmanager
def lists_of_tensors() -> Iterator[None]:
    """Let ``torch.tensor`` read tensors inside a list one by one, as the program could."""
    real = torch.tensor

    def numbers(data: Any) -> Any:
        if isinstance(data, torch.Tensor) and not data.dim():
            return data.item()
        return [numbers(one) for one in data] if isinstance(data, (list, tuple)) else data

    def tensor(data: Any, *args: Any, **kwargs: Any) -> Any:
        return real(numbers(data) if isinstance(data, list) else data, *args, **kwargs)

    with patched(torch, "tensor", tensor):
        yield
