"""Model folders and ``config.json`` files, whole and broken."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from tuneplan.catalog.models import load_models
from tuneplan.errors import InvalidRequest, UnknownArchitecture, UnreadableFile

CATALOG = load_models()
SMALL: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 100,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
}
SMALL_TOTAL = 2 * 100 * 64 + 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128 + 2 * 64) + 64


def write_config(folder: Path, **changes: Any) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "config.json"
    config = {key: value for key, value in {**SMALL, **changes}.items() if value is not None}
    path.write_text(json.dumps(config, indent=2))
    return path


def write_weights(path: Path, tensors: dict[str, tuple[str, list[int]]]) -> None:
    header = {
        name: {"dtype": dtype, "shape": shape, "data_offsets": [0, 0]}
        for name, (dtype, shape) in tensors.items()
    }
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)


def test_a_config_file_describes_a_model(tmp_path: Path) -> None:
    path = write_config(tmp_path / "small")
    for written in (str(path), "small", "./small/config.json"):
        resolved = CATALOG.resolve(written, base_path=tmp_path)
        assert resolved.architecture.total_parameters == SMALL_TOTAL
        assert resolved.architecture.name == "small"
        assert resolved.architecture.stored_dtype == "float32"


def test_a_folder_of_the_same_name_comes_before_the_catalogue(tmp_path: Path) -> None:
    write_config(tmp_path / "gpt2")
    assert CATALOG.resolve("gpt2", base_path=tmp_path).architecture.hidden_size == 64


def test_headers_that_agree_give_the_dtype_and_no_note(tmp_path: Path) -> None:
    write_config(tmp_path)
    write_weights(
        tmp_path / "model.safetensors",
        {
            "all": ("BF16", [SMALL_TOTAL]),
            "model.layers.0.self_attn.rotary_emb.inv_freq": ("F32", [8]),
        },
    )
    resolved = CATALOG.resolve(str(tmp_path))
    assert resolved.notes == ()
    assert resolved.architecture.stored_dtype == "bfloat16"
    assert resolved.stored is not None
    assert resolved.stored.num_parameters == SMALL_TOTAL + 8


def test_headers_that_disagree_are_reported_with_the_difference(tmp_path: Path) -> None:
    write_config(tmp_path)
    write_weights(tmp_path / "model.safetensors", {"all": ("F16", [SMALL_TOTAL + 7])})
    (note,) = CATALOG.resolve(str(tmp_path)).notes
    assert note.code == "parameter_count_differs"
    assert note.params["difference"] == "7"


def test_a_shard_that_is_absent_is_named(tmp_path: Path) -> None:
    write_config(tmp_path)
    write_weights(tmp_path / "a.safetensors", {"x": ("BF16", [4, 4])})
    (tmp_path / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}})
    )
    (note,) = CATALOG.resolve(str(tmp_path)).notes
    assert note.code == "weights_incomplete"
    assert "b.safetensors" in str(note)


def test_quantised_weights_are_not_compared(tmp_path: Path) -> None:
    write_config(tmp_path, quantization_config={"quant_method": "gptq"})
    write_weights(tmp_path / "model.safetensors", {"q": ("I32", [64, 8]), "scales": ("F16", [64])})
    codes = [note.code for note in CATALOG.resolve(str(tmp_path)).notes]
    assert codes == ["weights_packed", "config_quantized"]


@pytest.mark.parametrize("content", [b"", b"\x01\x02", struct.pack("<Q", 2**40), b"\x00" * 64])
def test_a_damaged_weights_file_is_named(tmp_path: Path, content: bytes) -> None:
    write_config(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(UnreadableFile) as raised:
        CATALOG.resolve(str(tmp_path))
    assert raised.value.path.endswith("model.safetensors")


def test_a_broken_config_is_located_by_line(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{\n  "model_type": "llama",\n  "hidden_size": 64 "vocab_size": 7\n}')
    with pytest.raises(UnreadableFile) as raised:
        CATALOG.resolve(str(path))
    assert raised.value.line == 3


@pytest.mark.parametrize("text", ["", "  \n", "[1, 2]", '"llama"'])
def test_an_empty_config_or_one_that_is_no_object_is_unreadable(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(UnreadableFile) as raised:
        CATALOG.resolve(str(path))
    assert raised.value.line == 1


def test_a_file_that_does_not_exist_is_unreadable(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile):
        CATALOG.resolve("nowhere/config.json", base_path=tmp_path)


def test_an_adapter_folder_is_called_one(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(UnreadableFile, match="adapter"):
        CATALOG.resolve("./", base_path=tmp_path)


def test_an_unknown_architecture_names_its_type_and_near_ones(tmp_path: Path) -> None:
    path = write_config(tmp_path, model_type="lama", architectures=["LamaForCausalLM"])
    with pytest.raises(UnknownArchitecture, match=r"'lama'.*LamaForCausalLM.*llama"):
        CATALOG.resolve(str(path))


def test_a_config_without_model_type_says_what_is_missing(tmp_path: Path) -> None:
    path = write_config(tmp_path, model_type=None)
    with pytest.raises(UnknownArchitecture, match="model_type"):
        CATALOG.resolve(str(path))


def test_all_wrong_fields_come_at_once_with_file_and_line(tmp_path: Path) -> None:
    path = write_config(
        tmp_path, hidden_size=-64, num_attention_heads=0, vocab_size=None, intermediate_size="big"
    )
    with pytest.raises(InvalidRequest) as raised:
        CATALOG.resolve(str(path))
    found = {mistake.path: mistake.line for mistake in raised.value.mistakes}
    assert set(found) >= {"hidden_size", "num_attention_heads", "vocab_size", "intermediate_size"}
    assert found["hidden_size"] == 3
    assert found["vocab_size"] is None
    assert {mistake.file for mistake in raised.value.mistakes} == {str(path)}


@pytest.mark.parametrize(
    "changes",
    [
        {"num_key_value_heads": 3},
        {"num_attention_heads": 6, "num_key_value_heads": 2},
        {"hidden_size": 64.5},
        {"hidden_size": True},
        {"tie_word_embeddings": "yes"},
        {"num_hidden_layers": float("inf")},
        {"num_hidden_layers": 10**12},
        {"hidden_size": 10**30},
    ],
)
def test_impossible_values_are_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = write_config(tmp_path, **changes)
    with pytest.raises(InvalidRequest):
        CATALOG.resolve(str(path))


def test_more_experts_per_token_than_experts_are_refused(tmp_path: Path) -> None:
    path = write_config(tmp_path, model_type="mixtral", num_local_experts=4, num_experts_per_tok=5)
    with pytest.raises(InvalidRequest, match="must not exceed"):
        CATALOG.resolve(str(path))


def test_a_size_left_to_the_configuration_class_is_an_assumption(tmp_path: Path) -> None:
    path = write_config(tmp_path, max_position_embeddings=None)
    (assumption,) = CATALOG.resolve(str(path)).assumptions
    assert (assumption.name, assumption.value) == ("model.max_position_embeddings", 2048)
