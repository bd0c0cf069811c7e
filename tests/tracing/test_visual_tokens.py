"""Tokens of pictures against the processors of transformers, on sizes drawn at random."""

from __future__ import annotations

import random

import numpy as np
import pytest
from PIL import Image
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import get_optimal_tiled_canvas
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.llava_next.processing_llava_next import LlavaNextProcessor
from transformers.models.pixtral.image_processing_pil_pixtral import get_resize_output_image_size
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

from tuneplan.estimation.visual_tokens import closest_tiles
from tuneplan.tokens.picture_rules import PictureRule, picture_rules

RULES = {rule.id: rule for rule in picture_rules()}


def sizes(count: int, largest: float = 3.5) -> list[tuple[int, int]]:
    draw = random.Random(11)  # noqa: S311 - no secret
    sides = [int(10 ** draw.uniform(1, largest)) for _ in range(2 * count)]
    return list(zip(sides[::2], sides[1::2], strict=True))


@pytest.mark.parametrize("rule", [RULES["qwen2-vl"], RULES["qwen3-vl"]], ids=lambda rule: rule.id)
def test_qwen(rule: PictureRule):
    low, high = rule.numbers["min_pixels"], rule.numbers["max_pixels"]
    unit = rule.numbers["unit"]
    for height, width in sizes(300):
        if max(height, width) <= 200 * min(height, width):
            rows, columns = smart_resize(height, width, unit, low, high)
            tokens = (rows // unit) * (columns // unit)
            assert rule.tokens(height, width) == tokens + rule.marks, (height, width)


@pytest.mark.parametrize("rule", [RULES["pixtral"], RULES["mistral3"]], ids=lambda rule: rule.id)
def test_pixtral(rule: PictureRule):
    unit, edge = rule.numbers["unit"], rule.numbers["longest_edge"]
    for height, width in sizes(300):
        picture = np.broadcast_to(np.zeros(3), (height, width, 3))
        rows, columns = get_resize_output_image_size(picture, (edge, edge), (unit, unit))
        assert rule.tokens(height, width) == rows // unit * (columns // unit + 1), (height, width)


def test_internvl():
    rule = RULES["internvl"]
    for height, width in sizes(300):
        grid = get_optimal_tiled_canvas((height, width), (448, 448), 1, 12)
        assert closest_tiles(height, width, tile=448, min_tiles=1, max_tiles=12) == grid
        tiles = grid[0] * grid[1]
        assert rule.tokens(height, width) == 256 * (tiles + (tiles > 1)) + 2, (height, width)


class _Pinpoints:
    image_grid_pinpoints = RULES["llava-next"].numbers["resolutions"]


class _LlavaNext:
    """The two methods that count, without a tokenizer."""

    image_processor = _Pinpoints()
    patch_size = 14
    num_additional_image_tokens = 1
    count = LlavaNextProcessor._get_number_of_features
    _get_unpadded_features = LlavaNextProcessor._get_unpadded_features


def test_llava_next():
    for height, width in sizes(300):
        expected = _LlavaNext().count(height, width, 336, 336) - 1  # without the class token
        assert RULES["llava-next"].tokens(height, width) == expected, (height, width)


def test_idefics3():
    rule, processor = RULES["idefics3"], Idefics3ImageProcessorPil()
    for height, width in sizes(25, 3.0):
        prepared = processor(Image.new("RGB", (width, height)), return_row_col_info=True)
        rows, columns = prepared["rows"][0][0], prepared["cols"][0][0]
        expected = 169 + 3 + rows * (columns * (169 + 2) + 1)
        assert rule.tokens(height, width) == expected, (height, width)
