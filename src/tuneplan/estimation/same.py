"""What is remembered by who it is, not by what it says."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Same(Generic[T]):
    """A value that nobody changes, as the key of a cache: equal to itself alone.

    Facts with mappings or long tuples in them cannot be hashed, or not quickly; what a caller asks
    about several times is the same object each time.
    """

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)
