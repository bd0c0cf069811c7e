"""Files of the user that are broken on purpose: told with their place, never a crash or a hang."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from tuneplan.catalog.accelerators import load_accelerators
from tuneplan.catalog.architectures import build_architecture
from tuneplan.catalog.model_entries import read_config
from tuneplan.catalog.model_files import stored_weights
from tuneplan.catalog.models import load_models
from tuneplan.catalog.offers import load_offers
from tuneplan.errors import InvalidQuantity, InvalidRequest, UnreadableFile
from tuneplan.units import parse_bytes

CHIPS = load_accelerators()
ITSELF = "{key}: &x [*x]\n"
DEEP = "{key}: " + "[" * 3000 + "]" * 3000
# Ten anchors of ten values each stand for ten to the tenth.
BOMB = "a0: &a0 [x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 11)
)

QWEN = {
    "model_type": "qwen2",
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "vocab_size": 151_936,
}


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("text", [ITSELF, DEEP, BOMB + "{key}: *a10\n"])
def test_yaml_that_holds_itself_or_endless_values_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(UnreadableFile, match="nested too deeply"):
        load_accelerators([write(tmp_path / "chips.yaml", text.format(key="accelerators"))])
    with pytest.raises(UnreadableFile, match="nested too deeply"):
        prices(write(tmp_path / "prices.yaml", text.format(key="offers")))
    with pytest.raises(UnreadableFile, match="nested too deeply"):
        load_models([write(tmp_path / "models.yaml", text.format(key="models"))])


def prices(path: Path) -> Any:
    return load_offers(CHIPS, [path])


def test_json_that_is_nested_without_end_is_refused(tmp_path: Path) -> None:
    config = write(tmp_path / "config.json", '{"a":' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(UnreadableFile, match="too deeply"):
        read_config(config)


def test_a_configuration_may_start_with_a_byte_order_mark(tmp_path: Path) -> None:
    config = write(tmp_path / "config.json", b'\xef\xbb\xbf{"model_type": "qwen2"}')
    assert read_config(config) == {"model_type": "qwen2"}


def test_a_configuration_beyond_all_bounds_is_not_read_to_its_end(tmp_path: Path) -> None:
    config = write(tmp_path / "config.json", "")
    with config.open("r+b") as file:
        file.truncate(64 * 2**20 + 1)  # sparse: no disk is written
    with pytest.raises(UnreadableFile, match="larger than 64 MiB"):
        read_config(config)


@pytest.mark.parametrize("size", [-1, 0, "896", 10**30, 1.5])
def test_a_wrong_size_of_a_configuration_is_one_mistake(size: object) -> None:
    # num_attention_heads cannot be held against a size that is wrong itself.
    with pytest.raises(InvalidRequest) as error:
        build_architecture({**QWEN, "hidden_size": size}, name="x", source="x")
    assert [mistake.path for mistake in error.value.mistakes] == ["hidden_size"]


def test_a_missing_number_of_layers_is_one_mistake() -> None:
    config = {key: value for key, value in QWEN.items() if key != "num_hidden_layers"}
    with pytest.raises(InvalidRequest) as error:
        build_architecture(config, name="x", source="x")
    assert [mistake.path for mistake in error.value.mistakes] == ["num_hidden_layers"]


def header(content: bytes) -> bytes:
    return struct.pack("<Q", len(content)) + content


@pytest.mark.parametrize(
    "content",
    [
        header(b'{"a": {"dtype": "BF16", "shape": "xy"}}'),
        header(b'{"a": {"dtype": "BF16", "shape": [-1, 5]}}'),
        header(b'{"a": {"dtype": "BF16", "shape": [1.5]}}'),
        header(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
        struct.pack("<Q", 2**63),
    ],
)
def test_a_header_of_nonsense_is_a_damaged_file(tmp_path: Path, content: bytes) -> None:
    write(tmp_path / "model.safetensors", content)
    with pytest.raises(UnreadableFile, match="not a readable safetensors file"):
        stored_weights(tmp_path)


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "x" * 5000])
def test_an_index_names_files_of_its_own_folder_only(tmp_path: Path, name: str) -> None:
    index = tmp_path / "model.safetensors.index.json"
    write(index, json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(UnreadableFile, match="no file of this folder"):
        stored_weights(tmp_path)


HEAD = "provider,name,accelerator,num_accelerators,price,as_of\n"


def test_a_cell_beyond_all_bounds_is_told_with_its_line(tmp_path: Path) -> None:
    row = "P" * 200_000 + ",n,H100,1,5 USD/h,2026-11-01\n"
    with pytest.raises(UnreadableFile, match="not CSV") as error:
        prices(write(tmp_path / "prices.csv", HEAD + row))
    assert error.value.line == 2


def test_a_column_that_stands_twice_is_a_mistake(tmp_path: Path) -> None:
    text = HEAD.replace("name", "provider") + "P,Q,H100,1,5 USD/h,2026-11-01\n"
    with pytest.raises(InvalidRequest, match="names provider twice"):
        prices(write(tmp_path / "prices.csv", text))


def test_a_rate_of_a_currency_to_itself_is_a_mistake(tmp_path: Path) -> None:
    text = "rates:\n  - {from: USD, to: USD, rate: 2, as_of: 2026-11-01}\n"
    with pytest.raises(InvalidRequest, match="from USD to itself"):
        prices(write(tmp_path / "prices.yaml", text))


def test_a_list_where_one_word_belongs_is_quoted_as_it_was_written(tmp_path: Path) -> None:
    chips = write(tmp_path / "chips.yaml", "accelerators:\n  - {name: X, like: [H100]}\n")
    with pytest.raises(InvalidRequest) as error:
        load_accelerators([chips])
    mistake = next(one for one in error.value.mistakes if str(one.path).endswith("like"))
    assert (str(mistake.message), mistake.line) == ("['H100'] is not text", 2)


@pytest.mark.parametrize("key", ["offers", "accelerators"])
def test_characters_that_yaml_does_not_take_are_a_mistake(key: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"{key}.yaml", f"{key}: \x07\n")
    with pytest.raises((InvalidRequest, UnreadableFile), match="not valid YAML"):
        prices(path) if key == "offers" else load_accelerators([path])


TIMED = """\
accelerators:
  - name: X
    like: NVIDIA L4
    kernels:
      streaming: 20 GB/s
      cast: 20 GB/s
      strided: 20 GB/s
      host_operation_microseconds: 3
      synchronous: false
      products: {{{products}: {{m: [1, 2], n: [1], k: [1], microseconds: [1, 2]}}}}
      attention: {{dtype: {attention}, head_dims: [64], lengths: [8], heads: [2], gflop_per_s: [9]}}
"""


def test_only_what_a_chip_computes_in_can_have_been_timed(tmp_path: Path) -> None:
    good = TIMED.format(products="bfloat16", attention="bfloat16")
    assert len(load_accelerators([write(tmp_path / "good.yaml", good)]).accelerators) > 1
    path = write(tmp_path / "chips.yaml", TIMED.format(products="int3", attention="nope"))
    with pytest.raises(InvalidRequest) as told:
        load_accelerators([path])
    assert [one.message.code for one in told.value.mistakes] == ["unknown_dtype"] * 2
    assert [one.line for one in told.value.mistakes] == [10, 11]


@pytest.mark.parametrize("size", ["9e999 GiB", "1" + "0" * 400 + " GB"])
def test_a_size_beyond_every_number_is_a_mistake(size: str) -> None:
    with pytest.raises(InvalidQuantity):
        parse_bytes(size)
