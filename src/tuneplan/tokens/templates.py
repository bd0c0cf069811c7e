"""Conversations through a model's own Jinja chat template, in a sandbox.

The template sees what transformers gives it (``messages``, ``tools``, ``bos_token``...,
``raise_exception``, ``strftime_now``, ``tojson`` without escapes); the date is fixed, so that
lengths do not change from day to day.
Source: transformers 4.57 ``utils/chat_template_utils.py`` ``_compile_jinja_template``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from tuneplan.errors import InputError, MissingExtra
from tuneplan.language import message, phrase
from tuneplan.tokens.encoders import Rendered
from tuneplan.tokens.multimodal import num_marks, parts_of
from tuneplan.tokens.shapes import Chat
from tuneplan.tokens.turns import RowProblem

# Private-use characters that no text holds; they mark the learned parts and are taken out again.
_OPEN: Final = "\uf8e0\uf8e1\uf8e2"
_CLOSE: Final = "\uf8e2\uf8e1\uf8e0"
_DATE: Final = datetime(2026, 1, 1, tzinfo=UTC)
# Characters, or bits of a number, that a template may make by multiplying.
_LARGEST: Final = 10_000_000
# How templates without pictures pick the text out of a message's parts.
_WALKS_PARTS: Final = ("selectattr('type'", 'selectattr("type"', "['content'][0]['text']")
_THINK, _END_THINK = "<think>", "</think>"


class _Refused(Exception):
    """A template called ``raise_exception``."""


class TemplateRenderer:
    """Renders conversations with one template.

    Attributes:
        marks_generation: The template says itself what the assistant writes.
        takes_parts: It walks the parts of a message, pictures among them.
    """

    def __init__(self, source: str, specials: Mapping[str, str], stops: Sequence[str]) -> None:
        self._source = source
        self._stops = tuple(stops)
        self._specials = dict(specials)
        self._template = _compile(source)
        self.marks_generation = "{% generation" in source or "{%- generation" in source
        self.takes_parts = "'image'" in source or '"image"' in source
        # A template that walks parts and never asks whether a message is text wants all in parts.
        walks = self.takes_parts or any(sign in source for sign in _WALKS_PARTS)
        self._always_parts = walks and "is string" not in source

    def __reduce__(self) -> tuple[type[TemplateRenderer], tuple[Any, ...]]:
        """A compiled template does not travel to another process; its source does."""
        return TemplateRenderer, (self._source, self._specials, self._stops)

    def render(self, chat: Chat) -> Rendered:
        """The text and the learned spans.

        Raises:
            RowProblem: The template refuses the conversation or fails on it.
            InputError: The template tries to leave its sandbox.
        """
        text = self._text(chat.messages, chat.tools)
        if not self.marks_generation:
            return Rendered(text, tuple(self._located(chat, text)))
        text, spans = _unmarked(text) or (text, [])
        in_prompt = chat.messages[: chat.first_trained]
        num_prompt = sum(turn["role"] == "assistant" for turn in in_prompt)
        return Rendered(text, tuple(spans[num_prompt:]))

    def _located(self, chat: Chat, text: str) -> list[tuple[int, int]]:
        """Spans by rendering once more with marks around what the assistant says."""
        learned = [
            number
            for number, turn in enumerate(chat.messages)
            if turn["role"] == "assistant" and number >= chat.first_trained
        ]
        said = [number for number in learned if chat.messages[number]["content"].strip()]
        between = [
            _between_marks(turn) if number in said else turn
            for number, turn in enumerate(chat.messages)
        ]
        found = _unmarked(self._text(between, chat.tools)) if said else (text, [])
        if found is None or found[0] != text:
            said, found = [], (text, [])
        spans = dict(zip(said, found[1], strict=False))
        for number in learned:
            if number not in spans:
                spans[number] = self._after_prompt(chat, number, text)
        return sorted(
            self._widened(text, span, chat.messages[number])
            for number, span in spans.items()
            if span[1] > 0
        )

    def _after_prompt(self, chat: Chat, number: int, text: str) -> tuple[int, int]:
        """A span that marks cannot find: a tool call alone, or a template that changes its words.

        It starts where the prompt of that turn ends; failing that, where the words stand; failing
        that too, ``(0, 0)``: the turn is not in the text.
        """
        turn = chat.messages[number]
        prompt = self._text(chat.messages[:number], chat.tools, generate=True) if number else ""
        words = turn["content"].rsplit(_END_THINK, 1)[-1].strip()
        if prompt and text.startswith(prompt):
            return len(prompt), len(prompt) + len(words)
        start = text.find(words) if words else -1
        return (start, start + len(words)) if start >= 0 else (0, 0)

    def _widened(
        self, text: str, span: tuple[int, int], turn: Mapping[str, Any]
    ) -> tuple[int, int]:
        """With the reasoning before the answer, tool calls after it, and the end token."""
        start, end = span
        before = text[:start].rstrip()
        if before.endswith(_END_THINK):
            opened = before.rfind(_THINK)
            # A mark of the end alone is written by the prompt, not by the assistant.
            if opened >= 0 and before.find(_END_THINK, opened) == len(before) - len(_END_THINK):
                start = opened
        if turn.get("tool_calls"):
            ends = [at for at in (text.find(stop, end) for stop in self._stops) if at >= 0]
            end = min(ends, default=end)
        after = end
        while after < len(text) and text[after].isspace():
            after += 1
        stop = next((stop for stop in self._stops if text.startswith(stop, after)), "")
        return start, after + len(stop) if stop else end

    def _in_parts(self, messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        if not (self._always_parts or (self.takes_parts and num_marks(messages))):
            return list(messages)
        return [{**turn, "content": parts_of(turn["content"])} for turn in messages]

    def _text(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Any],
        *,
        generate: bool = False,
    ) -> str:
        try:
            return str(
                self._template.render(
                    messages=self._in_parts(messages),
                    tools=list(tools) or None,
                    add_generation_prompt=generate,
                    **self._specials,
                )
            )
        except _Refused as error:
            raise _problem(str(error)) from error
        except _security_error() as error:
            raise InputError(
                message(
                    "unsafe_template",
                    "the chat template is refused: it reaches for what no template may use "
                    "({reason}); use a template that only writes messages",
                    reason=str(error),
                )
            ) from error
        except Exception as error:  # a template is a program: it can fail in any way
            raise _problem(f"{type(error).__name__}: {error}") from error


def _security_error() -> type[Exception]:
    from jinja2.exceptions import SecurityError

    return SecurityError


def _problem(reason: str) -> RowProblem:
    return RowProblem(
        message("template_refused", "the chat template refuses this row: {reason}", reason=reason)
    )


def _between_marks(turn: Mapping[str, Any]) -> Mapping[str, Any]:
    """The message with its last answer (what follows any reasoning) between marks."""
    head, end, answer = turn["content"].rpartition(_END_THINK)
    words = answer.lstrip()
    space = answer[: len(answer) - len(words)]
    kept = words.rstrip()
    rest = words[len(kept) :]
    return {**turn, "content": f"{head}{end}{space}{_OPEN}{kept}{_CLOSE}{rest}"}


def _unmarked(marked: str) -> tuple[str, list[tuple[int, int]]] | None:
    """The text without marks, and the spans they stood around; None where they do not pair."""
    pieces: list[str] = []
    spans: list[tuple[int, int]] = []
    position = length = 0
    while (start := marked.find(_OPEN, position)) >= 0:
        end = marked.find(_CLOSE, start)
        if end < 0:
            return None
        before, inside = marked[position:start], marked[start + len(_OPEN) : end]
        pieces += [before, inside]
        spans.append((length + len(before), length + len(before) + len(inside)))
        length, position = spans[-1][1], end + len(_CLOSE)
    pieces.append(marked[position:])
    text = "".join(pieces)
    return None if _CLOSE in text else (text, spans)


def _refuse(text: str) -> None:
    raise _Refused(text)


def _grows(operator: str, left: Any, right: Any) -> bool:
    """Whether ``*`` or ``**`` would make something of more than a few megabytes."""
    if operator == "**":
        bits = left.bit_length() if isinstance(left, int) else 1
        return isinstance(right, int) and abs(right) * max(bits, 1) > _LARGEST
    sized = next((one for one in (left, right) if isinstance(one, str | list | tuple)), None)
    times = next((one for one in (left, right) if isinstance(one, int)), 1)
    return sized is not None and len(sized) * max(times, 0) > _LARGEST


def _to_json(value: Any, **options: Any) -> str:
    return json.dumps(value, **{"ensure_ascii": False, **options})


def _compile(source: str) -> Any:
    try:
        from jinja2 import TemplateError, nodes
        from jinja2.exceptions import SecurityError
        from jinja2.ext import Extension, loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        raise MissingExtra(extra="tokens", purpose=phrase("reading a chat template")) from None

    class Generation(Extension):
        """``{% generation %}``: what the assistant writes, between marks."""

        tags = frozenset({"generation"})  # type: ignore[assignment]

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            call = self.call_method("mark")
            return nodes.CallBlock(call, [], [], body).set_lineno(line)

        def mark(self, caller: Any) -> str:
            return f"{_OPEN}{caller()}{_CLOSE}"

    class Sandbox(ImmutableSandboxedEnvironment):
        """Nothing of Python within reach, and no text or number that fills the memory."""

        intercepted_binops = frozenset({"*", "**"})

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            if _grows(operator, left, right):
                raise SecurityError(f"a product of {operator} that is larger than any text")
            return super().call_binop(context, operator, left, right)

        def unsafe_undefined(self, obj: Any, attribute: str) -> Any:
            raise SecurityError(f"the attribute {attribute} of {type(obj).__name__}")

    environment = Sandbox(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = _DATE.strftime
    try:
        return environment.from_string(source)
    except TemplateError as error:
        raise InputError(
            message(
                "broken_template", "the chat template does not read: {reason}", reason=str(error)
            )
        ) from error
