"""Tokens that a model makes of one picture, from the picture's size. Pure arithmetic.

Each function is one way of preparing pictures; which model prepares them how, and with which
numbers, is not known here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def merged_grid(
    height: int,
    width: int,
    *,
    unit: int,
    min_pixels: int,
    max_pixels: int,
    longest_ratio: int = 200,
) -> int:
    """One token a square of ``unit`` pixels, after the picture is scaled between two areas.

    Args:
        height: Pixels.
        width: Pixels.
        unit: Side of the square: patch size times merge size.
        min_pixels: Smaller pictures are scaled up to this area.
        max_pixels: Larger ones are scaled down to it.
        longest_ratio: Pictures longer than this many times their width are refused.

    Raises:
        ValueError: The picture is too long for its width.

    Source: transformers 5.24 ``models/qwen2_vl/image_processing_qwen2_vl.py`` ``smart_resize``.
    """
    if max(height, width) > longest_ratio * min(height, width):
        msg = f"a picture of {height}x{width} is more than {longest_ratio} times as long as wide"
        raise ValueError(msg)
    rows, columns = round(height / unit), round(width / unit)
    area = rows * columns * unit * unit
    if area > max_pixels:
        scale = math.sqrt(height * width / max_pixels)
        rows = max(1, math.floor(height / scale / unit))
        columns = max(1, math.floor(width / scale / unit))
    elif area < min_pixels:
        scale = math.sqrt(min_pixels / (height * width))
        rows = math.ceil(height * scale / unit)
        columns = math.ceil(width * scale / unit)
    return rows * columns


def rows_with_breaks(height: int, width: int, *, unit: int, longest_edge: int) -> int:
    """One token a square of ``unit`` pixels and one at the end of each row of squares.

    Source: transformers 5.24 ``models/pixtral/image_processing_pixtral.py``
    ``get_resize_output_image_size``, ``processing_pixtral.py`` ``replace_image_token``.
    """
    ratio = max(height, width) / longest_edge
    if ratio > 1:
        height, width = math.floor(height / ratio), math.floor(width / ratio)
    rows, columns = (height - 1) // unit + 1, (width - 1) // unit + 1
    return rows * (columns + 1)


def closest_tiles(
    height: int, width: int, *, tile: int, min_tiles: int, max_tiles: int
) -> tuple[int, int]:
    """Columns and rows of square tiles whose shape is closest to the picture's.

    Of two equally close grids the larger one is taken while the picture covers more than half of
    it. Source: transformers 5.24 ``models/got_ocr2/image_processing_got_ocr2.py``
    ``get_optimal_tiled_canvas`` (InternVL's ``find_closest_aspect_ratio``).
    """
    grids = [
        (columns, rows)
        for columns in range(1, max_tiles + 1)
        for rows in range(1, max_tiles + 1)
        if min_tiles <= columns * rows <= max_tiles
    ]
    best, best_difference = (1, 1), math.inf
    for columns, rows in sorted(grids, key=lambda grid: grid[0] * grid[1]):
        difference = abs(width / height - columns / rows)
        larger = height * width > 0.5 * tile * tile * columns * rows
        if difference < best_difference or (difference == best_difference and larger):
            best, best_difference = (columns, rows), difference
    return best


def tiled(
    height: int, width: int, *, tile: int, tokens_per_tile: int, min_tiles: int, max_tiles: int
) -> int:
    """The same number of tokens for each tile, and for the whole picture where there are several.

    Source: as ``closest_tiles``; ``get_number_of_image_patches`` there.
    """
    columns, rows = closest_tiles(
        height, width, tile=tile, min_tiles=min_tiles, max_tiles=max_tiles
    )
    tiles = columns * rows
    return tokens_per_tile * (tiles + 1 if tiles > 1 else 1)


def unpadded_tiles(
    height: int, width: int, *, tile: int, patch: int, resolutions: Sequence[tuple[int, int]]
) -> int:
    """The whole picture in one tile, and its patches in the best of some resolutions.

    What the resolution pads is left out, and each row of patches ends with one more token.

    Args:
        height: Pixels.
        width: Pixels.
        tile: Side of a tile in pixels.
        patch: Side of a patch in pixels.
        resolutions: (height, width) to choose from: the one that keeps most of the picture, and of
            these the one that wastes least.

    Source: transformers 5.24 ``models/llava_next/processing_llava_next.py``
    ``_get_number_of_features``, ``image_processing_utils.py`` ``select_best_resolution``.
    """

    def kept(size: tuple[int, int]) -> tuple[int, int]:
        scale = min(size[1] / width, size[0] / height)
        pixels = min(int(width * scale) * int(height * scale), width * height)
        return pixels, pixels - size[0] * size[1]

    best = max(resolutions, key=kept)
    side = tile // patch
    rows, columns = side * (best[0] // tile), side * (best[1] // tile)
    full_rows, full_columns = rows, columns
    if width / height > columns / rows:
        rows -= (full_rows - int(round(height * (full_columns / width), 7))) // 2 * 2
    else:
        columns -= (full_columns - int(round(width * (full_rows / height), 7))) // 2 * 2
    return side * side + rows * columns + rows


def split_picture(
    height: int, width: int, *, longest_edge: int, tile: int, tokens_per_tile: int
) -> int:
    """The picture scaled to its longest edge and cut into tiles, and the whole beside them.

    With the marks: two beside each tile, one at the end of each row of tiles, three around the
    whole picture.
    Source: transformers 5.24 ``models/idefics3/image_processing_idefics3.py``
    ``resize_for_vision_encoder``, ``split_images``, ``processing_idefics3.py``
    ``_get_num_multimodal_tokens``.
    """
    height, width = _scaled(height, width, longest_edge)
    longer = math.ceil(max(height, width) / tile)
    # The longer side is stretched to whole tiles first, and the shorter one with it.
    if width >= height:
        rows, columns = math.ceil(int(longer * tile / (width / height)) / tile), longer
    else:
        rows, columns = longer, math.ceil(int(longer * tile * (width / height)) / tile)
    whole = tokens_per_tile + 3
    if rows * columns == 1:
        return whole
    return whole + rows * (columns * (tokens_per_tile + 2) + 1)


def _scaled(height: int, width: int, longest_edge: int) -> tuple[int, int]:
    """The longer side to ``longest_edge``, the shorter one in proportion and even."""
    ratio = width / height
    if width >= height:
        shorter = int(longest_edge / ratio)
        return shorter + shorter % 2 or 1, longest_edge
    shorter = int(longest_edge * ratio)
    return longest_edge, shorter + shorter % 2 or 1
