"""Layouts of rows, and what is wrong with a row."""

import pytest

from tuneplan.tokens.multimodal import PICTURE
from tuneplan.tokens.shapes import (
    Chat,
    Plain,
    RowProblem,
    Shape,
    columns_of,
    is_empty,
    samples_of,
    shape_of,
)

ASK = {"role": "user", "content": "q"}
SAY = {"role": "assistant", "content": "a"}
SAY_OTHER = {"role": "assistant", "content": "b"}


def said(sample):
    return [(turn["role"], turn["content"]) for turn in sample.messages]


@pytest.mark.parametrize(
    ("row", "shape"),
    [
        ({"messages": [ASK, SAY]}, Shape.MESSAGES),
        ({"conversations": [{"from": "human", "value": "q"}]}, Shape.SHAREGPT),
        ({"conversations": [ASK, SAY]}, Shape.MESSAGES),
        ({"instruction": "i", "input": "", "output": "o"}, Shape.ALPACA),
        ({"instruction": "i", "context": "c", "response": "o"}, Shape.ALPACA),
        ({"prompt": "p", "completion": "c"}, Shape.PROMPT_COMPLETION),
        ({"prompt": "p", "response": "c"}, Shape.PROMPT_COMPLETION),
        ({"question": "p", "answer": "c"}, Shape.PROMPT_COMPLETION),
        ({"text": "t"}, Shape.TEXT),
        ({"prompt": "p", "chosen": "c", "rejected": "r"}, Shape.PREFERENCE),
        ({"instruction": "i", "chosen": "c", "rejected": "r"}, Shape.PREFERENCE),
        ({"id": 1, "label": "x"}, None),
    ],
)
def test_the_keys_say_the_layout(row, shape):
    assert shape_of(row) is shape


def test_the_keys_that_hold_prompt_and_answer_are_noted():
    assert columns_of({"id": 1, "question": "q", "answer": "a"}) == ("question", "answer")


def test_instruction_and_input_are_one_user_message_after_system_and_history():
    row = {
        "instruction": "translate",
        "input": "hello",
        "output": "哈囉",
        "system": "be brief",
        "history": [["hi", "hey"]],
    }
    (sample,) = samples_of(row, Shape.ALPACA)
    assert said(sample) == [
        ("system", "be brief"),
        ("user", "hi"),
        ("assistant", "hey"),
        ("user", "translate\nhello"),
        ("assistant", "哈囉"),
    ]


def test_the_roles_of_sharegpt_become_the_roles_of_templates():
    turns = [("human", "q"), ("function_call", "{}"), ("observation", "42"), ("gpt", "a")]
    row = {"conversations": [{"from": who, "value": what} for who, what in turns]}
    (sample,) = samples_of(row, Shape.SHAREGPT)
    assert said(sample) == [("user", "q"), ("assistant", "{}"), ("tool", "42"), ("assistant", "a")]


def test_parts_of_a_message_are_joined_and_pictures_have_their_place():
    parts = [{"type": "image"}, {"type": "text", "text": "what "}, {"type": "text", "text": "now"}]
    (sample,) = samples_of({"messages": [{"role": "user", "content": parts}, SAY]}, Shape.MESSAGES)
    assert said(sample)[0] == ("user", f"{PICTURE}what now")
    assert sample.pictures == (None,)


def test_a_picture_stands_where_the_text_says_or_before_the_first_question():
    row = {"messages": [{"role": "user", "content": "who <image>?"}, SAY], "images": ["1.jpg"]}
    (sample,) = samples_of(row, Shape.MESSAGES)
    assert said(sample)[0] == ("user", f"who {PICTURE}?")
    row = {"messages": [ASK, SAY], "images": ["1.jpg", "2.jpg"]}
    (sample,) = samples_of(row, Shape.MESSAGES)
    assert said(sample)[0][1].startswith(2 * PICTURE)
    assert sample.pictures == ("1.jpg", "2.jpg")


def test_the_placeholder_is_plain_text_where_a_row_has_no_picture():
    (sample,) = samples_of(
        {"messages": [{"role": "user", "content": "write <image>"}, SAY]}, Shape.MESSAGES
    )
    assert said(sample)[0] == ("user", "write <image>")


def test_more_places_than_pictures_are_a_problem():
    row = {"messages": [{"role": "user", "content": "<image><image>"}, SAY], "images": ["1.jpg"]}
    with pytest.raises(RowProblem, match="2 places"):
        samples_of(row, Shape.MESSAGES)


def test_both_sequences_of_a_pair_have_the_pictures_of_the_prompt():
    row = {"prompt": [ASK], "chosen": [SAY], "rejected": [SAY_OTHER], "images": ["1.jpg"]}
    for sample in samples_of(row, Shape.PREFERENCE):
        assert said(sample)[0][1].startswith(PICTURE)
        assert sample.pictures == ("1.jpg",)


def node(role, text, *replies, **more):
    return {"role": role, "text": text, "replies": list(replies), **more}


