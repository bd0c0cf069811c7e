"""Classes made in one go are those of the standard library: fields, equality, hashes, copies."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import FrozenInstanceError, field
from typing import Any

import pytest

from tuneplan.frozen import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """A class with every kind of field."""

    size_bytes: int
    name: str = "x"
    parts: tuple[int, ...] = ()
    notes: dict[str, int] = field(default_factory=dict, hash=False)
    places: list[int] = field(default_factory=list, compare=False, repr=False)
    checked: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "checked", True)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Theirs:
    """The same by the standard library."""

    size_bytes: int
    name: str = "x"
    parts: tuple[int, ...] = ()
    notes: dict[str, int] = field(default_factory=dict, hash=False)
    places: list[int] = field(default_factory=list, compare=False, repr=False)
    checked: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "checked", True)


GIVEN: list[dict[str, Any]] = [
    {"size_bytes": 3},
    {"size_bytes": 3, "name": "y", "parts": (1, 2)},
    {"size_bytes": 3, "notes": {"a": 1}, "places": [1]},
]


@pytest.mark.parametrize("given", GIVEN)
def test_a_class_made_in_one_go_is_the_one_of_the_standard_library(given: dict[str, Any]) -> None:
    ours, theirs = Ours(**given), Theirs(**given)
    assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
    assert hash(ours) == hash(theirs)
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    assert ours == Ours(**given)
    assert ours != dataclasses.replace(ours, size_bytes=4)
    assert ours != theirs
    again = pickle.loads(pickle.dumps(ours))  # noqa: S301 - our own bytes
    assert copy.deepcopy(ours) == again == ours
    assert not hasattr(ours, "__dict__")


def test_what_is_not_compared_or_hashed_does_not_count() -> None:
    assert Ours(size_bytes=1, places=[1]) == Ours(size_bytes=1, places=[2])
    assert hash(Ours(size_bytes=1, notes={"a": 1})) == hash(Ours(size_bytes=1))
    assert Ours(size_bytes=1, notes={"a": 1}) != Ours(size_bytes=1)


def test_defaults_that_are_made_are_made_anew() -> None:
    assert Ours(size_bytes=1).notes is not Ours(size_bytes=1).notes


def test_a_frozen_value_cannot_be_changed() -> None:
    value = Ours(size_bytes=1)
    with pytest.raises(FrozenInstanceError, match="size_bytes"):
        value.size_bytes = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="size_bytes"):
        del value.size_bytes  # type: ignore[misc]


@pytest.mark.parametrize("given", [{}, {"size_bytes": 1, "other": 2}])
def test_what_is_missing_or_unknown_is_a_type_error(given: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        Ours(**given)


def test_only_keywords_are_taken_and_their_types_are_told() -> None:
    kinds = {p.kind for p in list(inspect.signature(Ours).parameters.values())}
    assert kinds == {inspect.Parameter.KEYWORD_ONLY}
    assert "checked" not in inspect.signature(Ours).parameters
    assert set(Ours.__init__.__annotations__) >= {"size_bytes", "name", "parts"}


def test_fields_by_place_come_before_those_by_name() -> None:
    @dataclass(frozen=True, slots=True)
    class Pair:
        first: int
        second: int = 2

    assert (Pair(1).first, Pair(1, 3).second) == (1, 3)
