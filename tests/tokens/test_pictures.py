"""Pictures of rows: their size, and the tokens that a model makes of them."""

import base64
import io
import json
from dataclasses import replace

import pytest
from PIL import Image

from tuneplan.tokens.counting import RowCounter
from tuneplan.tokens.encoders import Rendered
from tuneplan.tokens.picture_rules import picture_rules, rule_of_model
from tuneplan.tokens.pictures import Pictures, size_of
from tuneplan.tokens.rows import Row
from tuneplan.tokens.shapes import Shape
from tuneplan.tokens.tokenizers import find_tokenizer
from tuneplan.tokens.totals import Totals
from tuneplan.tokens.turns import RowProblem


def drawn(width=640, height=480, kind="PNG", **options):
    file = io.BytesIO()
    Image.new("RGB", (width, height)).save(file, kind, **options)
    return file.getvalue()


def row(**columns):
    turns = [
        {"role": "user", "content": columns.pop("ask", "<image>Who?")},
        {"role": "assistant", "content": "Me."},
    ]
    return Row(line=1, value={"messages": turns, **columns})


def counter(model="Qwen/Qwen2-VL-7B-Instruct", usual_size=None, **tokenizer):
    rule = rule_of_model(model)
    assert rule is not None
    found = replace(find_tokenizer(model=model), **tokenizer)
    return RowCounter(found, Pictures(rule=rule, usual_size=usual_size))


def counted(one, rows, folder):
    totals = Totals()
    one.count(rows, str(folder / "data.jsonl"), Shape.MESSAGES, totals)
    return totals


# --- sizes ---


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP", "BMP"])
def test_the_size_is_read_from_the_head_of_the_file(tmp_path, kind):
    (tmp_path / "a.img").write_bytes(drawn(320, 200, kind))
    assert size_of("a.img", tmp_path) == (200, 320)
    assert size_of(f"file://{tmp_path / 'a.img'}", tmp_path) == (200, 320)


def test_bytes_addresses_and_objects_have_a_size_too(tmp_path):
    raw = drawn()
    address = "data:image/png;base64," + base64.b64encode(raw).decode()
    for picture in (raw, address, {"bytes": raw, "path": None}, {"url": address}):
        assert size_of(picture, tmp_path) == (480, 640)
    assert size_of({"height": 7, "width": 9, "path": "absent.png"}, tmp_path) == (7, 9)