def test_every_thread_of_a_tree_is_a_conversation():
    tree = node(
        "prompter",
        "q",
        node("assistant", "a", node("prompter", "q2", node("assistant", "a2"))),
        node("assistant", "b", node("prompter", "left"), node("prompter", "also left")),
        node("assistant", "c", synthetic=True),
        node("assistant", "d", deleted=True),
    )
    row = {"tree_state": "ready_for_export", "prompt": tree}
    assert shape_of(row) is Shape.TREE
    assert [said(sample) for sample in samples_of(row, Shape.TREE)] == [
        [("user", "q"), ("assistant", "a"), ("user", "q2"), ("assistant", "a2")],
        [("user", "q"), ("assistant", "b")],
    ]
    assert samples_of({**row, "tree_state": "growing"}, Shape.TREE) == ()


def test_tool_descriptions_kept_as_json_text_are_read():
    row = {"messages": [ASK, SAY], "tools": '[{"name": "f"}]'}
    (sample,) = samples_of(row, Shape.MESSAGES)
    assert sample.tools == ({"name": "f"},)


def test_a_prompt_of_messages_is_not_learned():
    row = {"prompt": [ASK, SAY, ASK], "completion": [SAY_OTHER]}
    (sample,) = samples_of(row, Shape.PROMPT_COMPLETION)
    assert isinstance(sample, Chat)
    assert sample.first_trained == 3


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": [ASK], "chosen": [SAY], "rejected": [SAY_OTHER]},
        {"chosen": [ASK, SAY], "rejected": [ASK, SAY_OTHER]},
        {"prompt": "q", "chosen": [ASK, SAY], "rejected": [ASK, SAY_OTHER]},
        {"prompt": "q", "chosen": [SAY], "rejected": [SAY_OTHER]},
        {"messages": [ASK], "chosen": SAY, "rejected": SAY_OTHER},
        {"instruction": "q", "input": "", "chosen": "a", "rejected": "b"},
        {
            "conversations": [{"from": "human", "value": "q"}],
            "chosen": {"from": "gpt", "value": "a"},
            "rejected": {"from": "gpt", "value": "b"},
        },
    ],
    ids=["explicit", "implicit", "prompt twice", "text prompt", "messages", "alpaca", "sharegpt"],
)
def test_every_layout_of_a_pair_is_the_prompt_with_either_answer(row):
    chosen, rejected = samples_of(row, Shape.PREFERENCE)
    assert said(chosen) == [("user", "q"), ("assistant", "a")]
    assert said(rejected) == [("user", "q"), ("assistant", "b")]
    assert chosen.first_trained == rejected.first_trained == 1


def test_a_pair_of_texts_without_a_prompt_shares_its_beginning_as_the_prompt():
    row = {"chosen": "H: hi A: good", "rejected": "H: hi A: bad"}
    assert samples_of(row, Shape.PREFERENCE) == (
        Plain(prompt="H: hi A: ", completion="good"),
        Plain(prompt="H: hi A: ", completion="bad"),
    )


@pytest.mark.parametrize(
    ("row", "shape", "code"),
    [
        ({"messages": []}, Shape.MESSAGES, "no_messages"),
        ({"messages": "hi"}, Shape.MESSAGES, "wrong_type"),
        ({"messages": ["hi"]}, Shape.MESSAGES, "wrong_type"),
        ({"messages": [{"content": "x"}]}, Shape.MESSAGES, "unknown_role"),
        ({"messages": [{"role": "boss", "content": "x"}]}, Shape.MESSAGES, "unknown_role"),
        ({"messages": [{"role": "user"}]}, Shape.MESSAGES, "message_without_content"),
        ({"messages": [{"role": "user", "content": 3}]}, Shape.MESSAGES, "wrong_type"),
        ({"instruction": None, "output": "x"}, Shape.ALPACA, "wrong_type"),
        ({"instruction": "x", "output": 5}, Shape.ALPACA, "wrong_type"),
        ({"instruction": "x", "output": "y", "history": ["z"]}, Shape.ALPACA, "wrong_type"),
        ({"prompt": "x", "completion": None}, Shape.PROMPT_COMPLETION, "wrong_type"),
        ({"text": ["a"]}, Shape.TEXT, "wrong_type"),
        ({"prompt": "x", "chosen": "y", "rejected": None}, Shape.PREFERENCE, "wrong_type"),
    ],
)
def test_a_row_that_lacks_what_its_layout_needs_says_what(row, shape, code):
    with pytest.raises(RowProblem) as caught:
        samples_of(row, shape)
    assert caught.value.message.code == code


def test_the_message_that_is_wrong_is_named_by_its_place():
    with pytest.raises(RowProblem) as caught:
        samples_of({"messages": [ASK, {"role": "user", "content": 3}]}, Shape.MESSAGES)
    assert str(caught.value.message) == "messages[2] must be text, this is a number"


@pytest.mark.parametrize(
    ("row", "empty"),
    [
        ({"messages": [ASK, SAY]}, False),
        ({"messages": [ASK]}, True),
        ({"messages": [ASK, {"role": "assistant", "content": "  "}]}, True),
        ({"messages": [ASK, {"role": "assistant", "tool_calls": [{"name": "f"}]}]}, False),
    ],
)
def test_a_row_without_an_answer_has_nothing_to_learn(row, empty):
    (sample,) = samples_of(row, Shape.MESSAGES)
    assert is_empty(sample) is empty
