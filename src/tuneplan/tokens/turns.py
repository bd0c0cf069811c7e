"""Pieces of a row: messages with their roles, texts, descriptions of tools; and what is wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from tuneplan.language import Message, message, phrase
from tuneplan.tokens.multimodal import text_of_part
from tuneplan.tokens.rows import kind_of

_ROLES: Final = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "prompter": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "function_call": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
    "ipython": "tool",
}


class RowProblem(Exception):
    """A row that does not hold what its layout needs."""

    def __init__(self, text: Message) -> None:
        super().__init__(text)
        self.message = text


def as_turns(value: object, role: str, key: str) -> tuple[Mapping[str, Any], ...]:
    """The messages of a key that may also hold one message, or the text of one."""
    if isinstance(value, str):
        return ({"role": role, "content": value},)
    return turns_of([value] if isinstance(value, dict) else value, key)


def turns_of(value: object, key: str) -> tuple[Mapping[str, Any], ...]:
    """The messages of a key that holds a list of them."""
    if not isinstance(value, list):
        raise wrong_type(key, value, phrase("a list of messages"))
    if not value:
        raise RowProblem(message("no_messages", "{key} has no messages", key=repr(key)))
    return tuple(_turn(turn, key, number) for number, turn in enumerate(value, 1))


def _turn(turn: object, key: str, number: int) -> Mapping[str, Any]:
    where = f"{key}[{number}]"
    if not isinstance(turn, dict):
        raise wrong_type(where, turn, phrase("an object with role and content"))
    given = turn.get("role", turn.get("from"))
    role = _ROLES.get(given.lower()) if isinstance(given, str) else None
    if role is None:
        raise RowProblem(
            message(
                "unknown_role",
                "{where} has the role {role}; roles are system, user, assistant, tool "
                "(in ShareGPT: human, gpt, function_call, observation)",
                where=where,
                role=repr(given),
            )
        )
    content = turn.get("content", turn.get("value"))
    calls = turn.get("tool_calls")
    if content is None and not calls:
        raise RowProblem(message("message_without_content", "{where} has no content", where=where))
    said: dict[str, Any] = {"role": role, "content": _content(content, where)}
    if calls:
        said["tool_calls"] = calls
    return said


def _content(content: object, where: str) -> str:
    """Text of a message; a list of parts is joined, as multimodal templates do."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        return "".join(map(text_of_part, content))
    raise wrong_type(where, content, phrase("text"))


def text_in(value: object, key: str) -> str:
    """The text of a key."""
    if isinstance(value, str):
        return value
    raise wrong_type(key, value, phrase("text"))


def wrong_type(key: str, value: object, wanted: str) -> RowProblem:
    """What is said of a key that holds something else."""
    return RowProblem(
        message(
            "wrong_type",
            "{key} must be {wanted}, this is {kind}",
            key=key,
            wanted=wanted,
            kind=kind_of(value),
        )
    )


def tools_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Tool descriptions; LLaMA-Factory and trl both also keep them as JSON text."""
    tools = row.get("tools")
    if isinstance(tools, str) and tools.strip():
        try:
            tools = json.loads(tools)
        except ValueError:
            return (tools,)
    return tuple(tools) if isinstance(tools, list) else ()
