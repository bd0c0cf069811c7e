"""Random pictures for a batch of rows, in the form that each family's processor gives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tuneplan.tracing.images import FIXED_SIZE, ImageSize

Columns = Callable[[dict[str, Any]], dict[str, Any]]
_GEMMA_3_TOKENS = 256  # of an image, where its configuration is silent


def image_columns(config: Any, images: tuple[ImageSize, ...]) -> Columns:
    """What puts pictures at the head of every row of a batch; nothing without pictures.

    Qwen's processors merge ``spatial_merge_size`` patches a side into a token, of sides rounded to
    whole tokens; Gemma 3's makes ``mm_tokens_per_image`` of every picture. Source: transformers 5,
    ``models/qwen2_vl/image_processing_qwen2_vl.py``, ``models/gemma3/processing_gemma3.py``.
    """
    if not images:
        return lambda batch: batch
    if config.model_type == FIXED_SIZE:
        return lambda batch: _fixed(batch, config, len(images))
    return lambda batch: _patches(batch, config, images)


def _fixed(batch: dict[str, Any], config: Any, count: int) -> dict[str, Any]:
    import torch

    rows, side = len(batch["input_ids"]), config.vision_config.image_size
    tokens = count * int(getattr(config, "mm_tokens_per_image", 0) or _GEMMA_3_TOKENS)
    pixels = torch.randn(rows * count, config.vision_config.num_channels, side, side)
    types = _placed(batch, config, tokens)
    return {**batch, "pixel_values": pixels, "token_type_ids": types}


def _patches(batch: dict[str, Any], config: Any, images: tuple[ImageSize, ...]) -> dict[str, Any]:
    import torch

    vision = config.vision_config
    patch, merge = vision.patch_size, vision.spatial_merge_size
    grid = [
        [1, *(max(round(side / (patch * merge)), 1) * merge for side in (one.height, one.width))]
        for one in images
    ]
    per_row = sum(height * width for _, height, width in grid)
    channels = getattr(vision, "in_channels", None) or vision.in_chans
    rows, width = len(batch["input_ids"]), channels * vision.temporal_patch_size * patch * patch
    types = _placed(batch, config, per_row // merge**2)
    return {
        **batch,
        "pixel_values": torch.randn(rows * per_row, width),
        "image_grid_thw": torch.tensor(grid * rows),
        "mm_token_type_ids": types,
    }


def _placed(batch: dict[str, Any], config: Any, tokens: int) -> Any:
    """The ids of a batch get the token of pictures at their head; where they stand."""
    import torch

    ids = batch["input_ids"]
    wanted = getattr(config, "image_token_id", None) or config.image_token_index
    ids[ids == wanted] = 0
    ids[:, :tokens] = wanted
    batch["labels"][:, :tokens] = -100
    types = torch.zeros_like(ids)
    types[:, :tokens] = 1
    return types
