"""What becomes of every key, and what is noted on the way."""

from __future__ import annotations

from typing import Any

import pytest

from tuneplan.errors import InvalidRequest
from tuneplan.formats import typed_values as typed
from tuneplan.formats.carrying import Carrier
from tuneplan.formats.foreign import Fate, ForeignDocument
from tuneplan.language import message

_WHY = message("why", "for a reason")


def carrier(tree: dict[str, Any], **lines: int) -> Carrier:
    return Carrier(ForeignDocument(tree=tree, lines=lines, file="train.yaml", form="yaml"))


def fates(found: Any) -> dict[str, Fate]:
    return {key.path: key.fate for key in found.keys}


def test_a_key_that_nobody_asks_about_is_not_understood_and_names_the_nearest() -> None:
    found = carrier({"epochz": 3}).finish(name="x", version=None, known=("epochs", "seed"))
    (key,) = found.keys
    assert key.fate is Fate.NOT_UNDERSTOOD
    assert "epochs" in str(key.why)


def test_a_blank_key_says_nothing() -> None:
    found = carrier({"adapter": None, "fsdp_config": {}}).finish(name="x", version=None)
    assert set(fates(found).values()) == {Fate.IRRELEVANT}


def test_mistakes_are_raised_together_with_their_lines() -> None:
    reader = carrier({"steps": "many", "bf16": "perhaps"}, steps=4, bf16=7)
    assert typed.whole(reader, "steps") is None
    assert typed.flag(reader, "bf16") is None
    with pytest.raises(InvalidRequest) as raised:
        reader.finish(name="x", version=None)
    assert [(m.path, m.line, m.file) for m in raised.value.mistakes] == [
        ("steps", 4, "train.yaml"),
        ("bf16", 7, "train.yaml"),
    ]


def test_a_refusal_does_not_stop_the_reading() -> None:
    reader = carrier({"teacher": "big", "model": "small"}, teacher=1)
    reader.refuse("teacher", _WHY)
    reader.carry("model", ("model", "small"))
    found = reader.finish(name="x", version=None)
    assert [mistake.path for mistake in found.refusals] == ["teacher"]
    assert fates(found) == {"teacher": Fate.NOT_CARRIED, "model": Fate.CARRIED}


@pytest.mark.parametrize(
    ("written", "read"),
    [("True", True), ("no", False), (1, True), (False, False), (None, None)],
)
def test_flags_are_read_as_leniently_as_the_frameworks_do(written: Any, read: Any) -> None:
    assert typed.flag(carrier({"bf16": written}), "bf16") is read


def test_numbers_may_be_written_as_text() -> None:
    reader = carrier({"lr": "2e-4", "steps": "10"})
    assert typed.number(reader, "lr") == 2e-4
    assert typed.whole(reader, "steps") == 10


def test_an_unknown_word_comes_with_the_nearest_ones() -> None:
    reader = carrier({"rl": "dpoo"})
    assert typed.word(reader, "rl", ("dpo", "kto")) is None
    with pytest.raises(InvalidRequest) as raised:
        reader.finish(name="x", version=None)
    assert raised.value.mistakes[0].near == ("dpo",)


def test_names_come_as_a_list_or_as_one_text() -> None:
    reader = carrier({"a": ["q_proj", "v_proj"], "b": "q_proj, v_proj", "c": "q_proj v_proj"})
    assert {typed.names(reader, path) for path in "abc"} == {("q_proj", "v_proj")}


def test_two_places_that_contradict_each_other_are_both_named() -> None:
    reader = carrier({"bf16": True}, bf16=3)
    other = ForeignDocument(
        tree={"fp16": {"enabled": True}}, lines={"fp16.enabled": 7}, file="ds.json", form="json"
    )
    reader.join(other)
    reader.agree("bf16", "training.precision", "bf16")
    reader.agree("fp16.enabled", "training.precision", "fp16", of=other)
    with pytest.raises(InvalidRequest, match=r"ds.json \(line 7\).*bf16.*train.yaml \(line 3\)"):
        reader.finish(name="x", version=None)
