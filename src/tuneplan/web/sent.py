"""Texts that were sent to the page: pasted, dropped as files, or kept from before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tuneplan.frozen import dataclass

if TYPE_CHECKING:
    from tuneplan.web.form import Form
    from tuneplan.web.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class SentText:
    """One text; ``name`` is that of its file, blank where it was pasted."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What came together, the text that is asked about first."""

    texts: tuple[SentText, ...]

    @property
    def first(self) -> SentText:
        """The text that is asked about."""
        return self.texts[0]

    @property
    def pasted(self) -> str:
        """What stands in the box of the form: the text that was pasted."""
        return "" if self.first.name else self.first.text


def sent_of(form: Form, world: World, field: str) -> Sent | None:
    """What this request sends or names in ``field``; None where it does neither.

    Raises:
        InvalidRequest: What it names is not kept any more.
    """
    texts = []
    pasted = form.text("text").replace("\r\n", "\n")
    if pasted.strip():
        texts.append(SentText(name="", text=pasted))
    texts += [SentText(name=one.name, text=one.text()) for one in form.uploads.get("file", ())]
    if texts:
        return Sent(texts=tuple(texts))
    token = form.text(field)
    found: Sent | None = world.shelf.get(token, Sent, path=field) if token else None
    return found


def keeping(field: str) -> Callable[[Form, World], Form]:
    """What turns a form that sends something into one that names it in ``field``."""

    def keep(form: Form, world: World) -> Form:
        if not (form.text("text").strip() or form.uploads):
            return form
        sent = sent_of(form, world, field)
        size_bytes = sum(4 * len(one.text) for one in sent.texts) if sent else 0
        token = world.shelf.put(sent, size_bytes=size_bytes)
        return form.with_keys({"text": None, field: token}).without_uploads()

    return keep


def showing(field: str) -> Callable[[Form, World], Mapping[str, str]]:
    """What stands in the box: the text that is named in ``field``."""

    def texts(form: Form, world: World) -> Mapping[str, str]:
        sent: Sent | None = world.shelf.find(form.text(field), Sent)
        return {"text": sent.pasted} if sent is not None else {}

    return texts
