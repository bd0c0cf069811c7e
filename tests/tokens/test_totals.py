"""Totals of parts are the totals of the whole, in whatever pieces and processes it is counted."""

from __future__ import annotations

import pickle
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneplan.tokens.counting import RowCounter
from tuneplan.tokens.duplicates import Repeats
from tuneplan.tokens.rows import BlankLine, Item, Row
from tuneplan.tokens.shapes import Shape
from tuneplan.tokens.tokenizers import find_tokenizer
from tuneplan.tokens.totals import Totals

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
)
WORDS = [
    "the",
    "model",
    "reads",
    "a",
    "token",
    "and",
    "learns",
    "你好",
    "世界",
    "from",
    "each",
    "of",
    "them",
    "",
]


def rows(count: int) -> list[Item]:
    draw = random.Random(3)  # noqa: S311 - no secret
    items: list[Item] = []
    for line in range(1, count + 1):
        said = [" ".join(draw.choices(WORDS, k=draw.randint(1, 40))) for _ in range(2)]
        turns = [
            {"role": role, "content": text}
            for role, text in zip(("user", "assistant"), said, strict=True)
        ]
        items.append(Row(line=line, value={"messages": turns if line % 11 else "none"}))
    items.append(BlankLine(line=count + 1))
    return items


def counted(counter: RowCounter, items: list[Item]) -> Totals:
    totals = Totals()
    counter.count(items, "a.jsonl", Shape.MESSAGES, totals)
    totals.encoding_s = 0.0
    return totals


def figures(totals: Totals) -> tuple[object, ...]:
    return (
        totals.lengths,
        totals.ordered,
        totals.trained_tokens,
        totals.num_samples,
        totals.blank_lines,
        totals.bad_by_code,
        totals.bad_rows,
        totals.repeats.number(),
        totals.has_chat,
    )


@pytest.mark.parametrize("cut", [0, 1, 40, 99])
def test_the_totals_of_two_parts_merge_into_those_of_the_whole(cut: int) -> None:
    counter = RowCounter(find_tokenizer(tokenizer="approximate"))
    items = rows(100)
    first, second = counted(counter, items[:cut]), counted(counter, items[cut:])
    first.merge(second)
    assert figures(first) == figures(counted(counter, items))


@pytest.mark.parametrize("model", ["Qwen/Qwen2.5-7B", "mistralai/Mistral-7B-v0.1", "approximate"])
def test_a_counter_counts_the_same_after_it_travelled_to_another_process(model: str) -> None:
    counter = RowCounter(find_tokenizer(tokenizer=model))
    travelled = pickle.loads(pickle.dumps(counter))  # noqa: S301 - what worker processes do
    assert figures(counted(travelled, rows(30))) == figures(counted(counter, rows(30)))


def test_a_chat_template_travels_as_its_source() -> None:
    from dataclasses import replace

    tokenizer = replace(find_tokenizer(model="Qwen/Qwen2.5-7B"), chat_template=TEMPLATE)
    counter = RowCounter(tokenizer)
    travelled = pickle.loads(pickle.dumps(counter))  # noqa: S301
    assert figures(counted(travelled, rows(30))) == figures(counted(counter, rows(30)))


@given(st.lists(st.integers(0, 60), max_size=200), st.integers(0, 200))
def test_repeats_are_exact_while_nothing_is_thinned(digests: list[int], cut: int) -> None:
    first, second = Repeats(), Repeats()
    for digest in digests[:cut]:
        first.add(digest)
    for digest in digests[cut:]:
        second.add(digest)
    first.merge(second)
    assert first.number() == len(digests) - len(set(digests))


def test_thinned_repeats_are_unbiased_and_bounded() -> None:
    draw = random.Random(7)  # noqa: S311 - no secret
    distinct = [draw.getrandbits(64) for _ in range(60_000)]
    repeated = Repeats(limit=2_000)
    for digest in distinct + distinct[:20_000]:
        repeated.add(digest)
    hashes, _ = repeated.gathered()
    assert len(hashes) <= 2_000
    assert repeated.thinned == 5
    # 20,000 / 32 = 625 kept repeats, so one standard deviation is 4 %.
    assert repeated.number() == pytest.approx(20_000, rel=0.12)


def test_thinned_repeats_of_different_texts_are_none() -> None:
    draw = random.Random(8)  # noqa: S311 - no secret
    counted_once = Repeats(limit=1_000)
    for _ in range(20_000):
        counted_once.add(draw.getrandbits(64))
    assert counted_once.number() == 0


def test_one_text_repeated_more_often_than_the_limit_is_counted_exactly() -> None:
    same = Repeats(limit=100)
    for _ in range(1_000):
        same.add(12_345)
    assert same.number() == 999
