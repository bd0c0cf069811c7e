"""Tokens of pictures, with the arithmetic visible."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneplan.estimation.visual_tokens import (
    closest_tiles,
    merged_grid,
    rows_with_breaks,
    split_picture,
    tiled,
    unpadded_tiles,
)

SIDES = st.integers(20, 3000)
LLAVA_NEXT = ((336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008))


def test_qwen_rounds_both_sides_to_squares_of_28_pixels():
    # 480 / 28 = 17.1 and 640 / 28 = 22.9
    assert merged_grid(480, 640, unit=28, min_pixels=3136, max_pixels=12_845_056) == 17 * 23


@given(SIDES, SIDES)
def test_a_grid_stays_between_its_two_areas(height: int, width: int):
    tokens = merged_grid(height, width, unit=28, min_pixels=200_704, max_pixels=1_003_520)
    assert 200_704 / 28**2 <= tokens <= 1_003_520 / 28**2


def test_a_picture_too_long_for_its_width_is_refused():
    with pytest.raises(ValueError, match="200 times"):
        merged_grid(10, 2001, unit=28, min_pixels=3136, max_pixels=12_845_056)


def test_pixtral_ends_each_row_of_squares_with_one_more_token():
    # 512 / 16 = 32 rows of 64 squares
    assert rows_with_breaks(512, 1024, unit=16, longest_edge=1024) == 32 * (64 + 1)
    # Twice as large is scaled down to the same.
    assert rows_with_breaks(1024, 2048, unit=16, longest_edge=1024) == 32 * (64 + 1)


def test_internvl_takes_the_tiles_closest_in_shape_and_a_thumbnail():
    assert closest_tiles(900, 1350, tile=448, min_tiles=1, max_tiles=12) == (3, 2)
    numbers = {"tile": 448, "tokens_per_tile": 256, "min_tiles": 1, "max_tiles": 12}
    assert tiled(900, 1350, **numbers) == 256 * (3 * 2 + 1)
    assert tiled(300, 300, **numbers) == 256


def test_llava_next_leaves_out_what_a_resolution_pads():
    # 672x672 of 24 x 24 patches a tile: 48 x 48 patches; a picture twice as wide as high would
    # fill 24 of 48 rows, but 336x672 wastes nothing: 24 rows of 48 patches and 24 line ends.
    tokens = unpadded_tiles(336, 672, tile=336, patch=14, resolutions=LLAVA_NEXT)
    assert tokens == 24 * 24 + 24 * 48 + 24


def test_idefics_cuts_the_scaled_picture_into_tiles():
    # 1456 / 364 = 4 columns; half as high is 728 / 364 = 2 rows.
    tokens = split_picture(500, 1000, longest_edge=1456, tile=364, tokens_per_tile=169)
    assert tokens == (169 + 3) + 2 * (4 * (169 + 2) + 1)


@given(SIDES, SIDES)
def test_turning_a_picture_on_its_side_changes_only_where_rows_end(height: int, width: int):
    numbers = {"longest_edge": 1456, "tile": 364, "tokens_per_tile": 169}
    assert (
        abs(split_picture(height, width, **numbers) - split_picture(width, height, **numbers)) <= 3
    )