def test_a_picture_on_its_side_is_measured_upright(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    assert size_of(drawn(640, 480, "JPEG", exif=exif), tmp_path) == (640, 480)


def test_what_is_not_at_hand_has_no_size(tmp_path):
    for picture in ("absent.png", "https://example.org/a.png", None, 3, "a\0b", "x" * 5000):
        assert size_of(picture, tmp_path) is None


def test_a_file_that_is_no_picture_is_a_problem_of_its_row(tmp_path):
    (tmp_path / "a.png").write_text("no picture")
    with pytest.raises(RowProblem, match=r"a\.png is no picture"):
        size_of("a.png", tmp_path)
    with pytest.raises(RowProblem, match="is no picture"):
        size_of("data:image/png;base64,!!", tmp_path)


# --- rules ---


@pytest.mark.parametrize(
    ("model", "rule"),
    [
        ("Qwen/Qwen2-VL-7B-Instruct", "qwen2-vl"),
        ("Qwen/Qwen2.5-VL-3B-Instruct", "qwen2-vl"),
        ("Qwen/Qwen3-VL-8B-Instruct", "qwen3-vl"),
        ("llava-hf/llava-1.5-7b-hf", "llava"),
        ("llava-hf/llava-v1.6-mistral-7b-hf", "llava-next"),
        ("OpenGVLab/InternVL2_5-8B", "internvl"),
        ("google/gemma-3-4b-it", "gemma3"),
        ("mistralai/Pixtral-12B-2409", "pixtral"),
        ("mistralai/Mistral-Small-3.1-24B-Instruct-2503", "mistral3"),
        ("HuggingFaceTB/SmolVLM-256M-Instruct", "smolvlm-small"),
        ("HuggingFaceTB/SmolVLM2-2.2B-Instruct", "smolvlm"),
        ("google/paligemma-3b-pt-448", "paligemma-448"),
        ("Qwen/Qwen2.5-7B", None),
        ("google/gemma-3-1b-it", None),
        ("somebody/new-vlm", None),
    ],
)
def test_models_are_known_by_name(model, rule):
    found = rule_of_model(model)
    assert (found.id if found else None) == rule


def test_the_models_own_configuration_wins(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "qwen2_5_vl"}')
    (tmp_path / "preprocessor_config.json").write_text('{"min_pixels": 3136, "max_pixels": 200704}')
    rule = rule_of_model(str(tmp_path))
    # 200704 / 28^2 = 256 squares at most
    assert rule.tokens(2000, 2000) == 256 + 2
    assert "preprocessor_config.json of the model" in rule.source


def test_a_llava_configuration_with_pixtrals_encoder_is_pixtral(tmp_path):
    config = {"model_type": "llava", "vision_config": {"model_type": "pixtral"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert rule_of_model(str(tmp_path)).id == "pixtral"


@pytest.mark.parametrize("rule", picture_rules(), ids=lambda rule: rule.id)
def test_every_rule_counts_and_writes_what_it_needs(rule):
    assert rule.tokens(480, 640) >= rule.written_tokens
    assert rule.written.count(rule.needs) == 1
    assert rule.source


# --- rows ---


def test_a_placeholder_in_the_text_and_the_rest_beside_it(tmp_path):
    (tmp_path / "a.png").write_bytes(drawn())
    (rendered,) = counter().sequences(row(images=["a.png"]), Shape.MESSAGES, tmp_path)
    assert "<|vision_start|><|image_pad|><|vision_end|>Who?" in rendered.text
    # 17 x 23 squares of 28 pixels, and two marks; three tokens stand in the text.
    assert rendered.image_tokens == 17 * 23 + 2
    assert rendered.more_tokens == 17 * 23 - 1


def test_the_tokens_of_pictures_are_in_the_lengths(tmp_path):
    (tmp_path / "a.png").write_bytes(drawn())
    plain = counted(counter(), [row(ask="Who?")], tmp_path)
    seen = counted(counter(), [row(images=["a.png"])], tmp_path)
    assert max(seen.lengths) == max(plain.lengths) + 17 * 23 + 2
    assert (seen.image_tokens, seen.num_images, seen.unsized_images) == (17 * 23 + 2, 1, 0)
    assert seen.trained_tokens == plain.trained_tokens


def test_a_picture_that_is_not_at_hand_is_counted_as_such_or_taken_to_be_of_the_usual_size(
    tmp_path,
):
    rows = [row(images=["absent.png"])]
    assert counted(counter(), rows, tmp_path).unsized_images == 1
    usual = counted(counter(usual_size=(480, 640)), rows, tmp_path)
    assert (usual.unsized_images, usual.image_tokens) == (0, 17 * 23 + 2)


def test_a_file_that_is_no_picture_makes_a_bad_row(tmp_path):
    (tmp_path / "a.png").write_text("no")
    totals = counted(counter(), [row(images=["a.png"])], tmp_path)
    assert totals.bad_by_code == {"no_picture": 1}


def test_a_tokenizer_without_the_placeholder_counts_the_same_tokens(tmp_path):
    rule = rule_of_model("OpenGVLab/InternVL2_5-8B")
    one = RowCounter(
        find_tokenizer(model="Qwen/Qwen2.5-7B"), Pictures(rule=rule, usual_size=(300, 300))
    )
    (rendered,) = one.sequences(row(images=["a.png"]), Shape.MESSAGES, tmp_path)
    assert "IMG_CONTEXT" not in rendered.text
    assert rendered.more_tokens == rendered.image_tokens == 256 + 2


PARTS = """{% for m in messages %}<|im_start|>{{ m.role }}
{% for part in m.content %}{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>
{%- else %}{{ part.text }}{% endif %}{% endfor %}<|im_end|>
{% endfor %}"""
TEXT = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


@pytest.mark.parametrize("template", [PARTS, TEXT])
def test_a_template_that_walks_parts_gets_parts(tmp_path, template):
    one = counter(usual_size=(480, 640), chat_template=template)
    (rendered,) = one.sequences(row(images=["a.png"]), Shape.MESSAGES, tmp_path)
    assert rendered.text.startswith(
        "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>Who?<|im_end|>"
    )
    (start, end) = rendered.spans[0]
    assert rendered.text[start:end] == "Me.<|im_end|>"


def test_a_template_that_leaves_pictures_out_is_told(tmp_path):
    template = "{% if 'image' %}{% endif %}{% for m in messages %}{{ m.role }}{% endfor %}"
    one = counter(usual_size=(480, 640), chat_template=template)
    with pytest.raises(RowProblem, match="leaves pictures out"):
        one.sequences(row(images=["a.png"]), Shape.MESSAGES, tmp_path)


def test_without_a_rule_pictures_are_known_to_be_missing(tmp_path):
    one = RowCounter(find_tokenizer(model="Qwen/Qwen2.5-7B"))
    (rendered,) = one.sequences(row(images=["a.png"]), Shape.MESSAGES, tmp_path)
    assert rendered == Rendered(rendered.text, rendered.spans, unsized_pictures=1)
