"""Which linears get an adapter: names, patterns and the words for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tuneplan.formats import typed_values as typed
from tuneplan.formats.carrying import Carrier
from tuneplan.formats.foreign import ForeignDocument
from tuneplan.formats.patterns import Matched, is_pattern, match_pattern
from tuneplan.language import message

_EVERY: Final = ("all-linear", "all_linear", "all", "ALL")
_KEY: Final = "adapter.target_modules"


def carry_targets(
    carrier: Carrier,
    path: str,
    *,
    every_linear: bool = False,
    of: ForeignDocument | None = None,
) -> None:
    """Close a key of target modules: a list, a text with commas, a pattern, or "all".

    Args:
        carrier: The job so far.
        path: The key.
        every_linear: Whether another key adds all linears already.
        of: The document, where it is not the first.
    """
    value = carrier.value(path, of=of)
    if isinstance(value, str) and is_pattern(value):
        names = _of_pattern(carrier, path, value, of)
    else:
        names = typed.names(carrier, path, of=of) or ()
    if not names:
        return
    if every_linear or set(names) & set(_EVERY):
        carrier.carry(path, (_KEY, "all-linear"), of=of)
        extra = [name for name in names if name.endswith(("lm_head", "embed_tokens"))]
        if extra:
            text = message(
                "targets_beside_all",
                "{names}: adapters there are not counted beside all-linear",
                names=", ".join(extra),
            )
            carrier.notice(path, text)
        return
    carrier.carry(path, (_KEY, list(_flat(names))), of=of)


def _flat(names: Sequence[str]) -> tuple[str, ...]:
    """Names with the patterns among them replaced by what they match."""
    found: list[str] = []
    for name in names:
        matched = match_pattern(f"(?:.*\\.)?{name}") if is_pattern(name) else None
        found.extend(matched.leaves if matched is not None and matched.leaves else (name,))
    return tuple(dict.fromkeys(found))


def _of_pattern(
    carrier: Carrier, path: str, pattern: str, of: ForeignDocument | None
) -> tuple[str, ...]:
    matched = match_pattern(pattern)
    if matched is None or not matched.leaves:
        text = message(
            "pattern_unknown",
            "the pattern matches no linear that is known here; name the modules one by one",
        )
        carrier.not_carried((path,), text, of=of)
        return ()
    _say_pattern(carrier, path, matched)
    return matched.leaves


def _say_pattern(carrier: Carrier, path: str, matched: Matched) -> None:
    names = ", ".join(matched.leaves)
    if matched.some_layers:
        text = message(
            "pattern_some_layers",
            "{key} is a pattern that leaves out layers; it is taken as {names} in every layer that "
            "has them",
            key=path,
            names=names,
        )
    else:
        text = message(
            "pattern_as_names", "{key} is a pattern; it is taken as {names}", key=path, names=names
        )
    carrier.notice(path, text)
