"""Rows to samples: which layout a row has, and the text or conversation in it.

A layout is recognised by its keys alone; what the keys hold is then checked, and a row that does
not hold what its layout needs is a ``RowProblem``, located by the caller.

Sources of the layouts: trl 1.10 ``docs/source/dataset_formats.md`` (text, prompt-completion,
``messages``, preference), LLaMA-Factory 0.9.4 ``data/README.md`` (alpaca, ShareGPT, pairs);
trees of messages in ``trees.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from tuneplan.frozen import dataclass
from tuneplan.language import message, phrase
from tuneplan.tokens.multimodal import (
    PLACEHOLDER,
    inline_pictures,
    listed_pictures,
    marked,
    num_marks,
)
from tuneplan.tokens.trees import threads_of
from tuneplan.tokens.turns import RowProblem, as_turns, text_in, tools_of, turns_of, wrong_type

# Prompt key and answer key of a row without roles, most specific first.
_PAIRS_OF_KEYS: Final = (
    ("prompt", "completion"),
    ("prompt", "response"),
    ("prompt", "answer"),
    ("question", "answer"),
    ("question", "response"),
    ("query", "response"),
    ("query", "answer"),
    ("problem", "solution"),
    ("input", "output"),
)


class Shape(StrEnum):
    """The layout of a row."""

    MESSAGES = "messages"
    SHAREGPT = "sharegpt"
    ALPACA = "alpaca"
    PROMPT_COMPLETION = "prompt_completion"
    TEXT = "text"
    PREFERENCE = "preference"
    TREE = "tree"

    @property
    def sequences_per_sample(self) -> int:
        """Sequences that the trainer makes of one row: a pair is two."""
        return 2 if self is Shape.PREFERENCE else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """A conversation.

    Attributes:
        messages: With ``role``, ``content`` (text) and perhaps ``tool_calls``, as templates want.
        first_trained: Assistant messages before this index are prompt and not learned from.
        tools: Tool descriptions, where the row has them.
        to_end: All that follows the prompt is learned, what the template writes last with it.
        pictures: The pictures of the row; each has its mark (``multimodal.PICTURE``) in a message.
    """

    messages: tuple[Mapping[str, Any], ...]
    first_trained: int = 0
    tools: tuple[Any, ...] = ()
    to_end: bool = False
    pictures: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """Text without roles: ``prompt`` is read, ``completion`` is learned."""

    prompt: str
    completion: str


Sample = Chat | Plain


def shape_of(row: Mapping[str, Any]) -> Shape | None:
    """The layout that the keys of a row say, or None."""
    if "chosen" in row and "rejected" in row:
        return Shape.PREFERENCE
    if "messages" in row:
        return Shape.MESSAGES
    if isinstance(row.get("prompt"), dict) and "replies" in row["prompt"]:
        return Shape.TREE
    turns = row.get("conversations", row.get("conversation"))
    if turns is not None:
        first = turns[0] if isinstance(turns, list) and turns else {}
        return Shape.MESSAGES if isinstance(first, dict) and "role" in first else Shape.SHAREGPT
    if "instruction" in row and ("output" in row or "response" in row):
        return Shape.ALPACA
    if columns_of(row):
        return Shape.PROMPT_COMPLETION
    return Shape.TEXT if "text" in row or set(row) == {"content"} else None


def columns_of(row: Mapping[str, Any]) -> tuple[str, str] | None:
    """The keys that hold prompt and answer in a prompt-completion row."""
    return next((pair for pair in _PAIRS_OF_KEYS if pair[0] in row and pair[1] in row), None)


def samples_of(row: Mapping[str, Any], shape: Shape) -> tuple[Sample, ...]:
    """The sequences of one row: one, chosen and rejected of a pair, or every thread of a tree.

    Raises:
        RowProblem: The row does not hold what the layout needs.
    """
    if shape is Shape.PREFERENCE:
        return _pair(row)
    if shape is Shape.TREE:
        return tuple(Chat(messages=turns_of(thread, "prompt")) for thread in threads_of(row))
    if shape in (Shape.MESSAGES, Shape.SHAREGPT):
        return (_conversation(row),)
    if shape is Shape.ALPACA:
        return (_instruction(row),)
    if shape is Shape.PROMPT_COMPLETION:
        prompt, completion = columns_of(row) or ("prompt", "completion")
        return (_prompted(row[prompt], row[completion], prompt, completion, row),)
    key = "text" if "text" in row else "content"
    return (Plain(prompt="", completion=text_in(row.get(key), key)),)


def is_empty(sample: Sample) -> bool:
    """Whether there is nothing to learn: every learned part is blank."""
    if isinstance(sample, Plain):
        return not sample.completion.strip()
    return not any(
        turn["content"].strip() or turn.get("tool_calls")
        for turn in sample.messages[sample.first_trained :]
        if turn["role"] == "assistant"
    )


# --- One layout each ---------------------------------------------------------------------------


def _conversation(row: Mapping[str, Any]) -> Chat:
    key = next(key for key in ("messages", "conversations", "conversation") if key in row)
    turns = turns_of(row[key], key)
    if isinstance(row.get("system"), str) and row["system"] and turns[0]["role"] != "system":
        turns = ({"role": "system", "content": row["system"]}, *turns)
    return _with_pictures(Chat(messages=turns, tools=tools_of(row)), row, row[key])


def _instruction(row: Mapping[str, Any]) -> Chat:
    """An alpaca row as LLaMA-Factory reads it: instruction and input are one user message."""
    output = "output" if "output" in row else "response"
    messages = _instruction_prompt(row)
    messages.append({"role": "assistant", "content": text_in(row[output], output)})
    return _with_pictures(Chat(messages=tuple(messages), tools=tools_of(row)), row)


def _instruction_prompt(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    instruction = text_in(row["instruction"], "instruction")
    context = row.get("input", row.get("context")) or ""
    asked = "\n".join(part for part in (instruction, text_in(context, "input")) if part)
    messages: list[dict[str, Any]] = []
    if row.get("system"):
        messages.append({"role": "system", "content": text_in(row["system"], "system")})
    for turn in row.get("history") or ():
        if not isinstance(turn, list) or len(turn) != 2:
            raise wrong_type("history", turn, phrase("a list of [question, answer]"))
        messages.append({"role": "user", "content": text_in(turn[0], "history")})
        messages.append({"role": "assistant", "content": text_in(turn[1], "history")})
    messages.append({"role": "user", "content": asked})
    return messages


def _prompted(
    prompt: object, answer: object, prompt_key: str, answer_key: str, row: Mapping[str, Any]
) -> Sample:
    """Prompt and answer, each text or a list of messages (trl's two forms)."""
    if isinstance(prompt, str) and isinstance(answer, str):
        if (prompt_key, answer_key) == ("prompt", "completion") and not listed_pictures(row):
            return Plain(prompt=prompt, completion=answer)
        turns = ({"role": "user", "content": prompt}, {"role": "assistant", "content": answer})
        return _with_pictures(Chat(messages=turns, first_trained=1, tools=tools_of(row)), row)
    asked = as_turns(prompt, "user", prompt_key)
    answered = as_turns(answer, "assistant", answer_key)
    return _with_pictures(
        Chat(messages=(*asked, *answered), first_trained=len(asked), tools=tools_of(row)),
        row,
        (*_listed(prompt), *_listed(answer)),
    )


def _pair(row: Mapping[str, Any]) -> tuple[Sample, Sample]:
    """Chosen and rejected, each with the whole prompt before it.

    trl 1.16 ``dpo_trainer.py`` ``DataCollatorForPreference`` runs both as sequences of their own,
    and learns from where the prompt ends (``tokenize_fn``) to where the text does; without a
    ``prompt`` what they share at the start is the prompt (``extract_prompt``).
    """
    chosen, rejected = row["chosen"], row["rejected"]
    asked = _pair_prompt(row)
    if asked is None and isinstance(chosen, str) and isinstance(rejected, str):
        prompt = row.get("prompt")
        if prompt is None:
            shared = _num_shared(chosen, rejected)
            prompt, chosen, rejected = chosen[:shared], chosen[shared:], rejected[shared:]
        text = text_in(prompt, "prompt")
        return Plain(prompt=text, completion=chosen), Plain(prompt=text, completion=rejected)
    first = as_turns(chosen, "assistant", "chosen")
    second = as_turns(rejected, "assistant", "rejected")
    if asked is None and "prompt" in row and not _starts_a_conversation(first):
        asked = as_turns(row["prompt"], "user", "prompt")
    if asked is None or _starts_a_conversation(first):
        shared = min(_num_shared(first, second), len(first) - 1, len(second) - 1)
        asked, first, second = first[:shared], first[shared:], second[shared:]
    prompt_turns = tuple(asked)
    raw = tuple(turn for key in _OF_PROMPTS for turn in _listed(row.get(key)))
    a, b = (
        _with_pictures(
            Chat(
                messages=(*prompt_turns, *answer),
                first_trained=len(prompt_turns),
                tools=tools_of(row),
                to_end=True,
            ),
            row,
            (*raw, *_listed(row[key])),
        )
        for key, answer in (("chosen", first), ("rejected", second))
    )
    return a, b


_OF_PROMPTS: Final = ("prompt", "messages", "conversations", "conversation")


def _pair_prompt(row: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...] | None:
    """The prompt as messages where the row has it so; None for text or no prompt."""
    for key in ("messages", "conversations", "conversation"):
        if key in row:
            return _conversation({**row, key: row[key]}).messages
    if "instruction" in row:
        return tuple(_instruction_prompt(row))
    if isinstance(row.get("prompt"), list):
        return turns_of(row["prompt"], "prompt")
    if isinstance(row.get("question"), str):
        return as_turns(row["question"], "user", "question")
    return None


def _num_shared(first: Sequence[object], second: Sequence[object]) -> int:
    """Elements that two sequences have in common at their start."""
    for number, (a, b) in enumerate(zip(first, second, strict=False)):
        if a != b:
            return number
    return min(len(first), len(second))


def _starts_a_conversation(turns: Sequence[Mapping[str, Any]]) -> bool:
    return turns[0]["role"] in ("system", "user")


def _listed(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _with_pictures(chat: Chat, row: Mapping[str, Any], turns: object = ()) -> Chat:
    """The conversation with its pictures, each in its place.

    Args:
        chat: Its messages may have places for pictures.
        row: Lists the pictures in ``images`` or ``image``.
        turns: The messages as the row has them, which may name pictures themselves.

    Raises:
        RowProblem: There are more places than pictures.
    """
    listed = listed_pictures(row)
    pictures = listed or inline_pictures(
        _listed(turns) or (turns if isinstance(turns, tuple) else ())
    )
    if not pictures:
        return chat
    messages = marked(chat.messages, len(pictures))
    places = num_marks(messages)
    if places != len(pictures):
        raise RowProblem(
            message(
                "more_places_than_pictures",
                "{places} places for pictures ({placeholder}) and {pictures} "
                "{pictures:~picture/pictures}",
                places=places,
                placeholder=PLACEHOLDER,
                pictures=len(pictures),
            )
        )
    return Chat(
        messages=messages,
        first_trained=chat.first_trained,
        tools=chat.tools,
        to_end=chat.to_end,
        pictures=pictures,
    )
