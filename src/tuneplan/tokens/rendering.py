"""Samples to the text that the model sees, with the learned parts marked.

Conversations go through the model's own chat template where a ``tokenizer_config.json`` gives one,
else through the family's documented format (``data/families.toml``), else through ChatML; the last
two are assumptions of the profile. Text without roles is joined as trl joins it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Protocol

from tuneplan.frozen import dataclass
from tuneplan.language import message, sentence
from tuneplan.spec.answer import Assumption
from tuneplan.tokens.encoders import Rendered
from tuneplan.tokens.families import ChatFormat, load_families
from tuneplan.tokens.multimodal import PICTURE
from tuneplan.tokens.pictures import Pictures
from tuneplan.tokens.shapes import Chat, Plain, Sample
from tuneplan.tokens.templates import TemplateRenderer
from tuneplan.tokens.tokenizers import Tokenizer
from tuneplan.tokens.turns import RowProblem

FALLBACK: Final = "chatml"
_HERE: Final = Path()


class ChatRenderer(Protocol):
    """What turns a conversation into text."""

    @property
    def takes_parts(self) -> bool:
        """Whether it walks the parts of a message, pictures among them."""

    def render(self, chat: Chat) -> Rendered:
        """The text and the learned spans; raises RowProblem where the template refuses the row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Renderer:
    """Renders every kind of sample for one tokenizer.

    Attributes:
        assumptions: What was assumed about conversations.
        pictures: What the model makes of pictures; None leaves them out of the text.
        placed: The tokenizer knows the model's placeholder, so pictures have their place.
    """

    chat: ChatRenderer
    bos: str
    eos: str
    assumptions: tuple[Assumption, ...]
    pictures: Pictures | None = None
    placed: bool = False

    def render(self, sample: Sample, folder: Path = _HERE) -> Rendered:
        """The text and the learned spans of one sequence.

        Raises:
            RowProblem: The template refuses the row, or a picture of it is none.
        """
        if isinstance(sample, Plain):
            return self._plain(sample)
        rendered = (
            self._illustrated(sample, folder) if sample.pictures else self.chat.render(sample)
        )
        return _to_end(rendered) if sample.to_end else rendered

    def _illustrated(self, chat: Chat, folder: Path) -> Rendered:
        """A conversation with pictures: a placeholder in the text, its other tokens beside it."""
        rule = self.pictures.rule if self.pictures else None
        written = rule.written if rule and self.placed else ""
        if not (written and self.chat.takes_parts):
            # A template that walks parts writes the placeholder itself; elsewhere it is put there.
            chat = replace(
                chat,
                messages=tuple(
                    {**turn, "content": turn["content"].replace(PICTURE, written)}
                    for turn in chat.messages
                ),
            )
        rendered = self.chat.render(chat)
        if self.pictures is None:
            return replace(rendered, unsized_pictures=len(chat.pictures))
        if written and rendered.text.count(self.pictures.rule.needs) != len(chat.pictures):
            raise RowProblem(
                message(
                    "pictures_dropped",
                    "the chat template leaves pictures out: {count} in the row, {kept} in its text",
                    count=len(chat.pictures),
                    kept=rendered.text.count(self.pictures.rule.needs),
                )
            )
        counted = [self.pictures.tokens(one, folder) for one in chat.pictures]
        known = [tokens for tokens, _ in counted if tokens is not None]
        in_text = self.pictures.rule.written_tokens if written else 0
        return replace(
            rendered,
            image_tokens=sum(known),
            more_tokens=sum(known) - in_text * len(known),
            unsized_pictures=len(counted) - len(known),
            assumed_pictures=sum(assumed for _, assumed in counted),
        )

    def _plain(self, sample: Plain) -> Rendered:
        """Prompt and completion joined, one end token added (trl 1.10 ``sft_trainer.py``)."""
        end = "" if self.eos and sample.completion.endswith(self.eos) else self.eos
        start = self.bos + sample.prompt
        text = start + sample.completion + end
        return Rendered(text, ((len(start) if sample.prompt else 0, len(text)),))


def _to_end(rendered: Rendered) -> Rendered:
    """With all that follows the last learned part learned too."""
    if not rendered.spans:
        return rendered
    start, _ = rendered.spans[-1]
    return replace(rendered, spans=(*rendered.spans[:-1], (start, len(rendered.text))))


