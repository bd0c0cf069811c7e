"""A configuration that lets a model bring code of its own."""

from __future__ import annotations

from tuneplan.formats import typed_values as typed
from tuneplan.formats.carrying import Carrier
from tuneplan.language import message


def say_remote_code(carrier: Carrier, path: str) -> None:
    """Close ``trust_remote_code``, with a notice where it is on: such code is never run here."""
    if typed.flag(carrier, path):
        text = message(
            "remote_code",
            "{key} lets the model run code that comes with its weights; here it is not fetched and "
            "not run, and the model is described as published",
            key=path,
        )
        carrier.notice(path, text)
    carrier.irrelevant((path,), message("key_remote_code", "code of the model is not run here"))