def renderer_for(tokenizer: Tokenizer, pictures: Pictures | None = None) -> Renderer:
    """The renderer of a tokenizer, with what had to be assumed."""
    chat, assumptions = _chat_renderer(tokenizer)
    return Renderer(
        chat=chat,
        bos=tokenizer.bos,
        eos=tokenizer.eos,
        assumptions=assumptions,
        pictures=pictures,
        placed=pictures is not None and tokenizer.encoder.has_token(pictures.rule.needs),
    )


def _chat_renderer(tokenizer: Tokenizer) -> tuple[ChatRenderer, tuple[Assumption, ...]]:
    families = load_families()
    stops = tuple({one.stop for one in families.chats.values()} | {tokenizer.eos} - {""})
    if tokenizer.chat_template is not None:
        template = TemplateRenderer(tokenizer.chat_template, tokenizer.specials, stops)
        return template, () if template.marks_generation else (_located(),)
    family = tokenizer.family
    if family is not None and family.chat:
        chat = families.chats[family.chat]
        reason = message(
            "family_chat_format",
            "no chat template file was given; this is the format that {family} models are "
            "trained with",
            family=family.id,
        )
    else:
        fits = (one for one in families.chats.values() if tokenizer.encoder.has_token(one.needs))
        chat = next(fits, families.chats[FALLBACK])
        reason = message(
            "fallback_chat_format",
            "the model's chat template is not known; a few tokens a message may differ",
        )
    return (
        FormatRenderer(
            chat=chat,
            bos=tokenizer.bos,
            default_system=family.default_system if family else None,
        ),
        (
            Assumption(
                name="data.chat_template",
                value=chat.name,
                reason=reason,
                source=chat.source,
                how_to_set=sentence("--tokenizer FOLDER (with tokenizer_config.json)"),
            ),
        ),
    )


def _located() -> Assumption:
    return Assumption(
        name="data.trained_tokens",
        value="text of the assistant's messages and their end token",
        reason=message(
            "trained_tokens_located",
            "the chat template has no generation marks, so the assistant's part is found by "
            "rendering its messages between marks",
        ),
        source="transformers chat templates: {% generation %} is optional",
        how_to_set="a chat_template with {% generation %} ... {% endgeneration %}",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatRenderer:
    """A chat format that is only text around each message."""

    chat: ChatFormat
    bos: str = ""
    default_system: str | None = None

    @property
    def takes_parts(self) -> bool:
        """Messages are text."""
        return False

    def render(self, chat: Chat) -> Rendered:
        """The text and the learned spans: each learned assistant message with its end token."""
        pieces, spans, position = [self.bos], [], len(self.bos)
        for number, turn in self._turns(chat):
            before, after = self._around(turn["role"])
            body = turn["content"] + _calls(turn)
            if turn["role"] == "assistant":
                start = position + len(before)
                stop = start + len(body) + len(self.chat.stop)
                if number >= chat.first_trained:
                    spans.append((start, stop))
            piece = before + body + after
            pieces.append(piece)
            position += len(piece)
        return Rendered("".join(pieces), tuple(spans))

    def _around(self, role: str) -> tuple[str, str]:
        form = self.chat
        shown = form.roles.get(role, role)
        before = form.before_role.get(role, form.before).replace("{role}", shown)
        ends = role == "assistant" or not form.before_role
        return before, form.stop + form.after if ends else form.after_role.get(role, "")

    def _turns(self, chat: Chat) -> Sequence[tuple[int, Mapping[str, Any]]]:
        """Messages with their index in the row; the system text and the tools put in place."""
        turns = list(enumerate(chat.messages))
        system = self.default_system or ""
        if turns and turns[0][1]["role"] == "system":
            system = turns.pop(0)[1]["content"]
        if chat.tools:
            tools = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in chat.tools)
            system = f"{system}\n\n{tools}" if system else tools
        if not system:
            return turns
        if self.chat.joins_system and turns:
            number, first = turns[0]
            joined = {**first, "content": f"{system}\n\n{first['content']}"}
            return [(number, joined), *turns[1:]]
        return [(-1, {"role": "system", "content": system}), *turns]


def _calls(turn: Mapping[str, Any]) -> str:
    calls = turn.get("tool_calls")
    return json.dumps(calls, ensure_ascii=False) if calls else ""
